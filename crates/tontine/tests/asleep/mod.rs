//! Processes whose threads all sleep, as `/proc` shows them: [`until_asleep`].
//!
//! A test that needs a call to be blocked waits until its process sleeps, instead of a time that
//! may be too short on a busy machine. All threads must sleep, because a call also sleeps while a
//! thread of the library works for it.

#![allow(dead_code, unreachable_pub, reason = "a module of each test, which uses a part of it")]

use std::fs;
use std::time::{Duration, Instant};

/// Maximum wait for a process that sleeps.
const LIMIT: Duration = Duration::from_secs(60);

/// Interval between two looks at a process. A process that sleeps all the time in between is
/// blocked.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// A thread: its number, its state, and how often it has gone to sleep.
#[derive(Debug, PartialEq)]
struct Thread(i32, char, u64);

/// Waits until all threads of a process sleep in the kernel, except the calling thread.
///
/// # Panics
/// Panics if the process ends, or does not sleep within [`LIMIT`].
pub fn until_asleep(process: i32) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let first = threads(process);
        let has_ended = || first.iter().all(|thread| matches!(thread.1, 'Z' | 'X'));
        let is_asleep = || first.iter().all(|thread| matches!(thread.1, 'S' | 'Z'));
        assert!(!has_ended(), "expected a process that sleeps, found its end");
        std::thread::sleep(BETWEEN_LOOKS);
        if is_asleep() && threads(process) == first {
            return;
        }
        assert!(Instant::now() < deadline, "expected a process that sleeps, found {first:?}");
    }
}

/// Waits until all other threads of this process sleep.
///
/// # Panics
/// Panics if one of them does not sleep within [`LIMIT`].
pub fn until_others_sleep() {
    until_asleep(std::process::id().cast_signed());
}

/// Returns `true` if the main thread of a process has ended. It remains as a zombie while the
/// process has other threads.
pub fn has_main_thread_ended(process: i32) -> bool {
    look(process, process).is_none_or(|thread| matches!(thread.1, 'Z' | 'X'))
}

/// Returns the threads of a process, except the calling thread.
fn threads(process: i32) -> Vec<Thread> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let caller = fs::read_link("/proc/thread-self").expect("the calling thread");
    let caller = caller.file_name().expect("its number").to_owned();
    let names = entries.flatten().map(|entry| entry.file_name());
    let numbers = names.filter(|name| *name != caller).map(|name| {
        let name = name.into_string().expect("a number");
        name.parse().expect("a number")
    });
    numbers.filter_map(|number| look(process, number)).collect()
}

fn look(process: i32, thread: i32) -> Option<Thread> {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).expect("a field of every thread")
    };
    let sleeps = field("voluntary_ctxt_switches:").parse().expect("a number");
    Some(Thread(thread, field("State:").chars().next().expect("a state"), sleeps))
}
