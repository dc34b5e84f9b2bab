//! The scenarios under `examples/unix`, for the tests that run them: [`examples`].

use std::path::{Path, PathBuf};

use tontine_unix::scenario::Scenario;

/// Each example and its name, in the order of the names.
///
/// # Panics
/// If one cannot be read; the text says where.
pub(crate) fn examples() -> Vec<(String, Scenario)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/unix");
    let entries = std::fs::read_dir(folder).expect("the examples");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let parsed = paths.iter().map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).expect("an example");
        (name, text.parse().unwrap_or_else(|error| panic!("{}:{error}", path.display())))
    });
    parsed.collect()
}
