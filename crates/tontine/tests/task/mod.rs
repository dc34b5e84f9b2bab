//! Threads of this and of other processes, as `/proc` shows them: [`Task`].
//!
//! A test that needs another thread to be blocked waits until that thread sleeps, instead of a time
//! that may be too short on a busy machine.

#![allow(unsafe_code, reason = "gettid")]
#![allow(dead_code, unreachable_pub, reason = "a module of each test, which uses a part of it")]

use std::fs;
use std::time::{Duration, Instant};

/// Maximum wait for a thread that sleeps.
const LIMIT: Duration = Duration::from_secs(60);

/// Interval between two looks at a thread. A thread that slept all the time in between is blocked,
/// and does not only wait for a lock that is held for a moment.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// One thread of a process.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    process: i32,
    thread: i32,
}

impl Task {
    /// Returns the calling thread.
    pub fn current() -> Self {
        let process = std::process::id().cast_signed();
        // SAFETY: `gettid` takes no arguments.
        Self { process, thread: unsafe { libc::gettid() } }
    }

    /// Returns the main thread of a process.
    pub fn main_of(process: i32) -> Self {
        Self { process, thread: process }
    }

    /// Waits until the thread sleeps in the kernel.
    ///
    /// # Panics
    /// Panics if the thread ends, or does not sleep within [`LIMIT`].
    pub fn until_asleep(self) {
        let deadline = Instant::now() + LIMIT;
        while !self.sleeps() {
            assert!(!self.has_ended(), "expected a thread that sleeps, found its end");
            assert!(Instant::now() < deadline, "expected a thread that sleeps within {LIMIT:?}");
        }
    }

    /// Returns `true` if the thread has ended. The ended main thread of a process with other threads
    /// remains as a zombie.
    pub fn has_ended(self) -> bool {
        self.look().is_none_or(|(state, _)| ['Z', 'X'].contains(&state))
    }

    /// Looks twice; returns `true` if the thread slept all the time in between.
    fn sleeps(self) -> bool {
        let first = self.look();
        std::thread::sleep(BETWEEN_LOOKS);
        first == self.look() && first.is_some_and(|(state, _)| state == 'S')
    }

    /// Returns the state of the thread, and how often it has gone to sleep.
    fn look(self) -> Option<(char, u64)> {
        let Self { process, thread } = self;
        let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).expect("a field of every thread")
        };
        let sleeps = field("voluntary_ctxt_switches:").parse().expect("a number");
        Some((field("State:").chars().next().expect("a state"), sleeps))
    }
}

/// Waits until all other threads of this process sleep.
///
/// # Panics
/// Panics if one of them does not sleep within [`LIMIT`].
pub fn until_others_sleep() {
    let deadline = Instant::now() + LIMIT;
    let own = Task::current();
    let sleeps = |thread| {
        let task = Task { thread, ..own };
        thread == own.thread || task.sleeps() || task.has_ended()
    };
    let threads = || {
        let entries = fs::read_dir("/proc/self/task").expect("a folder").flatten();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("a number");
        entries.map(name).map(|name| name.parse().expect("a number")).collect::<Vec<i32>>()
    };
    while !threads().into_iter().all(sleeps) {
        assert!(Instant::now() < deadline, "expected threads that sleep within {LIMIT:?}");
    }
}
