//! The sides that [`super`] compares, each measured in a separate process: [`ALL`], [`measure`].

use std::hint::black_box;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use tontine_bench::stats::order::median;
use tontine_unix::{
    Linux, Pid, Result, SigAction, SigSet, SigmaskHow, Signal, SignalTarget, SpawnRequest, Sys,
    WaitOptions, WaitStatus,
};
use tontine_unix_sim::{Builder, Executor, Virtual};

/// Number of processes that are created, blocked and reaped.
const MANY: usize = 100_000;
/// Number of members of each signalled group.
const GROUP: usize = 10_000;
const SMALL_GROUP: usize = 1_000;
/// Number of repetitions of a short operation for one figure, which is the mean over all
/// repetitions.
const SHORT: usize = 200_000;
/// Number of Linux children created for one figure, which is the median of their times.
const CHILDREN: usize = 101;
/// Number of children if each copies the page tables of [`TOUCHED_BYTES`].
const SLOW_CHILDREN: usize = 9;
const TOUCHED_BYTES: usize = 1 << 30;
/// A program that does nothing.
const NOTHING: &str = "/bin/true";

type SideFigures = io::Result<f64>;
type SpeedSide = fn() -> SideFigures;

/// Names of the sides and their functions, which return seconds unless documented otherwise.
pub(super) const ALL: &[(&str, SpeedSide)] = &[
    ("tokio", tokio_tasks),
    ("fork-exit-wait", forks),
    ("many-memory", || many().map(|many| many.gibibytes)),
    ("many-time", || many().map(|many| many.seconds)),
    ("group-kill", || group_kill(GROUP)),
    ("small-group-kill", || group_kill(SMALL_GROUP)),
    ("simulated", simulated),
    ("spawn", || small(&spawned)),
    ("command", || small(&|_| commanded())),
    ("spawn-large", || large(&spawned, CHILDREN)),
    ("fork-exec-large", || large(&forked, SLOW_CHILDREN)),
];

/// Measures the side of this name.
///
/// # Errors
/// Fails if the name is unknown or the measurement fails.
pub(super) fn measure(name: &str) -> SideFigures {
    match ALL.iter().find(|(side, _)| *side == name) {
        Some((_, side)) => side(),
        None => Err(io::Error::other(format!("expected the name of a side, found {name}"))),
    }
}

/// Returns the time in seconds in which a task spawns and joins an empty task, on one worker.
fn tokio_tasks() -> SideFigures {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let measured = runtime.spawn(async {
        let begun = Instant::now();
        for number in 0..SHORT {
            let joined = tokio::spawn(async move { black_box(number) }).await;
            assert_eq!(joined.ok(), Some(number));
        }
        begun.elapsed().as_secs_f64() / SHORT as f64
    });
    runtime.block_on(measured).map_err(io::Error::other)
}

/// Returns the time in seconds in which a process forks an empty process and waits for it, on one
/// processor.
fn forks() -> SideFigures {
    virtually(Virtual::builder(), |sys| {
        let begun = Instant::now();
        for _ in 0..SHORT {
            let child = sys.fork(|_| 0)?;
            sys.waitpid(child.into(), WaitOptions::empty())?;
        }
        Ok(begun.elapsed().as_secs_f64() / SHORT as f64)
    })
}

struct Many {
    gibibytes: f64,
    seconds: f64,
}

/// Measures [`MANY`] processes that are all blocked at the same time, and then killed and reaped.
fn many() -> io::Result<Many> {
    virtually(Virtual::builder(), |sys| {
        let begun = Instant::now();
        blocked(sys, MANY)?;
        let made = begun.elapsed();
        let resident = resident_bytes();
        let begun = Instant::now();
        sys.sigaction(Signal::TERM, Some(SigAction::IGNORE))?;
        sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM))?;
        reaped(sys, MANY)?;
        let seconds = (made + begun.elapsed()).as_secs_f64();
        Ok(Many { gibibytes: resident as f64 / f64::from(1 << 30), seconds })
    })
}

/// Returns the duration in milliseconds of one `kill` to a group of `members` processes. Each
/// member sleeps until the signal terminates it.
fn group_kill(members: usize) -> SideFigures {
    virtually(Virtual::builder(), move |sys| {
        blocked(sys, members)?;
        sys.sigaction(Signal::TERM, Some(SigAction::IGNORE))?;
        let begun = Instant::now();
        sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM))?;
        let took = begun.elapsed();
        reaped(sys, members)?;
        Ok(took.as_secs_f64() * 1e3)
    })
}

/// Forks `processes` children that sleep until a signal terminates them, and yields until all are
/// asleep.
fn blocked(sys: &dyn Sys, processes: usize) -> Result<()> {
    for _ in 0..processes {
        sys.fork(|sys| {
            sys.pause();
            0
        })?;
    }
    sys.sched_yield();
    Ok(())
}

fn reaped(sys: &dyn Sys, processes: usize) -> Result<()> {
    for _ in 0..processes {
        sys.wait()?;
    }
    Ok(())
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4096
}

/// Returns millions of system calls per second in the simulated executor. One process sends signals
/// to another, which calls `sigsuspend` until it has received [`SHORT`] signals.
fn simulated() -> SideFigures {
    let builder = Virtual::builder().executor(Executor::Simulated { seed: 1 });
    virtually(builder, |sys| {
        let calls = Arc::new(AtomicU64::new(0));
        let (of_receiver, of_sender) = (Arc::clone(&calls), Arc::clone(&calls));
        let begun = Instant::now();
        let receiver = sys.fork(move |sys| i32::from(receive(sys, &of_receiver).is_err()))?;
        let sender = sys.fork(move |sys| {
            while sys.kill(receiver.into(), Some(Signal::USR1)).is_ok() {
                of_sender.fetch_add(1, Ordering::Relaxed);
            }
            0
        })?;
        ended(sys, receiver)?;
        ended(sys, sender)?;
        Ok(calls.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64() / 1e6)
    })
}

/// Receives signals, and counts the calls.
fn receive(sys: &dyn Sys, calls: &AtomicU64) -> Result<()> {
    let seen = Arc::new(AtomicUsize::new(0));
    let handler = Arc::clone(&seen);
    sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::USR1]))))?;
    let count = SigAction::handler(move |_, _| {
        handler.fetch_add(1, Ordering::Relaxed);
    });
    sys.sigaction(Signal::USR1, Some(count))?;
    while seen.load(Ordering::Relaxed) < SHORT {
        sys.sigsuspend(SigSet::EMPTY);
        calls.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Runs a program in a virtual system on one processor, and returns its result.
fn virtually<T: Send + 'static>(
    builder: Builder,
    program: impl FnOnce(&dyn Sys) -> Result<T> + Send + 'static,
) -> io::Result<T> {
    let unix = builder.processors(1).build().map_err(io::Error::other)?;
    let (send, receive) = std::sync::mpsc::channel();
    let report = unix.run(move |sys| i32::from(send.send(program(sys)).is_err()));
    match receive.try_recv() {
        Ok(found) => found.map_err(io::Error::other),
        Err(_) => Err(io::Error::other(format!("the virtual system: {:?}", report.ending))),
    }
}

fn small(side: &dyn Fn(&dyn Sys) -> Result<()>) -> SideFigures {
    median_of(CHILDREN, side)
}

fn large(side: &dyn Fn(&dyn Sys) -> Result<()>, children: usize) -> SideFigures {
    let touched = vec![1_u8; TOUCHED_BYTES];
    let measured = median_of(children, side);
    drop(black_box(touched));
    measured
}

fn median_of(children: usize, side: &dyn Fn(&dyn Sys) -> Result<()>) -> SideFigures {
    let linux = Linux::new().map_err(io::Error::other)?;
    let mut seconds = Vec::with_capacity(children);
    for _ in 0..children {
        let begun = Instant::now();
        side(&linux).map_err(io::Error::other)?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    median(&seconds).ok_or_else(|| io::Error::other("no children"))
}

fn spawned(sys: &dyn Sys) -> Result<()> {
    let child = sys.spawn(&SpawnRequest::new(NOTHING, &[NOTHING]))?;
    ended(sys, child)
}

fn forked(sys: &dyn Sys) -> Result<()> {
    let child = sys.fork(|sys| sys.exec(NOTHING, &[NOTHING]).map_or(1, |never| match never {}))?;
    ended(sys, child)
}

fn ended(sys: &dyn Sys, child: Pid) -> Result<()> {
    let waited = sys.waitpid(child.into(), WaitOptions::empty())?;
    assert!(waited.is_some_and(|waited| waited.status == WaitStatus::Exited(0)));
    Ok(())
}

fn commanded() -> Result<()> {
    let status = Command::new(NOTHING).status()?;
    assert!(status.success());
    Ok(())
}
