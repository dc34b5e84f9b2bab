//! Runs of programs on the real kernel that leave no process behind: [`keep`].

#![allow(clippy::disallowed_types, reason = "the real kernel uses real time")]

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tontine_unix::{
    Children, Disposition, Errno, Linux, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys,
    WaitOptions, WaitStatus,
};

/// Maximum run time of a program, even on a busy machine; a program that exceeds it counts as
/// endless.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Status, which is not an errno, of a program that did not exit by itself.
const NO_STATUS: i32 = 255;

/// Runs `program` in a forked process and returns its exit status, or `None` if it panicked, was
/// killed or took too long.
///
/// The program's parent, the keeper, is forked too. It leads the session of both, inherits the
/// processes that the program leaves behind, and finally kills and reaps them. Therefore no process
/// is left, however the program ends and whether or not it is reaped.
pub(crate) fn keep(program: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Option<i32> {
    let linux: &dyn Sys = &Linux::new().expect("pidfds and clone3");
    let keeper = linux.fork(move |linux| {
        linux.setsid().expect("the caller leads no group");
        linux.set_subreaper(true).expect("always permitted");
        as_after_login(linux);
        let program = linux.fork(|sys| loudly(|| program(sys))).expect("within the limits");
        let end = await_end(linux, program);
        reap_all(linux);
        end.and_then(WaitStatus::exited).unwrap_or(NO_STATUS)
    });
    let waited = linux.waitpid(keeper.expect("within the limits").into(), WaitOptions::empty());
    let end = waited.expect("a child of the caller").expect("the wait blocks").status;
    end.exited().filter(|status| *status != NO_STATUS)
}

/// Resets signals that the environment left ignored or blocked. For example, nohup(1) leaves SIGHUP
/// ignored, so a hang-up would have no effect.
fn as_after_login(linux: &dyn Sys) {
    for signal in Signal::all() {
        let action = linux.sigaction(signal, None).expect("every signal has an action");
        if action.disposition == Disposition::Ignore {
            linux.sigaction(signal, Some(SigAction::DEFAULT)).expect("not SIGKILL");
        }
    }
    linux.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY))).expect("a mask");
}

/// Runs a program. If the program panics, prints the reason directly to standard error, because
/// captured test output is lost when this process ends.
fn loudly(program: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let _ = std::io::stderr().write_all(format!("on Linux: {text}\n").as_bytes());
        NO_STATUS
    })
}

/// Returns the status of an ended program, or `None` if the program does not end in time.
fn await_end(linux: &dyn Sys, program: Pid) -> Option<WaitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        let looked = linux.waitpid(program.into(), WaitOptions::NOHANG);
        if let Some(waited) = looked.expect("a child of the caller") {
            return Some(waited.status);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    None
}

/// Kills and reaps all children, including inherited ones, until none is left.
fn reap_all(linux: &dyn Sys) {
    let look = WaitOptions::EXITED | WaitOptions::NOHANG;
    while linux.waitid(Children::Any, look) != Err(Errno::ECHILD) {
        for child in children_of(linux.getpid().number()) {
            // No other process reaps the child, so the number still belongs to it.
            let _ = linux.kill(Pid::number_only(child).into(), Some(Signal::KILL));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Returns the children of a process according to /proc.
fn children_of(parent: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| parent_of(*number) == Some(parent)).collect()
}

/// Returns the parent of a process according to /proc.
pub(crate) fn parent_of(number: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name, in brackets, precedes the parent and may contain any characters.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
