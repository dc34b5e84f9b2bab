//! Helpers for tests of `tontine-unix`: its commands on a file with a scenario.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::tontine;

/// Runs a subcommand of `unix` on a file.
pub(crate) fn unix(command: &str, arguments: &[&str], file: &Path) -> Output {
    tontine().args([command]).args(arguments).arg(file).output().expect("tontine runs")
}

/// Returns a file with this scenario.
pub(crate) fn scenario(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".unix").tempfile().expect("a file");
    fs::write(file.path(), text).expect("written");
    file
}
