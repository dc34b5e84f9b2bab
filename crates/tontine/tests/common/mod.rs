//! Helpers shared by the mailbox tests: a path for a mailbox, and forked processes.

#![allow(unsafe_code, reason = "fork")]
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(missing_docs, unreachable_pub, reason = "a module of each test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tontine::Error;
use tontine::life::Life;
use tontine::mailbox::{Options, Sender};

/// A timeout that no successful operation reaches.
pub const AMPLE: Duration = Duration::from_secs(60);

/// Long enough to observe that nothing happens.
pub const SHORT: Duration = Duration::from_millis(50);

/// Maximum lifetime in seconds of a forked process, which holds even if its test fails.
const LIMIT_S: u32 = 300;

/// A folder, and the path of a mailbox in it.
pub struct Place {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

/// Creates a [`Place`].
pub fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mailbox");
    Place { _folder: folder, path }
}

/// Runs `child` in a forked process that is registered with [`Life`], and returns its pid.
pub fn fork(child: impl FnOnce()) -> i32 {
    bare_fork(|| {
        Life::register().expect("the main thread of the child");
        child();
    })
}

/// Like [`fork`], but does not register the child, whose liveness page could be mapped at the
/// address of its parent's.
pub fn bare_fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child calls `_exit` and never returns to the harness. It uses no lock that
    // another thread may hold at the fork except the allocator's, which the C library resets in the
    // child.
    match unsafe { libc::fork() } {
        0 => {
            // A failed test leaves its children behind, so a timer ends them.
            // SAFETY: `alarm` only sets a timer.
            unsafe { libc::alarm(LIMIT_S) };
            let done = catch_unwind(AssertUnwindSafe(child));
            // SAFETY: `_exit` only ends this process.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
        pid => {
            assert!(pid > 0, "fork failed");
            pid
        }
    }
}

/// Blocks a forked process that exists only to be killed, or to keep something open.
pub fn sleep_indefinitely() {
    loop {
        thread::park();
    }
}

/// A pipe through which a forked process reports its progress.
pub struct Signal(std::io::PipeReader, std::io::PipeWriter);

impl Signal {
    pub fn new() -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        Self(reader, writer)
    }

    pub fn give(&self, word: i32) {
        std::io::Write::write_all(&mut &self.1, &word.to_ne_bytes()).expect("written");
    }

    pub fn take(&self) -> i32 {
        let mut word = [0; 4];
        std::io::Read::read_exact(&mut &self.0, &mut word).expect("read");
        i32::from_ne_bytes(word)
    }

    /// Returns `true` if [`Signal::take`] would not wait.
    pub fn is_given(&self) -> bool {
        self.is_given_within(0)
    }

    fn is_given_within(&self, milliseconds: i32) -> bool {
        let mut ends = [libc::pollfd {
            fd: std::os::fd::AsRawFd::as_raw_fd(&self.0),
            events: libc::POLLIN,
            revents: 0,
        }];
        // SAFETY: `ends` has one entry, with an open descriptor.
        unsafe { libc::poll(ends.as_mut_ptr(), 1, milliseconds) == 1 }
    }

    /// Like [`Signal::take`], for a word from a child. Returns `None` after `milliseconds`.
    ///
    /// # Panics
    /// Panics if the child has ended.
    pub fn take_within(&self, milliseconds: i32, pid: i32) -> Option<i32> {
        if self.is_given_within(milliseconds) {
            return Some(self.take());
        }
        let status = ended(pid);
        assert_eq!(status, None, "expected a byte from the child, found its end");
        None
    }
}

/// Sends `signal` to an unreaped process of this test.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: the process was not reaped, so the number is still its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Kills an unreaped forked process, and reaps it.
pub fn kill(pid: i32) {
    signal(pid, libc::SIGKILL);
    reap(pid);
}

/// Waits for a forked process and returns its status.
pub fn reap(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child is our own, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Reaps a forked process if it has ended, and returns its status.
pub fn ended(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the child is our own, and `status` is writable.
    let found = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
    assert!(found >= 0, "waitpid");
    (found == pid).then_some(status)
}

/// Connects as soon as a mailbox listens at `path`.
pub fn connect(options: &Options, path: &Path) -> Sender {
    let until = Instant::now() + AMPLE;
    loop {
        match options.connect(path) {
            Ok(sender) => return sender,
            Err(Error::NoMailbox { .. }) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until `done` returns `true`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + AMPLE;
    while !done() {
        assert!(Instant::now() < until, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A sequence of numbers determined by a seed.
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns the next number, below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
