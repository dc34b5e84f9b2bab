//! Helpers for tests of the command: the command, its output, and the processes that outlive it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the command under test.
pub(crate) fn tontine() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tontine"))
}

/// Converts output into text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Timeout for the end of processes that a killed process left behind. They notice its death when
/// their pipe ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits up to [`END_TIMEOUT`], and returns the processes that still carry the test's mark,
/// `TONTINE_TEST`, in their environment. No process may survive a run. A process inside a container
/// has a different environment and belongs to the engine.
pub(crate) fn left_behind(mark: &Path) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = marked(mark);
        if left.is_empty() || began.elapsed() > END_TIMEOUT {
            return left;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn marked(mark: &Path) -> Vec<String> {
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
