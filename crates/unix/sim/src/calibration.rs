//! Measurement of the costs of a machine: [`CostModel::measure`].
//!
//! Effects between processors are timed directly: a lock, a cache line that moves back and forth, a
//! thread that is woken. The costs of operations of the virtual Unix are fitted on one processor:
//! the parallel executor runs a loop, and the modelled executor runs the same loop with a cost of 0
//! for the step in question. The difference is the cost of the step. On one processor the model is
//! therefore right by construction for these loops, and may be wrong for everything else. One step
//! is fitted in this way on two processors: the transfer of the data that a lock guards, which
//! moves with the lock.
#![allow(clippy::disallowed_types, reason = "this module measures the machine by the wall clock")]

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tontine_unix::{SigAction, SigSet, SigmaskHow, Signal, Sys};

use crate::config::Executor;
use crate::costs::{CostKind, CostModel, LOOKS};
use crate::machine::Virtual;

/// Number of runs of each loop. For locks, cache lines and ticks the minimum is used, because other
/// load on the machine only lengthens their times. For operations of the virtual Unix the median is
/// used, because it is the typical time.
const RUNS: usize = 15;
/// Number of operations in a run.
const OPERATIONS: u32 = 4_000;
/// Number of forks before the first child may continue, as in `fork-throughput`.
const BURST: u32 = 50;
/// Pause before a wake-up, long enough for the other thread to fall asleep.
const NAP: Duration = Duration::from_micros(300);

impl CostModel {
    /// Measures the costs of this machine, which takes several seconds. Other load on the machine
    /// distorts the figures.
    ///
    /// # Panics
    ///
    /// Panics if the virtual Unix cannot run here.
    #[must_use]
    pub fn measure() -> Self {
        let spin = least(|| per_operation(|_| spin_loop()));
        let lock = least(lock);
        let transfer = least(transfer);
        let (wake, latency) = woken();
        let costs = Self::NONE
            .with(CostKind::Lock, lock)
            .with(CostKind::Spin, spin)
            .with(CostKind::Transfer, transfer)
            .with(CostKind::Unpark, lock)
            .with(CostKind::Post, lock + transfer)
            .with(CostKind::Wake, wake)
            .with(CostKind::Latency, latency)
            .with(CostKind::Look, f64::from(LOOKS) * spin)
            .with(CostKind::Tick, least(tick));
        let fits: [(&[(CostKind, f64)], Loop); 9] = [
            (&[(CostKind::Call, 1.0)], calls),
            (&[(CostKind::Switch, 1.0)], switches),
            (&[(CostKind::Send, 1.0)], sends),
            (&[(CostKind::Deliver, 1.0)], deliveries),
            (&[(CostKind::Suspend, 1.0)], suspensions),
            (&[(CostKind::Bytes, 0.5)], bytes),
            (&[(CostKind::Fork, 1.0)], forks),
            // The loop measures both steps together; the total is divided in this proportion.
            (&[(CostKind::Exit, 0.6), (CostKind::Reap, 0.4)], lives),
            (&[(CostKind::Exec, 1.0)], executions),
        ];
        let costs = fits.into_iter().fold(costs, |costs, (steps, of)| {
            let missing = usual(|| run(Executor::Parallel, costs, 1, of))
                - run(Executor::Modelled { seed: 1 }, costs, 1, of);
            steps.iter().fold(costs, |costs, (step, part)| costs.with(*step, part * missing))
        });
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if processors < 2 {
            return costs;
        }
        let missing = usual(|| run(Executor::Parallel, costs, 2, contended))
            - run(Executor::Modelled { seed: 1 }, costs, 2, contended);
        costs.with(CostKind::Guarded, missing)
    }
}

/// A loop of operations, which returns nanoseconds per operation.
type Loop = fn(&dyn Sys) -> f64;

fn least(mut time: impl FnMut() -> f64) -> f64 {
    (0..RUNS).map(|_| time()).fold(f64::INFINITY, f64::min)
}

/// Returns the median of several measurements.
fn usual(time: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = std::iter::repeat_with(time).take(RUNS).collect();
    times.sort_unstable_by(f64::total_cmp);
    times[RUNS / 2]
}

fn per_operation(mut operation: impl FnMut(u32)) -> f64 {
    let begun = Instant::now();
    (0..OPERATIONS).for_each(&mut operation);
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
}

fn lock() -> f64 {
    let word = AtomicU32::new(0);
    per_operation(|_| {
        let word = black_box(&word);
        let taken = word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        assert!(taken.is_ok(), "no other thread has the lock");
        word.store(0, Ordering::Release);
    })
}

/// Measures half the round-trip time of a word that two threads write in turn, over the fastest
/// stretch of rounds. Other stretches may be slower because other load occupies a processor.
fn transfer() -> f64 {
    const STRETCH: u32 = 200;
    let word = Arc::new(AtomicU32::new(0));
    let theirs = Arc::clone(&word);
    let other = thread::spawn(move || {
        for turn in 0..OPERATIONS {
            while theirs.load(Ordering::Acquire) != 2 * turn + 1 {
                spin_loop();
            }
            theirs.store(2 * turn + 2, Ordering::Release);
        }
    });
    let mut fastest = f64::INFINITY;
    for stretch in 0..OPERATIONS / STRETCH {
        let begun = Instant::now();
        for turn in stretch * STRETCH..(stretch + 1) * STRETCH {
            word.store(2 * turn + 1, Ordering::Release);
            while word.load(Ordering::Acquire) != 2 * turn + 2 {
                spin_loop();
            }
        }
        let round = begun.elapsed().as_secs_f64() * 1e9 / f64::from(STRETCH);
        fastest = fastest.min(round / 2.0);
    }
    other.join().expect("it only counts");
    fastest
}

/// Returns the medians of the waker's cost and of the delay until the sleeper runs.
fn woken() -> (f64, f64) {
    const TIMES: usize = 300;
    let epoch = Instant::now();
    let (stamp, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (theirs, its_end) = (Arc::clone(&stamp), Arc::clone(&over));
    let sleeper = thread::spawn(move || {
        while !its_end.load(Ordering::Acquire) {
            thread::park();
            theirs.store(epoch.elapsed().as_nanos() as u64, Ordering::Release);
        }
    });
    let (mut wakes, mut latencies) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        thread::sleep(NAP);
        stamp.store(0, Ordering::Relaxed);
        let before = epoch.elapsed().as_nanos() as u64;
        sleeper.thread().unpark();
        let after = epoch.elapsed().as_nanos() as u64;
        let ran = loop {
            match stamp.load(Ordering::Acquire) {
                0 => spin_loop(),
                ran => break ran,
            }
        };
        wakes.push(after - before);
        latencies.push(ran.saturating_sub(before));
    }
    over.store(true, Ordering::Release);
    sleeper.thread().unpark();
    sleeper.join().expect("it only sleeps");
    let median = |mut all: Vec<u64>| {
        all.sort_unstable();
        all[TIMES / 2] as f64
    };
    (median(wakes), median(latencies))
}

/// Measures the cost of a signal that this thread handles: a lower bound for the clock interrupt.
fn tick() -> f64 {
    let pending = signal_hook::flag::register(libc::SIGURG, Arc::default());
    let pending = pending.expect("SIGURG can be handled");
    let time = per_operation(|_| {
        signal_hook::low_level::raise(libc::SIGURG).expect("a process may signal itself");
    });
    signal_hook::low_level::unregister(pending);
    time
}

/// Returns the nanoseconds per operation of a loop in a virtual Unix with this number of
/// processors.
fn run(executor: Executor, costs: CostModel, processors: usize, of: Loop) -> f64 {
    let found = Arc::new(Mutex::new(f64::NAN));
    let ours = Arc::clone(&found);
    let unix = Virtual::builder()
        .executor(executor)
        .costs(costs)
        .processors(processors)
        .program("nothing", |_, _| 0)
        .build()
        .expect("one processor is enough");
    let report = unix.run(move |sys| {
        let ns = of(sys);
        *ours.lock().unwrap_or_else(PoisonError::into_inner) = ns;
        0
    });
    assert_eq!(report.status.and_then(|status| status.exited()), Some(0), "{report:?}");
    *found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the nanoseconds per operation of `times` repetitions.
fn repeat(sys: &dyn Sys, times: u32, operation: impl FnMut(u32)) -> f64 {
    let begun = sys.now();
    (0..times).for_each(operation);
    (sys.now() - begun).as_secs_f64() * 1e9 / f64::from(times)
}

fn calls(sys: &dyn Sys) -> f64 {
    repeat(sys, OPERATIONS, |_| sys.poll())
}

/// Measures two processes that yield to each other: a call and a switch.
fn switches(sys: &dyn Sys) -> f64 {
    sys.fork(|sys| {
        (0..OPERATIONS).for_each(|_| sys.sched_yield());
        0
    })
    .expect("fork succeeds");
    let turn = repeat(sys, OPERATIONS, |_| sys.sched_yield());
    sys.wait().expect("a child exists");
    turn / 2.0
}

/// Measures the sending of signals that stay pending.
fn sends(sys: &dyn Sys) -> f64 {
    let only = SigSet::of(&[Signal::USR1]);
    sys.sigprocmask(Some((SigmaskHow::Block, only))).expect("a mask");
    let me = sys.getpid();
    let time = repeat(sys, OPERATIONS, |_| {
        sys.kill(me.into(), Some(Signal::USR1)).expect("it lives");
    });
    sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).expect("an action");
    time
}

/// Measures the sending of signals that stay pending while another processor sends the same
/// signals. Both processors need the same lock, and each finds the lock's data changed by the
/// other.
fn contended(sys: &dyn Sys) -> f64 {
    let only = SigSet::of(&[Signal::USR1]);
    sys.sigprocmask(Some((SigmaskHow::Block, only))).expect("a mask");
    let (begun, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (its_begin, its_end) = (Arc::clone(&begun), Arc::clone(&over));
    let me = sys.getpid();
    let send = move |sys: &dyn Sys| sys.kill(me.into(), Some(Signal::USR1)).expect("it lives");
    sys.place(Some(1 - sys.processor())).expect("two processors exist");
    sys.fork(move |sys| {
        while !its_end.load(Ordering::Acquire) {
            send(sys);
            its_begin.store(true, Ordering::Release);
        }
        0
    })
    .expect("fork succeeds");
    while !begun.load(Ordering::Acquire) {
        sys.sched_yield();
    }
    let time = repeat(sys, OPERATIONS, |_| send(sys));
    over.store(true, Ordering::Release);
    sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).expect("an action");
    sys.wait().expect("a child exists");
    time
}

fn deliveries(sys: &dyn Sys) -> f64 {
    sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).expect("an action");
    let me = sys.getpid();
    repeat(sys, OPERATIONS, |_| sys.kill(me.into(), Some(Signal::USR1)).expect("it lives"))
}

/// Measures two processes that signal each other and suspend: a kill, a suspension, a delivery, a
/// switch.
fn suspensions(sys: &dyn Sys) -> f64 {
    let only = SigSet::of(&[Signal::USR1]);
    sys.sigprocmask(Some((SigmaskHow::Block, only))).expect("a mask");
    sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).expect("an action");
    let me = sys.getpid();
    let child = sys
        .fork(move |sys| {
            for _ in 0..OPERATIONS {
                sys.sigsuspend(SigSet::EMPTY);
                if sys.kill(me.into(), Some(Signal::USR1)).is_err() {
                    return 1;
                }
            }
            0
        })
        .expect("fork succeeds");
    let round = repeat(sys, OPERATIONS, |_| {
        sys.kill(child.into(), Some(Signal::USR1)).expect("it lives");
        sys.sigsuspend(SigSet::EMPTY);
    });
    sys.wait().expect("a child exists");
    round / 2.0
}

/// Measures the transfer of a byte through a pipe: a write and a read.
fn bytes(sys: &dyn Sys) -> f64 {
    let (from, to) = sys.pipe().expect("a pipe");
    let mut byte = [0];
    repeat(sys, OPERATIONS, |_| {
        sys.write(to, &byte).expect("the pipe has space");
        sys.read(from, &mut byte).expect("the byte was written");
    })
}

/// Measures forks whose children sleep until all have been created.
fn forks(sys: &dyn Sys) -> f64 {
    let bursts = OPERATIONS / BURST / 4;
    let times = (0..bursts).map(|_| {
        let (gate, held) = sys.pipe().expect("a pipe");
        let time = repeat(sys, BURST, |_| {
            sys.fork(move |sys| {
                let closed = sys.close(held);
                let passed = sys.read(gate, &mut [0]);
                i32::from(closed.is_err() || passed != Ok(0))
            })
            .expect("fork succeeds");
        });
        sys.close(held).expect("it is open");
        for _ in 0..BURST {
            sys.wait().expect("a child exists");
        }
        sys.close(gate).expect("it is open");
        time
    });
    times.sum::<f64>() / f64::from(bursts)
}

/// Measures a fork, an exit and a wait.
fn lives(sys: &dyn Sys) -> f64 {
    repeat(sys, OPERATIONS / 4, |_| {
        sys.fork(|_| 0).expect("fork succeeds");
        sys.wait().expect("a child exists");
    })
}

/// Measures a fork, an exec, an exit and a wait.
fn executions(sys: &dyn Sys) -> f64 {
    repeat(sys, OPERATIONS / 4, |_| {
        sys.fork(|sys| match sys.exec("nothing", &["nothing"]) {
            Err(_) => 1,
            Ok(never) => match never {},
        })
        .expect("fork succeeds");
        sys.wait().expect("a child exists");
    })
}
