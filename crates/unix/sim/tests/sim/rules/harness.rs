//! The functions that run rules, [`everywhere`] and its variants, and helpers of the rules, such as
//! [`Log`].

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::time::Duration;

pub(crate) use tontine_unix::*;
pub(crate) use tontine_unix_sim::*;

pub(crate) use crate::children::{Gate, end_of, forked, leader, rest, sleep_on, threaded};
use crate::keeper::keep;
use crate::systems::{assert_held, is_included, of, run};

/// Name of the environment variable that makes a test run its rule on Linux only.
const ON_LINUX: &str = "TONTINE_RULE_ON_LINUX";
const EXECUTORS: [Executor; 4] = [
    Executor::Simulated { seed: 1 },
    Executor::Simulated { seed: 2 },
    Executor::Simulated { seed: 99 },
    Executor::Parallel,
];

/// A rule that held on each included system.
pub(crate) struct Held<F>(Arc<F>);

/// Runs a rule in every mode, simulated and parallel, on the systems that [`is_included`] admits.
pub(crate) fn everywhere<F: Fn(&dyn Sys) + Send + Sync + 'static>(rule: F) -> Held<F> {
    everywhere_with(|builder| builder, rule)
}

/// Runs a rule in every mode, simulated and parallel, on systems changed by `change`.
pub(crate) fn everywhere_with<F: Fn(&dyn Sys) + Send + Sync + 'static>(
    change: impl Fn(Builder) -> Builder,
    rule: F,
) -> Held<F> {
    on(&LockingMode::ALL, &EXECUTORS, &change, Arc::new(rule))
}

/// Runs a rule that takes much processor time in every mode, simulated only.
pub(crate) fn simulated<F: Fn(&dyn Sys) + Send + Sync + 'static>(rule: F) -> Held<F> {
    let (simulated, _) = EXECUTORS.split_at(EXECUTORS.len() - 1);
    on(&LockingMode::ALL, simulated, &|builder| builder, Arc::new(rule))
}

/// Runs a rule that takes time: simulated in every mode, in virtual time, and on threads in
/// [`LockingMode::Parallel`], in real time.
pub(crate) fn timed<F: Fn(&dyn Sys) + Send + Sync + 'static>(rule: F) -> Held<F> {
    timed_with(|builder| builder, rule)
}

/// Runs a rule like [`timed`], on systems changed by `change`.
pub(crate) fn timed_with<F: Fn(&dyn Sys) + Send + Sync + 'static>(
    change: impl Fn(Builder) -> Builder,
    rule: F,
) -> Held<F> {
    let (simulated, parallel) = EXECUTORS.split_at(EXECUTORS.len() - 1);
    let Held(rule) = on(&LockingMode::ALL, simulated, &change, Arc::new(rule));
    on(&[LockingMode::Parallel], parallel, &change, rule)
}

/// Runs a rule that computes for seconds in real time only, once on processors.
pub(crate) fn in_real_time<F: Fn(&dyn Sys) + Send + Sync + 'static>(rule: F) -> Held<F> {
    on(&[LockingMode::Parallel], &[Executor::Parallel], &|builder| builder, Arc::new(rule))
}

fn on<F: Fn(&dyn Sys) + Send + Sync + 'static>(
    modes: &[LockingMode],
    executors: &[Executor],
    change: &impl Fn(Builder) -> Builder,
    rule: Arc<F>,
) -> Held<F> {
    if std::env::var_os(ON_LINUX).is_some() {
        return Held(rule);
    }
    for &mode in modes {
        for &executor in executors.iter().filter(|executor| is_included(mode, **executor)) {
            let rule = Arc::clone(&rule);
            let report = run(change(of(mode, executor).pids(1000)), move |sys| {
                rule(sys);
                0
            });
            assert_held(&format!("mode {mode}, {executor:?}"), &report);
        }
    }
    Held(rule)
}

impl<F: Fn(&dyn Sys) + Send + Sync + 'static> Held<F> {
    /// Also runs the rule on Linux. Starts this test again, alone in a new process, whose child
    /// runs the rule in its own session.
    pub(crate) fn and_on_linux(self) {
        if std::env::var_os(ON_LINUX).is_some() {
            self.on_linux();
            return;
        }
        let closure = std::any::type_name::<F>();
        let path = closure.split_once("::").map_or(closure, |(_, path)| path);
        let test = path.trim_end_matches("::{{closure}}");
        let myself = std::env::current_exe().expect("the test has an executable");
        let output = Command::new(myself)
            .args([test, "--exact", "--include-ignored", "--test-threads=1", "--nocapture"])
            .env(ON_LINUX, "1")
            .stdin(Stdio::null())
            .output()
            .expect("the test can be started");
        let said = String::from_utf8_lossy(&output.stdout);
        let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 passed"), "the rule does not hold on Linux: {all}");
    }

    fn on_linux(self) {
        let rule = self.0;
        let status = keep(move |sys| {
            sys.setsid().expect("the child leads no group");
            rule(sys);
            0
        });
        assert_eq!(status, Some(0));
    }
}

/// A log of numbers that handlers and programs add, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Notes>);

#[derive(Default)]
struct Notes {
    /// Number of places that are taken.
    taken: AtomicUsize,
    /// [`NOTED`] with the number, or 0 if the thread that took the place has not stored it yet.
    notes: [AtomicU64; 32],
}

const NOTED: u64 = 1 << 32;

impl Log {
    /// Adds a number; may be called in a handler.
    pub(crate) fn note(&self, number: i32) {
        let at = self.0.taken.fetch_add(1, Ordering::Relaxed);
        self.0.notes[at].store(NOTED | u64::from(number as u32), Ordering::Relaxed);
    }

    /// Returns all logged numbers.
    pub(crate) fn all(&self) -> Vec<i32> {
        let notes = self.0.notes.iter().map(|note| note.load(Ordering::Relaxed));
        notes.take_while(|note| *note != 0).map(|note| note as u32 as i32).collect()
    }

    /// Returns the length of the log.
    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    /// Returns a handler that logs the number of its signal.
    pub(crate) fn signals(&self) -> SigAction {
        let log = self.clone();
        SigAction::handler(move |_, info| log.note(info.signal.number()))
    }

    /// Returns a handler that logs the information of its signal: code, pid, uid, value, status.
    pub(crate) fn infos(&self) -> SigAction {
        let log = self.clone();
        SigAction::handler(move |_, info| {
            for number in [code(info.code), info.pid, info.uid as i32, info.value, info.status] {
                log.note(number);
            }
        })
    }
}

/// Sets an alarm of one second whose handler sets it again, so that a call is interrupted even if
/// the first alarm expires before the call; returns the log of the alarms.
pub(crate) fn repeat_alarm(sys: &dyn Sys, change: impl Fn(SigAction) -> SigAction) -> Log {
    let log = Log::default();
    let noted = log.clone();
    let handler = SigAction::handler(move |sys, info| {
        noted.note(info.signal.number());
        sys.alarm(1);
    });
    act(sys, Signal::ALRM, change(handler));
    sys.alarm(1);
    log
}

/// Maps each code to a number for a [`Log`].
pub(crate) fn code(code: SigCode) -> i32 {
    match code {
        SigCode::User => 0,
        SigCode::Queue => -1,
        SigCode::Tkill => -6,
        SigCode::Kernel => 128,
        SigCode::Fault => 127,
        SigCode::Exited => 1,
        SigCode::Killed => 2,
        SigCode::Dumped => 3,
        SigCode::Trapped => 4,
        SigCode::Stopped => 5,
        SigCode::Continued => 6,
    }
}

/// Blocks signals.
pub(crate) fn block(sys: &dyn Sys, signals: &[Signal]) {
    sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(signals)))).unwrap();
}

/// Unblocks signals.
pub(crate) fn unblock(sys: &dyn Sys, signals: &[Signal]) {
    sys.sigprocmask(Some((SigmaskHow::Unblock, SigSet::of(signals)))).unwrap();
}

/// Installs an action.
pub(crate) fn act(sys: &dyn Sys, signal: Signal, action: SigAction) {
    sys.sigaction(signal, Some(action)).unwrap();
}

/// Sends a process a signal.
pub(crate) fn kill(sys: &dyn Sys, pid: Pid, signal: Signal) {
    sys.kill(pid.into(), Some(signal)).unwrap();
}

/// Waits for a change of a child and returns the status.
pub(crate) fn change_of(sys: &dyn Sys, child: Pid, options: WaitOptions) -> WaitStatus {
    sys.waitid(child.into(), options).unwrap().expect("the wait blocks").status
}

/// Runs `program` in a child and returns how the child ended.
pub(crate) fn end_as(
    sys: &dyn Sys,
    program: impl FnOnce(&dyn Sys) -> i32 + Send + 'static,
) -> WaitStatus {
    let child = forked(sys, program);
    end_of(sys, child)
}

/// Raises a signal whose handler raises it once more. Returns the beginnings and ends of the
/// handler's runs in order: 1 and −1 for the first run, 2 and −2 for the second.
pub(crate) fn raise_twice(sys: &dyn Sys, signal: Signal, flags: ActionFlags) -> Vec<i32> {
    let log = Log::default();
    let noted = log.clone();
    let handler = SigAction::handler(move |sys, _| {
        let nth = if noted.len() == 0 { 1 } else { 2 };
        noted.note(nth);
        if nth == 1 {
            sys.raise(signal).unwrap();
        }
        noted.note(-nth);
    });
    act(sys, signal, handler.with_flags(flags));
    sys.raise(signal).unwrap();
    log.all()
}

/// Yields until `holds` returns `true`.
pub(crate) fn until(sys: &dyn Sys, holds: impl Fn() -> bool) {
    while !holds() {
        sys.sched_yield();
    }
}
