//! Deadlocks and stopped runs: their detection and the printed state.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{SigSet, SigmaskHow, Signal, SignalTarget, Sys};
use tontine_unix_sim::{Builder, EndReason, Executor, LockingMode, SystemState};

use crate::extent;
use crate::systems::{everywhere, of, run};

/// Starts threads that sleep without end, each in a different call.
fn all_asleep(sys: &dyn Sys) -> i32 {
    let (reader, _writer) = sys.pipe().expect("within the limits");
    sys.thread(move |sys| {
        let _ = sys.read(reader, &mut [0]);
    })
    .expect("within the limits");
    sys.thread(|sys| {
        let _ = sys.sigtimedwait(SigSet::of(&[Signal::USR2]), None);
    })
    .expect("within the limits");
    let joined = sys.thread(|sys| {
        let _ = sys.sigsuspend(SigSet::of(&[Signal::TERM]));
    });
    let joined = joined.expect("within the limits");
    sys.thread(move |sys| {
        let _ = sys.join(joined);
    })
    .expect("within the limits");
    let child = sys.fork(|sys| {
        sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::INT])))).expect("permitted");
        sys.pause();
        0
    });
    let child = child.expect("within the limits");
    let _ = sys.waitpid(child.into(), Default::default());
    0
}

#[test]
fn deadlock_report_names_each_sleeping_call() {
    for (on, system) in everywhere() {
        let report = run(system, all_asleep);
        assert_eq!((report.ending, report.status), (EndReason::Deadlocked, None), "{on}");
        let state = report.state.expect("the run has not ended").to_string();
        for line in [
            "sleeps in read for pipe 5\n",
            " written by itself, 7 (program)\n",
            "sleeps in sigtimedwait for {SIGUSR2}",
            "sleeps in sigsuspend",
            "sleeps in join for thread 5",
            "sleeps in wait for child 7 (program)",
            "sleeps in pause, blocked {SIGINT}",
        ] {
            assert!(state.contains(line), "{on}: no line with `{line}`:\n{state}");
        }
    }
}

/// Runs a reader that has not closed its copy of the write end, and a writer whose pipe is full
/// because the reader sleeps.
fn forgotten_ends(sys: &dyn Sys) -> i32 {
    let (reader, writer) = sys.pipe().expect("within the limits");
    let forgets = sys.fork(move |sys| {
        SystemState::name_caller("forgets");
        sys.read(reader, &mut [0]).map_or(1, |_| 0)
    });
    let forgets = forgets.expect("within the limits");
    sys.close(writer).expect("an open descriptor");
    let fills = sys.fork(|sys| {
        SystemState::name_caller("fills");
        let (_, writer) = sys.pipe().expect("within the limits");
        sys.fork(move |sys| {
            SystemState::name_caller("idle");
            sys.close(writer).expect("an open descriptor");
            sys.pause();
            0
        })
        .expect("within the limits");
        loop {
            let _ = sys.write(writer, &[0; 4096]);
        }
    });
    fills.expect("within the limits");
    sys.waitpid(forgets.into(), Default::default()).map_or(1, |_| 0)
}

#[test]
fn deadlock_report_names_owners_of_the_other_pipe_end() {
    for (on, system) in everywhere() {
        let report = run(system, forgotten_ends);
        assert_eq!(report.ending, EndReason::Deadlocked, "{on}");
        let state = report.state.expect("the run has not ended").to_string();
        let lines: Vec<&str> = state.lines().map(str::trim).collect();
        let said = |call: &str, owners: &str| {
            lines.windows(2).any(|two| two[0].contains(call) && two[1] == owners)
        };
        assert!(said("sleeps in read for pipe ", "written by itself alone"), "{on}:\n{state}");
        let idle = lines
            .iter()
            .find(|line| line.ends_with(" idle"))
            .expect("the line of the idle process");
        let idle = idle.split_whitespace().next().expect("a number");
        let readers = format!("read by itself, {idle} (idle)");
        assert!(said("sleeps in write for pipe ", &readers), "{on}:\n{state}");
    }
}

#[test]
fn threads_joining_each_other_deadlock() {
    for (on, system) in everywhere() {
        let report = run(system, |sys| {
            let me = sys.gettid();
            let other = sys
                .thread(move |sys| {
                    let _ = sys.join(me);
                })
                .expect("within the limits");
            let _ = sys.join(other);
            0
        });
        assert_eq!(report.ending, EndReason::Deadlocked, "{on}");
        let state = report.state.expect("the run has not ended").to_string();
        assert!(state.contains("join for thread 2"), "{on}:\n{state}");
        assert!(state.contains("join for thread 3"), "{on}:\n{state}");
    }
}

#[test]
fn run_stopped_at_any_step_reports_its_state() {
    for &mode in extent::modes() {
        for step in 1..200 {
            let count = Arc::new(AtomicI32::new(0));
            let counts = count.clone();
            let system = of(mode, Executor::Simulated { seed: step });
            let report = run(system.stop_at(step), move |sys| {
                loop {
                    let child = sys.fork(|_| 0).expect("within the limits");
                    sys.waitpid(child.into(), Default::default()).expect("a child of the caller");
                    counts.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(report.ending, EndReason::Stopped, "{mode}, step {step}");
            assert_eq!(report.steps, step, "{mode}");
            let state = report.state.expect("the run has not ended").to_string();
            assert!(state.contains("program"), "{mode}, step {step}:\n{state}");
        }
    }
}

#[test]
fn system_state_names_the_held_locks() {
    let noted: [fn(Builder) -> Builder; 2] = [|b| b.statistics(true), |b| b.keep_locks(true)];
    for noted in noted {
        locks_are_said(noted);
    }
    if cfg!(debug_assertions) {
        locks_are_said(|builder| builder);
    }
}

fn locks_are_said(noted: fn(Builder) -> Builder) {
    let mut held = 0;
    for step in 1..200 {
        let system = noted(of(LockingMode::Parallel, Executor::Simulated { seed: 1 }));
        let report = run(system.stop_at(step), |sys| {
            loop {
                let _ = sys.kill(SignalTarget::OwnGroup, None);
            }
        });
        let state = report.state.expect("the run has not ended").to_string();
        held += i32::from(state.contains(", has pg_lock "));
    }
    assert!(held > 10, "{held} of 199 states show a lock");
}
