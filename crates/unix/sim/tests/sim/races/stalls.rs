//! Deadlocks and stopped runs: their detection and the printed state.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{SigSet, SigmaskHow, Signal, SignalTarget, Sys};
use tontine_unix_sim::{Builder, EndReason, Executor, LockingMode, SystemState};

use crate::children::{end_of, forked, threaded};
use crate::systems::{everywhere, of, run};

/// Runs a program that deadlocks on each system of [`everywhere`], and checks each printed state.
fn assert_deadlocks(program: fn(&dyn Sys) -> i32, check: impl Fn(&str)) {
    for (on, system) in everywhere() {
        let report = run(system, program);
        assert_eq!((report.ending, report.status), (EndReason::Deadlocked, None), "{on}");
        let state = report.state.expect("the run has not ended").to_string();
        println!("{on}:\n{state}");
        check(&state);
    }
}

/// Starts threads that sleep without end, each in a different call.
fn all_asleep(sys: &dyn Sys) -> i32 {
    let (reader, _writer) = sys.pipe().expect("within the limits");
    threaded(sys, move |sys| {
        let _ = sys.read(reader, &mut [0]);
    });
    threaded(sys, |sys| {
        let _ = sys.sigtimedwait(SigSet::of(&[Signal::USR2]), None);
    });
    let joined = threaded(sys, |sys| {
        let _ = sys.sigsuspend(SigSet::of(&[Signal::TERM]));
    });
    threaded(sys, move |sys| {
        let _ = sys.join(joined);
    });
    let child = forked(sys, |sys| {
        sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::INT])))).expect("permitted");
        sys.pause();
        0
    });
    let _ = sys.waitpid(child.into(), Default::default());
    0
}

#[test]
fn deadlock_report_names_each_sleeping_call() {
    assert_deadlocks(all_asleep, |state| {
        for line in [
            "sleeps in read for pipe 5\n",
            " written by itself, 7 (program)\n",
            "sleeps in sigtimedwait for {SIGUSR2}",
            "sleeps in sigsuspend",
            "sleeps in join for thread 5",
            "sleeps in wait for child 7 (program)",
            "sleeps in pause, blocked {SIGINT}",
        ] {
            assert!(state.contains(line), "no line with `{line}`");
        }
    });
}

/// Runs a reader that has not closed its copy of the write end, and a writer whose pipe is full
/// because the reader sleeps.
fn forgotten_ends(sys: &dyn Sys) -> i32 {
    let (reader, writer) = sys.pipe().expect("within the limits");
    let forgets = forked(sys, move |sys| {
        SystemState::name_caller("forgets");
        sys.read(reader, &mut [0]).map_or(1, |_| 0)
    });
    sys.close(writer).expect("an open descriptor");
    forked(sys, |sys| {
        SystemState::name_caller("fills");
        let (_, writer) = sys.pipe().expect("within the limits");
        forked(sys, move |sys| {
            SystemState::name_caller("idle");
            sys.close(writer).expect("an open descriptor");
            sys.pause();
            0
        });
        loop {
            let _ = sys.write(writer, &[0; 4096]);
        }
    });
    sys.waitpid(forgets.into(), Default::default()).map_or(1, |_| 0)
}

#[test]
fn deadlock_report_names_owners_of_the_other_pipe_end() {
    assert_deadlocks(forgotten_ends, |state| {
        let lines: Vec<&str> = state.lines().map(str::trim).collect();
        let said = |call: &str, owners: &str| {
            lines.windows(2).any(|two| two[0].contains(call) && two[1] == owners)
        };
        assert!(said("sleeps in read for pipe ", "written by itself alone"));
        let idle = lines
            .iter()
            .find(|line| line.ends_with(" idle"))
            .expect("the line of the idle process");
        let idle = idle.split_whitespace().next().expect("a number");
        let readers = format!("read by itself, {idle} (idle)");
        assert!(said("sleeps in write for pipe ", &readers));
    });
}

#[test]
fn threads_joining_each_other_deadlock() {
    let join_each_other = |sys: &dyn Sys| {
        let me = sys.gettid();
        let other = threaded(sys, move |sys| {
            let _ = sys.join(me);
        });
        let _ = sys.join(other);
        0
    };
    assert_deadlocks(join_each_other, |state| {
        assert!(state.contains("join for thread 2") && state.contains("join for thread 3"));
    });
}

#[test]
fn run_stopped_at_any_step_reports_its_state() {
    for mode in LockingMode::ALL {
        for step in 1..200 {
            let count = Arc::new(AtomicI32::new(0));
            let counts = count.clone();
            let system = of(mode, Executor::Simulated { seed: step });
            let report = run(system.stop_at(step), move |sys| {
                loop {
                    let child = forked(sys, |_| 0);
                    end_of(sys, child);
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
