//! A place on the real kernel from which nobody gets away: [`keep`].

#![allow(clippy::disallowed_types, reason = "the real kernel's time is the real one")]

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tontine_unix::{
    Children, Disposition, Errno, Linux, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys,
    WaitOptions, WaitStatus,
};

/// A player that takes longer than this will not end.
const PATIENCE: Duration = Duration::from_secs(30);
/// What stands for a player that did not end by itself; no errno.
const NO_STATUS: i32 = 255;

/// Runs `player` in a forked process, and says what it exited with; `None` if it panicked, was
/// killed or took too long.
///
/// Its parent, the keeper, is forked too. It leads the session that both are in, inherits whoever
/// the player leaves behind, and kills and reaps those in the end: however a player ends, and
/// whether somebody waits for it or not, no process is left.
pub(crate) fn keep(player: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Option<i32> {
    let linux: &dyn Sys = &Linux::new().expect("pidfds and clone3");
    let keeper = linux.fork(move |linux| {
        linux.setsid().expect("the caller leads no group");
        linux.set_subreaper(true).expect("nothing is refused");
        as_after_login(linux);
        let player = linux.fork(|sys| loudly(|| player(sys))).expect("within the limits");
        let end = await_end(linux, player);
        reap_all(linux);
        end.and_then(WaitStatus::exited).unwrap_or(NO_STATUS)
    });
    let waited = linux.waitpid(keeper.expect("within the limits").into(), WaitOptions::empty());
    let end = waited.expect("a child of the caller").expect("the wait blocks").status;
    end.exited().filter(|status| *status != NO_STATUS)
}

/// The tests may have been started with signals ignored or blocked: nohup(1) leaves SIGHUP ignored,
/// so that a hang-up would have no effect.
fn as_after_login(linux: &dyn Sys) {
    for signal in Signal::all() {
        let action = linux.sigaction(signal, None).expect("every signal has one");
        if action.disposition == Disposition::Ignore {
            linux.sigaction(signal, Some(SigAction::DEFAULT)).expect("it is not SIGKILL");
        }
    }
    linux.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY))).expect("a mask");
}

/// Runs a player, and says why it panicked past the capture of the test's output, which ends with
/// this process.
fn loudly(player: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(player)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let _ = std::io::stderr().write_all(format!("on Linux: {text}\n").as_bytes());
        NO_STATUS
    })
}

/// How a player ended, if it did.
fn await_end(linux: &dyn Sys, player: Pid) -> Option<WaitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let looked = linux.waitpid(player.into(), WaitOptions::NOHANG);
        if let Some(waited) = looked.expect("a child of the caller") {
            return Some(waited.status);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    None
}

/// Kills and reaps all children, those that were inherited too, until there are none.
fn reap_all(linux: &dyn Sys) {
    let look = WaitOptions::EXITED | WaitOptions::NOHANG;
    while linux.waitid(Children::Any, look) != Err(Errno::ECHILD) {
        for child in children_of(linux.getpid().number()) {
            // Nobody else reaps it: the number is still its own.
            let _ = linux.kill(Pid::number_only(child).into(), Some(Signal::KILL));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Whose parent /proc says this process is.
fn children_of(parent: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| parent_of(*number) == Some(parent)).collect()
}

/// The same of one process.
pub(crate) fn parent_of(number: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name before it, in brackets, may be anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
