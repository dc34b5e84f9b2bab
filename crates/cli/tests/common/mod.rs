//! What tests of `measure` and `compare` share: the command, its text, and who outlived it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The command under test.
pub(crate) fn tontine() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tontine"))
}

/// What it printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Processes that carry the test's own mark, `TONTINE_TEST`, in their environment: none may survive
/// a run. Inside a container a process has another environment, and is the engine's.
pub(crate) fn left_behind(mark: &Path) -> Vec<String> {
    let marker = format!("TONTINE_TEST={}", mark.display());
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
