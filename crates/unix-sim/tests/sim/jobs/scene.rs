//! Where a rule is played, and what tests do again and again there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tontine_unix::{
    Children, Errno, Fd, Pid, SigAction, SigSet, Signal, SpawnRequest, Sys, WaitOptions, WaitStatus,
};
use tontine_unix_sim::{Builder, Executor, LockingMode};

pub(crate) use crate::children::{SELF, change, end, ignore, leader, sleep_on, sleeper};
use crate::keeper::keep;
pub(crate) use crate::systems::CAT;
use crate::systems::{assert_held, of, with_cat};

/// Nobody.
pub(crate) const NOBODY: Pid = Pid::number_only(4_000_000);
const SEEDS: [u64; 4] = [1, 7, 42, 1991];

/// Runs `program` in every mode, simulated with several seeds and on real processors; says in which
/// combination it failed.
pub(crate) fn everywhere(program: impl Fn(&dyn Sys) + Clone + Send + Sync + 'static) {
    with(|builder| builder, |_| {}, program);
}

/// As [`everywhere`], on systems that `shape` changes; `beside` plays outside while one runs.
pub(crate) fn with(
    shape: impl Fn(Builder) -> Builder,
    beside: impl Fn(&str) + Sync,
    program: impl Fn(&dyn Sys) + Clone + Send + Sync + 'static,
) {
    let simulated = SEEDS.map(|seed| Executor::Simulated { seed });
    for mode in LockingMode::ALL {
        for executor in simulated.into_iter().chain([Executor::Parallel]) {
            let place = format!("mode {mode}, {executor:?}");
            let builder = with_cat(of(mode, executor).pids(1000));
            let unix = shape(builder).build().expect("a system");
            let program = program.clone();
            let played = catch_unwind(AssertUnwindSafe(|| {
                std::thread::scope(|scope| {
                    scope.spawn(|| beside(&place));
                    unix.run(move |sys| {
                        program(sys);
                        0
                    })
                })
            }));
            let Ok(report) = played else { panic!("{place}: the system broke") };
            assert_held(&place, &report);
        }
    }
}

/// As [`everywhere`], and in a forked process on Linux.
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

/// [`CAT`], and the pipe that ends it when it is closed.
pub(crate) fn spawn_cat(sys: &dyn Sys, change: impl FnOnce(&mut SpawnRequest)) -> (Pid, Fd) {
    let (from, to) = sys.pipe().unwrap();
    let mut spawn = SpawnRequest::new(CAT, &["cat"]);
    spawn.descriptors = vec![(from, Fd::STDIN)];
    change(&mut spawn);
    let child = sys.spawn(&spawn).expect("spawn");
    sys.close(from).unwrap();
    (child, to)
}

/// How somebody ends whom the caller inherits.
pub(crate) fn inherited_end(sys: &dyn Sys, child: Pid) -> WaitStatus {
    while sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT) == Err(Errno::ECHILD)
    {
        rest(sys);
    }
    end(sys, child)
}

/// A change of it that has happened already.
pub(crate) fn news(sys: &dyn Sys, child: Pid) -> Option<WaitStatus> {
    let options = WaitOptions::EXITED | WaitOptions::STOPPED | WaitOptions::CONTINUED;
    let found = sys.waitid(Children::One(child), options | WaitOptions::NOHANG);
    found.expect("a child").map(|waited| waited.status)
}

/// Signals a child again and again until it ends: one that comes before the call that it is to
/// interrupt is not the last.
pub(crate) fn pester(sys: &dyn Sys, child: Pid, signal: Signal) -> WaitStatus {
    loop {
        sys.kill(child.into(), Some(signal)).unwrap();
        rest(sys);
        if let Some(status) = news(sys, child) {
            return status;
        }
    }
}

/// A child that does `body`, and then nothing until a signal ends it.
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

/// Stops a child, and sees that it has stopped.
pub(crate) fn stop(sys: &dyn Sys, child: Pid) {
    sys.kill(child.into(), Some(Signal::STOP)).unwrap();
    assert_eq!(change(sys, child), WaitStatus::Stopped(Signal::STOP));
}

/// Sleeps a moment: simulated, until all others sleep; elsewhere they had time to.
pub(crate) fn rest(sys: &dyn Sys) {
    let _ = sys.nanosleep(Duration::from_millis(3));
}

/// One byte from one process to another.
#[derive(Clone, Copy)]
pub(crate) struct Gate(Fd, Fd);

impl Gate {
    pub(crate) fn new(sys: &dyn Sys) -> Self {
        let (from, to) = sys.pipe().unwrap();
        Self(from, to)
    }

    /// Lets one through that comes to [`Gate::pass`].
    pub(crate) fn open(self, sys: &dyn Sys) {
        assert_eq!(sys.write(self.1, b"."), Ok(1));
    }

    /// Sleeps until somebody opened it.
    pub(crate) fn pass(self, sys: &dyn Sys) {
        let mut byte = [0];
        loop {
            match sys.read(self.0, &mut byte) {
                Ok(read) => return assert_eq!(read, 1),
                Err(error) => assert_eq!(error, Errno::EINTR),
            }
        }
    }

    /// Returns `true` if no process has opened the gate. The caller's end that opens it is closed.
    pub(crate) fn is_shut(self, sys: &dyn Sys) -> bool {
        sys.close(self.1).unwrap();
        sys.read(self.0, &mut [0]) == Ok(0)
    }

    /// Tells a number.
    pub(crate) fn tell(self, sys: &dyn Sys, number: i32) {
        assert_eq!(sys.write(self.1, &number.to_ne_bytes()), Ok(4));
    }

    /// Sleeps until one was told.
    pub(crate) fn ask(self, sys: &dyn Sys) -> i32 {
        let mut bytes = [0; 4];
        assert_eq!(sys.read(self.0, &mut bytes), Ok(4));
        i32::from_ne_bytes(bytes)
    }

    /// Sleeps until a process was told of, by its number.
    pub(crate) fn ask_pid(self, sys: &dyn Sys) -> Pid {
        Pid::number_only(self.ask(sys))
    }
}

/// Writes a byte, the signal's number, for each signal of `set` that comes.
pub(crate) fn report(sys: &dyn Sys, to: Gate, set: SigSet) {
    for signal in set.iter() {
        let action = SigAction::handler(move |sys, info| {
            let _ = sys.write(to.1, &[info.signal.number() as u8]);
        });
        sys.sigaction(signal, Some(action)).unwrap();
    }
}

/// The next signal that was reported.
pub(crate) fn reported(sys: &dyn Sys, from: Gate) -> Signal {
    let mut byte = [0];
    assert_eq!(sys.read(from.0, &mut byte), Ok(1));
    Signal::new(byte[0].into()).expect("a signal")
}

/// Plays `body` in a child that leads a session with a terminal of its own; it gets both ends, the
/// controlling one first.
pub(crate) fn with_terminal(sys: &dyn Sys, body: impl FnOnce(&dyn Sys, Fd, Fd) + Send + 'static) {
    let leader = fork(sys, move |sys| {
        sys.setsid().unwrap();
        let (controlling, terminal) = sys.openpty().unwrap();
        sys.set_controlling(terminal).unwrap();
        body(sys, controlling, terminal);
        // The end of the session hangs up its foreground group, which may be this process's.
        ignore(sys, Signal::HUP);
    });
    assert_eq!(end(sys, leader), WaitStatus::Exited(0), "the session's leader");
}

/// A sleeper that leads a group of its own, in the foreground.
pub(crate) fn foreground_sleeper(sys: &dyn Sys, terminal: Fd) -> Pid {
    ignore(sys, Signal::TTOU);
    let child = leader(sys);
    sys.tcsetpgrp(terminal, child).unwrap();
    assert_eq!(sys.tcgetpgrp(terminal), Ok(child));
    child
}
