//! Helpers of the tests of the command: the command, its text, and the processes that outlive it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The command under test.
pub(crate) fn tontine() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tontine"))
}

/// What it printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How long those may take to end whom a killed process leaves behind: they learn of it by the end
/// of a pipe.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Processes that carry the test's own mark, `TONTINE_TEST`, in their environment, and stay: none
/// may survive a run. Inside a container a process has another environment, and is the engine's.
pub(crate) fn left_behind(mark: &Path) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = marked(mark);
        if left.is_empty() || began.elapsed() > LAST_WORDS {
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
