//! The systems on which a rule runs, and helpers that its tests share.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tontine_unix::{
    Children, Errno, Fd, Pid, SigAction, SigSet, Signal, Sys, WaitOptions, WaitStatus,
};
use tontine_unix_sim::{Builder, Executor, LockingMode};

pub(crate) use crate::children::{
    Gate, SELF, change, end, ignore, leader, rest, sleep_on, sleeper,
};
use crate::keeper::keep;
pub(crate) use crate::systems::CAT;
use crate::systems::{assert_held, is_included, of, with_cat};

const SEEDS: [u64; 4] = [1, 7, 42, 1991];

/// Runs `program` in every mode, simulated with several seeds and on real processors, on the
/// systems that [`is_included`] admits. A failure names the combination.
pub(crate) fn everywhere(program: impl Fn(&dyn Sys) + Clone + Send + Sync + 'static) {
    with(|builder| builder, |_| {}, program);
}

/// Like [`everywhere`], on systems that `shape` changes, while `concurrent` runs outside the
/// system.
pub(crate) fn with(
    shape: impl Fn(Builder) -> Builder,
    concurrent: impl Fn(&str) + Sync,
    program: impl Fn(&dyn Sys) + Clone + Send + Sync + 'static,
) {
    let simulated = SEEDS.map(|seed| Executor::Simulated { seed });
    for mode in LockingMode::ALL {
        let executors = simulated.into_iter().chain([Executor::Parallel]);
        for executor in executors.filter(|executor| is_included(mode, *executor)) {
            let place = format!("mode {mode}, {executor:?}");
            let builder = with_cat(of(mode, executor).pids(1000));
            let unix = shape(builder).build().expect("a system");
            let program = program.clone();
            let result = catch_unwind(AssertUnwindSafe(|| {
                std::thread::scope(|scope| {
                    scope.spawn(|| concurrent(&place));
                    unix.run(move |sys| {
                        program(sys);
                        0
                    })
                })
            }));
            let Ok(report) = result else { panic!("{place}: the system panicked") };
            assert_held(&place, &report);
        }
    }
}

/// Like [`everywhere`], and also runs `program` in a forked process on Linux.
pub(crate) fn everywhere_and_on_linux(program: impl Fn(&dyn Sys) + Clone + Send + Sync + 'static) {
    on_linux(program.clone());
    everywhere(program);
}

/// Runs `program` in a forked process on Linux.
pub(crate) fn on_linux(program: impl Fn(&dyn Sys) + Send + 'static) {
    let status = keep(move |sys| {
        program(sys);
        0
    });
    assert_eq!(status, Some(0), "on Linux");
}

/// Waits until a process that the caller will inherit has ended, and returns its status.
pub(crate) fn inherited_end(sys: &dyn Sys, child: Pid) -> WaitStatus {
    while sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT) == Err(Errno::ECHILD)
    {
        rest(sys);
    }
    end(sys, child)
}

/// Returns a change of the child's status if one has already happened.
pub(crate) fn news(sys: &dyn Sys, child: Pid) -> Option<WaitStatus> {
    let options = WaitOptions::EXITED | WaitOptions::STOPPED | WaitOptions::CONTINUED;
    let found = sys.waitid(Children::One(child), options | WaitOptions::NOHANG);
    found.expect("a child").map(|waited| waited.status)
}

/// Sends a child a signal repeatedly until the child ends. One signal is not enough, because it has
/// no effect if it arrives before the call that it should interrupt.
pub(crate) fn pester(sys: &dyn Sys, child: Pid, signal: Signal) -> WaitStatus {
    loop {
        sys.kill(child.into(), Some(signal)).unwrap();
        rest(sys);
        if let Some(status) = news(sys, child) {
            return status;
        }
    }
}

/// Returns a child that runs `body` and exits with status 0.
pub(crate) fn fork(sys: &dyn Sys, body: impl FnOnce(&dyn Sys) + Send + 'static) -> Pid {
    let child = sys.fork(move |sys| {
        body(sys);
        0
    });
    child.expect("fork")
}

/// Kills a child and waits for it.
pub(crate) fn kill(sys: &dyn Sys, child: Pid) {
    sys.kill(child.into(), Some(Signal::KILL)).unwrap();
    assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::KILL, false));
}

/// Stops a child and waits until it has stopped.
pub(crate) fn stop(sys: &dyn Sys, child: Pid) {
    sys.kill(child.into(), Some(Signal::STOP)).unwrap();
    assert_eq!(change(sys, child), WaitStatus::Stopped(Signal::STOP));
}

/// Writes a byte, the signal's number, for each signal of `set` that arrives.
pub(crate) fn report(sys: &dyn Sys, to: Gate, set: SigSet) {
    for signal in set.iter() {
        let action = SigAction::handler(move |sys, info| {
            let _ = sys.write(to.1, &[info.signal.number() as u8]);
        });
        sys.sigaction(signal, Some(action)).unwrap();
    }
}

/// Returns the next reported signal.
pub(crate) fn reported(sys: &dyn Sys, from: Gate) -> Signal {
    let mut byte = [0];
    assert_eq!(sys.read(from.0, &mut byte), Ok(1));
    Signal::new(byte[0].into()).expect("a signal")
}

/// Runs `body` in a child that leads a session with its own terminal; passes both ends, the
/// controlling end first.
pub(crate) fn with_terminal(sys: &dyn Sys, body: impl FnOnce(&dyn Sys, Fd, Fd) + Send + 'static) {
    let leader = fork(sys, move |sys| {
        sys.setsid().unwrap();
        let (controlling, terminal) = sys.openpty().unwrap();
        sys.set_controlling(terminal).unwrap();
        body(sys, controlling, terminal);
        // The end of the session sends SIGHUP to its foreground group, which may be the group of
        // this process.
        ignore(sys, Signal::HUP);
    });
    assert_eq!(end(sys, leader), WaitStatus::Exited(0), "the session leader");
}

/// Returns a sleeper that leads its own group, in the foreground.
pub(crate) fn foreground_sleeper(sys: &dyn Sys, terminal: Fd) -> Pid {
    ignore(sys, Signal::TTOU);
    let child = leader(sys);
    sys.tcsetpgrp(terminal, child).unwrap();
    assert_eq!(sys.tcgetpgrp(terminal), Ok(child));
    child
}
