//! The state of a thread from `/proc`: [`ProcStatFile`]; and the threads of a process.
//!
//! A signal that wakes a thread changes the thread's state before the call that sends the signal
//! returns. Therefore, if the thread is still asleep after the call, the signal did not wake it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{ErrorContext, MeasureError, Result};

/// An open `/proc/…/stat` file of a thread.
#[derive(Debug)]
pub struct ProcStatFile(File);

impl ProcStatFile {
    /// Opens the file of thread `tid` in process `pid`; if both are equal, of the process's first
    /// thread.
    pub fn of(pid: u32, tid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/task/{tid}/stat");
        File::open(&path).setting_up(&format!("open {path}")).map(Self)
    }

    /// Returns `true` if the thread sleeps interruptibly (state `S`).
    pub fn asleep(&self) -> bool {
        let mut text = [0; 256];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        // The name in parentheses may contain any characters, even parentheses, so the state
        // follows the last closing parenthesis.
        let end_of_name = text[..length].iter().rposition(|&byte| byte == b')');
        end_of_name.is_some_and(|at| text[..length].get(at + 2) == Some(&b'S'))
    }
}

/// Returns the second thread of a process that has two threads.
pub fn second_thread(pid: u32) -> Result<u32> {
    let path = format!("/proc/{pid}/task");
    let threads = std::fs::read_dir(&path).setting_up(&format!("read {path}"))?;
    let ids = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = ids.into_iter().find(|&thread: &u32| thread != pid);
    found.ok_or_else(|| MeasureError::fail(format!("expected a second thread in {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::child::Child;
    use std::time::{Duration, Instant};

    #[test]
    fn spinning_thread_is_awake_and_waiting_thread_asleep() {
        let us = std::process::id();
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(!ProcStatFile::of(us, tid).expect("proc").asleep());
        let child = Child::fork(|| {
            loop {
                std::thread::sleep(Duration::from_secs(1))
            }
        });
        let child = child.expect("fork");
        let pid = child.pid().as_raw_nonzero().get().cast_unsigned();
        let state = ProcStatFile::of(pid, pid).expect("proc");
        let since = Instant::now();
        while !state.asleep() {
            assert!(since.elapsed() < Duration::from_secs(30), "it never slept");
        }
    }
}
