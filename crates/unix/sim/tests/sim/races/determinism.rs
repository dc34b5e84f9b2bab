//! Determinism: runs with equal seeds are equal, within a process, across processes and across
//! machines.
//!
//! `golden/*.txt` contain the reports of a small corpus of runs. The reports change when the
//! kernel's behaviour or its interruption points change.
//! `WRITE_GOLDEN=1 cargo test -p tontine-unix-sim --test sim golden` writes them.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tontine_unix::{
    Errno, Pid, Resource, Rlimit, SigAction, SigSet, SigmaskHow, Signal, SignalTarget, Sys,
    WaitOptions,
};
use tontine_unix_sim::{Executor, LockingMode, RunReport};

use crate::children::{end_of, forked, send, threaded};
use crate::extent;
use crate::systems::{of, run};

const OWN: Pid = Pid::number_only(0);

type Corpus = [(&'static str, fn(&dyn Sys) -> i32); 5];

const CORPUS: Corpus = [
    ("children", children),
    ("signals", signals),
    ("threads", threads),
    ("jobs", jobs),
    ("deadlock", deadlock),
];

/// Creates generations of children, some of which are never reaped.
fn children(sys: &dyn Sys) -> i32 {
    for nth in 0..4 {
        forked(sys, move |sys| {
            for _ in 0..nth {
                forked(sys, |sys| {
                    sys.sched_yield();
                    1
                });
            }
            let _ = sys.wait();
            nth
        });
    }
    let mut sum = 0;
    while let Ok(waited) = sys.wait() {
        sum += waited.status.exited().unwrap_or(100);
    }
    sum
}

/// Uses handlers, masks, alarms and a clock.
fn signals(sys: &dyn Sys) -> i32 {
    let count = Arc::new(AtomicI32::new(0));
    let counts = count.clone();
    let handler = SigAction::handler(move |_, _| {
        counts.fetch_add(1, Ordering::Relaxed);
    });
    for signal in [Signal::USR1, Signal::ALRM, Signal::RTMIN] {
        sys.sigaction(signal, Some(handler.clone())).expect("permitted");
    }
    sys.sigprocmask(Some((SigmaskHow::Block, SigSet::ALL))).expect("permitted");
    let me = sys.getpid();
    for nth in 0..3 {
        forked(sys, move |sys| {
            send(sys, me, Signal::USR1);
            sys.sigqueue(me, Some(Signal::RTMIN), nth).expect("the target exists");
            0
        });
    }
    sys.alarm(1);
    while sys.wait() != Err(Errno::ECHILD) {}
    while count.load(Ordering::Relaxed) < 5 {
        sys.sigsuspend(SigSet::EMPTY);
    }
    let _ = sys.nanosleep(Duration::from_millis(3));
    count.load(Ordering::Relaxed)
}

/// Creates threads that join each other, fork, and are terminated by an exit.
fn threads(sys: &dyn Sys) -> i32 {
    let child = forked(sys, |sys| {
        let mut before = None;
        for _ in 0..4 {
            let thread = sys.thread(move |sys| {
                let _ = before.map(|before| sys.join(before));
                let _ = sys.fork(|_| 0);
                let _ = sys.wait();
            });
            before = thread.ok();
        }
        threaded(sys, |sys| {
            loop {
                sys.sched_yield();
            }
        });
        sys.join(before.expect("within the limits")).expect("a thread of the caller");
        7
    });
    end_of(sys, child).exited().unwrap_or(100)
}

/// Stops, continues and kills a pipeline as a group.
fn jobs(sys: &dyn Sys) -> i32 {
    let (reader, writer) = sys.pipe().expect("within the limits");
    let first = forked(sys, move |sys| {
        sys.setpgid(OWN, OWN).expect("permitted");
        while sys.write(writer, b"line").is_ok() {}
        1
    });
    let _ = sys.setpgid(first, first);
    let second = forked(sys, move |sys| {
        loop {
            sys.read(reader, &mut [0; 3]).expect("the pipe has a writer");
        }
    });
    sys.setpgid(second, first).expect("a child of the caller");
    let all = WaitOptions::STOPPED | WaitOptions::CONTINUED;
    let mut changes = 0;
    for signal in [Signal::STOP, Signal::CONT, Signal::TERM] {
        sys.kill(SignalTarget::Group(first), Some(signal)).expect("the group exists");
        for child in [first, second] {
            sys.waitpid(child.into(), all).expect("a child of the caller");
            changes += 1;
        }
    }
    changes
}

/// Runs two processes, each of which reads a pipe that only the other writes.
fn deadlock(sys: &dyn Sys) -> i32 {
    sys.setrlimit(Resource::Descriptors, Rlimit { soft: 8, hard: 8 })
        .expect("the limit is lowered");
    let pipes = [sys.pipe().expect("within the limits"), sys.pipe().expect("within the limits")];
    for nth in 0..2 {
        forked(sys, move |sys| {
            sys.read(pipes[nth].0, &mut [0]).expect("an open descriptor");
            sys.write(pipes[1 - nth].1, &[0]).expect("an open descriptor");
            0
        });
    }
    while sys.wait().is_ok() {}
    0
}

fn simulate(program: fn(&dyn Sys) -> i32, mode: LockingMode, seed: u64) -> RunReport {
    run(of(mode, Executor::Simulated { seed }), program)
}

/// Returns the part of the report that must be equal in two runs.
fn essence(report: &RunReport) -> String {
    let RunReport { status, ending, panicked, abandoned, state, steps, digest, elapsed, .. } =
        report;
    // The reported source lines of held locks depend on the build; the owners of the locks do not.
    let state = state.as_ref().map(ToString::to_string).unwrap_or_default();
    let lines = state.lines().map(|line| line.split(", has ").next().unwrap_or(line));
    format!(
        "{ending:?} {status:?} panicked {panicked:?} abandoned {abandoned} steps {steps} \
         digest {digest:016x} elapsed {elapsed:?}\n{}",
        lines.fold(String::new(), |text, line| text + line + "\n")
    )
}

#[test]
fn equal_seeds_give_equal_runs() {
    for (name, program) in CORPUS {
        for mode in LockingMode::ALL {
            for seed in 0..extent::seeds(30, 5) {
                let [one, other] = [(), ()].map(|()| essence(&simulate(program, mode, seed)));
                assert_eq!(one, other, "{name}, {mode}, seed {seed}");
            }
        }
    }
}

#[test]
fn different_seeds_give_different_runs() {
    for (name, program) in CORPUS {
        let digests: std::collections::BTreeSet<u64> =
            (0..30).map(|seed| simulate(program, LockingMode::Parallel, seed).digest).collect();
        assert_eq!(digests.len(), 30, "{name}");
    }
}

#[test]
fn seeds_reproduce_the_golden_runs() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, program) in CORPUS {
        let mut text = String::new();
        for mode in LockingMode::ALL {
            for seed in 1..4 {
                let report = simulate(program, mode, seed);
                write!(text, "{mode}, seed {seed}: {}", essence(&report)).expect("a string grows");
            }
        }
        let path = directory.join(name).with_extension("txt");
        if std::env::var_os("WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &text).expect("the golden file is written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == golden,
            "the run of {name} changed; if intended, set WRITE_GOLDEN=1 to update it"
        );
    }
}
