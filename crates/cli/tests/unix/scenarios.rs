//! What tests of `tontine unix` share: its commands on a file with a scenario, and their text.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs one of its commands on a file.
pub(crate) fn unix(command: &str, arguments: &[&str], file: &Path) -> Output {
    let mut tontine = Command::new(env!("CARGO_BIN_EXE_tontine"));
    tontine.args(["unix", command]).args(arguments).arg(file).output().expect("tontine runs")
}

/// What it printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file with this scenario.
pub(crate) fn scenario(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".unix").tempfile().expect("a file");
    fs::write(file.path(), text).expect("written");
    file
}
