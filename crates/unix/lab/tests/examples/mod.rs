//! The scenarios under `examples/unix`, for the tests that run them: [`examples`].

use std::path::{Path, PathBuf};

use tontine_unix_lab::scenario::Scenario;

/// Returns the examples with their names: [`scenarios_in`].
pub(crate) fn examples() -> Vec<(String, Scenario)> {
    scenarios_in(&folder())
}

/// Returns the scenarios in the folders of `root` with their names, sorted by name. A name is the
/// path below `root`: `waits/no-zombies`.
///
/// # Panics
/// If a scenario cannot be read; the message names its line.
pub(crate) fn scenarios_in(root: &Path) -> Vec<(String, Scenario)> {
    let mut paths: Vec<PathBuf> = inside(root).iter().flat_map(|folder| inside(folder)).collect();
    paths.sort();
    let parsed = paths.iter().map(|path| {
        let name = path.strip_prefix(root).expect("a path below the root").with_extension("");
        let text = std::fs::read_to_string(path).expect("a scenario");
        let scenario = text.parse().unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        (name.display().to_string(), scenario)
    });
    parsed.collect()
}

/// Returns the folder of the examples.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/unix")
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of examples");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
