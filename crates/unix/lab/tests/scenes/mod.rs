//! The known races as small programs, for tests and examples that explore all their schedules:
//! [`KNOWN`], described in docs/internals/races.md. [`lost`] returns lost wake-ups and similar
//! mistakes of programs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tontine_unix::{
    Children, Errno, Pid, SigAction, SigSet, SigmaskHow, Signal, SignalTarget, Sys, WaitOptions,
    WaitStatus,
};
use tontine_unix_lab::explore::Exploration;
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::{Builder, LockingMode};

/// A race. The patches that `cargo xtask mutants` applies contain the code that protects against
/// the race, and name the modes that need this code.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// Returns 0 if the endangered invariant holds.
    program: fn(&dyn Sys) -> i32,
    with: fn(Builder) -> Builder,
}

const OWN: Pid = Pid::number_only(0);

impl Known {
    /// Returns the exploration of its schedules.
    pub(crate) fn exploration(&self, mode: LockingMode) -> Exploration {
        let program = self.program;
        Exploration::new(move || program).mode(mode).configure(self.with)
    }
}

/// All known races.
pub(crate) const KNOWN: [Known; 9] = [
    known("wait against exit", wait_against_exit),
    known("two waiters", two_waiters),
    known("killpg against fork", killpg_against_fork),
    known("killpg against setpgid", killpg_against_setpgid),
    known("killpg against exit", killpg_against_exit),
    Known {
        with: |builder| builder.program("counts", |sys, _| counts(sys)),
        ..known("exec against fork by another thread", exec_against_fork)
    },
    known("parent and child both call setpgid", two_setpgid),
    known("SIGCHLD coalesces", children_coalesce),
    known("signal against sigsuspend", signal_against_sigsuspend),
];

const fn known(name: &'static str, program: fn(&dyn Sys) -> i32) -> Known {
    Known { name, program, with: |builder| builder }
}

/// Returns the scenarios in `lost`, each with a mistake: a signal that arrives between a check and
/// the call that follows it is lost. Scenarios whose names end with `-cured` are corrected
/// versions.
pub(crate) fn lost() -> Vec<(String, Scenario)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenes/lost");
    let files = fs::read_dir(folder).expect("the folder exists");
    let mut scenarios: Vec<(String, Scenario)> = files
        .map(|file| {
            let path = file.expect("a readable entry").path();
            let name =
                path.file_stem().expect("the file has a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a readable scenario");
            let scenario = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, scenario)
        })
        .collect();
    scenarios.sort_by(|(one, _), (next, _)| one.cmp(next));
    scenarios
}

fn pauses(sys: &dyn Sys) -> i32 {
    sys.pause();
    0
}

/// Waits for a child, and returns its status.
fn end_of(sys: &dyn Sys, child: Pid) -> WaitStatus {
    let waited = sys.waitpid(child.into(), WaitOptions::empty());
    waited.expect("a child of the caller").expect("the wait blocks").status
}

fn wait_against_exit(sys: &dyn Sys) -> i32 {
    let child = sys.fork(|_| 3).expect("within the limits");
    let waited = sys.wait().expect("a child exists");
    i32::from(waited.pid != child || waited.status.exited() != Some(3))
}

fn two_waiters(sys: &dyn Sys) -> i32 {
    sys.fork(|_| 7).expect("within the limits");
    let won = Arc::new(AtomicI32::new(0));
    let wins = won.clone();
    let waits = move |sys: &dyn Sys| {
        if sys.wait().is_ok() {
            wins.fetch_add(1, Ordering::Relaxed);
        }
    };
    let other = sys.thread(waits.clone()).expect("within the limits");
    waits(sys);
    sys.join(other).expect("a thread of the caller");
    i32::from(won.load(Ordering::Relaxed) != 1)
}

/// A child that is forked while its group is signalled dies of the signal, or is never created.
fn killpg_against_fork(sys: &dyn Sys) -> i32 {
    sys.set_subreaper(true).expect("permitted");
    let forker = sys.fork(|sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        let _ = sys.fork(pauses);
        pauses(sys)
    });
    let forker = forker.expect("within the limits");
    while sys.kill(SignalTarget::Group(forker), Some(Signal::TERM)) == Err(Errno::ESRCH) {
        sys.sched_yield();
    }
    loop {
        match sys.wait() {
            Ok(waited) if waited.status.signaled() == Some(Signal::TERM) => {}
            Ok(_) => return 1,
            Err(errno) => return i32::from(errno != Errno::ECHILD),
        }
    }
}

fn killpg_against_setpgid(sys: &dyn Sys) -> i32 {
    let term = SigSet::of(&[Signal::TERM]);
    sys.sigprocmask(Some((SigmaskHow::Block, term))).expect("permitted");
    let sent = Arc::new(AtomicBool::new(false));
    let seen = sent.clone();
    let mover = sys.fork(move |sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        let before = sys.sigpending().contains(Signal::TERM);
        while !seen.load(Ordering::Relaxed) {
            sys.sched_yield();
        }
        let after = sys.sigpending().contains(Signal::TERM);
        i32::from(after && !before)
    });
    sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM)).expect("the caller exists");
    sent.store(true, Ordering::Relaxed);
    end_of(sys, mover.expect("within the limits")).exited().unwrap_or(1)
}

/// A group is signalled while its only member ends and is reaped. The signal does not reach the
/// next process that uses the member's slot.
fn killpg_against_exit(sys: &dyn Sys) -> i32 {
    let victim = sys.fork(|sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        0
    });
    let victim = victim.expect("within the limits");
    let _ = sys.setpgid(victim, victim);
    let kills = move |sys: &dyn Sys| {
        let _ = sys.kill(SignalTarget::Group(victim), Some(Signal::TERM));
        0
    };
    let killer = sys.fork(kills).expect("within the limits");
    let _ = sys.waitpid(victim.into(), Default::default());
    let stranger = sys.fork(|_| 0).expect("within the limits");
    let status = end_of(sys, stranger);
    sys.waitpid(killer.into(), Default::default()).expect("a child of the caller");
    i32::from(status.exited() != Some(0))
}

fn exec_against_fork(sys: &dyn Sys) -> i32 {
    let process = sys.fork(|sys| {
        let forks = |sys: &dyn Sys| {
            let _ = sys.fork(|_| 0);
        };
        sys.thread(forks).expect("within the limits");
        match sys.exec("counts", &[]) {
            Err(_) => 2,
            Ok(never) => match never {},
        }
    });
    end_of(sys, process.expect("within the limits")).exited().unwrap_or(3)
}

/// Returns 1 if a program that finds no child finds one later.
fn counts(sys: &dyn Sys) -> i32 {
    let none = || sys.waitpid(Children::Any, WaitOptions::NOHANG) == Err(Errno::ECHILD);
    if !none() {
        return 0;
    }
    (0..2).for_each(|_| sys.sched_yield());
    i32::from(!none())
}

fn two_setpgid(sys: &dyn Sys) -> i32 {
    let child = sys.fork(|sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        pauses(sys)
    });
    let child = child.expect("within the limits");
    sys.setpgid(child, child).expect("a child of the caller");
    sys.kill(SignalTarget::Group(child), Some(Signal::TERM)).expect("the target exists");
    let status = end_of(sys, child);
    i32::from(status.signaled() != Some(Signal::TERM))
}

fn children_coalesce(sys: &dyn Sys) -> i32 {
    let blocked = SigSet::of(&[Signal::CHLD]);
    sys.sigprocmask(Some((SigmaskHow::Block, blocked))).expect("permitted");
    sys.sigaction(Signal::CHLD, Some(SigAction::handler(|_, _| {}))).expect("permitted");
    for _ in 0..2 {
        sys.fork(|_| 0).expect("within the limits");
    }
    let mut left = 2;
    while left > 0 {
        sys.sigsuspend(SigSet::EMPTY);
        while let Ok(Some(_)) = sys.waitpid(Children::Any, WaitOptions::NOHANG) {
            left -= 1;
        }
    }
    i32::from(sys.wait() != Err(Errno::ECHILD))
}

fn signal_against_sigsuspend(sys: &dyn Sys) -> i32 {
    let user = SigSet::of(&[Signal::USR1]);
    sys.sigprocmask(Some((SigmaskHow::Block, user))).expect("permitted");
    sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).expect("permitted");
    let me = sys.getpid();
    let child = sys.fork(move |sys| i32::from(sys.kill(me.into(), Some(Signal::USR1)).is_err()));
    sys.sigsuspend(SigSet::EMPTY);
    let unchanged = sys.sigprocmask(None) == Ok(user);
    let waited = sys.waitpid(child.expect("within the limits").into(), Default::default());
    i32::from(!unchanged || waited.is_err())
}
