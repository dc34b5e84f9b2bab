//! `lost-signals`: the number of sent signals that the receiver sees, and whether it keeps sleeping
//! although a signal has arrived: [`LostSignals`].
//!
//! [`receiver`] is a process whose second thread waits for signals by one of five methods;
//! [`sender`] sends them. [`directed`] counts which of several threads receives a signal.

mod directed;
mod receiver;
mod sender;

use std::num::NonZero;

use tontine_bench::os::signal::SIGNAL;

use crate::prelude::*;
use directed::{MAIN, THREADS, ThreadSetup};
use receiver::{BurstPlan, WaitMethod};
use sender::{BURST, Burst, BurstReceiver};

pub(crate) struct LostSignals;

/// A value of the parameter `sending`.
pub(crate) const ACKNOWLEDGED: &str = "acknowledged";
pub(crate) const IN_BURSTS: &str = "burst";
/// A value of the parameter `window`, the time between the loop's check and its wait.
pub(crate) const AS_IT_IS: &str = "as it is";
const WIDENED: &str = "1 µs";
/// A window that is longer than a signal takes to reach another processor, even on virtual
/// machines.
pub(crate) const WIDE: &str = "10 µs";

/// Value of the parameter `signal` for a signal that queues, unlike SIGUSR1.
const REALTIME: &str = "SIGRTMIN";
/// Value of the parameter `signal` for the two signals of the source's programs, in turn.
pub(crate) const AS_PUBLISHED: &str = "SIGUSR1 and SIGQUIT";

impl Experiment for LostSignals {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let placement = topology.placements().first().map_or("same-core", |usual| usual.name);
        let acknowledged = |window| {
            params([("sending", ACKNOWLEDGED), ("window", window), ("placement", placement)])
        };
        let burst = params([("sending", IN_BURSTS), ("placement", placement)]);
        let threads = |sending, main, others| {
            let of = [("sending", sending), ("main", main), ("others", others)];
            let mut cell = params(of);
            cell.insert("placement".to_owned(), placement.to_owned());
            cell
        };
        match variant {
            "handler-pause" if size == Size::Quick => {
                vec![acknowledged(AS_IT_IS), acknowledged(WIDE), burst]
            }
            "handler-pause" => {
                vec![acknowledged(AS_IT_IS), acknowledged(WIDENED), acknowledged(WIDE), burst]
            }
            "handler-sigsuspend" | "signalfd" if size == Size::Quick => vec![acknowledged(WIDE)],
            "handler-sigsuspend" | "sigwait-thread" | "signalfd" => {
                vec![acknowledged(WIDE), burst]
            }
            "library" => {
                let mut queued = burst.clone();
                queued.insert("signal".to_owned(), REALTIME.to_owned());
                match size {
                    Size::Quick => vec![acknowledged(WIDE), queued],
                    Size::Default | Size::Full => vec![acknowledged(WIDE), burst, queued],
                }
            }
            "process-directed" => {
                let main_takes = threads(IN_BURSTS, "unblocked", "asleep");
                let main_sleeps = threads(ACKNOWLEDGED, "unblocked", "one running");
                let main_blocks = threads(ACKNOWLEDGED, "blocked", "asleep");
                match size {
                    Size::Quick => vec![main_takes],
                    Size::Default => vec![main_takes, main_sleeps],
                    Size::Full => vec![main_takes, main_sleeps, main_blocks],
                }
            }
            "thread-directed" => vec![threads(ACKNOWLEDGED, "unblocked", "asleep")],
            _ => Vec::new(),
        }
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        signals(size)
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        measure(&task.variant, &task.params, signals(task.size))
    }
}

/// Number of signals, or of bursts, that are sent first and not counted, because the pages, the
/// caches and the processors of both processes are cold.
const WARM_UP: usize = 10;

/// Returns the number of signals in one invocation. For bursts it is four times that number,
/// because a burst of twenty replaces five signals.
fn signals(size: Size) -> usize {
    match size {
        Size::Quick => 100,
        Size::Default => 200,
        Size::Full => 10_000,
    }
}

fn measure(variant: &str, params: &Params, signals: usize) -> Result<Observed> {
    let placement = placement_of(params)?;
    let bursts = match word(params, "sending") {
        ACKNOWLEDGED => None,
        IN_BURSTS => Some((signals / 5).max(1)),
        other => return Err(unknown("lost-signals", "sending", other)),
    };
    if let Some(way) = WaitMethod::of(variant) {
        let window_ns = match word(params, "window") {
            "" | AS_IT_IS => 0.0,
            WIDENED => 1_000.0,
            WIDE => 10_000.0,
            other => return Err(unknown("lost-signals", "window", other)),
        };
        let kinds = match word(params, "signal") {
            "" => [SIGNAL; 2],
            REALTIME => [libc::SIGRTMIN(); 2],
            AS_PUBLISHED => [SIGNAL, libc::SIGQUIT],
            other => return Err(unknown("lost-signals", "signal", other)),
        };
        let clock = Clock::monotonic();
        let plan = BurstPlan { way, placement, window_ns, clock, signals: kinds };
        let receiver = BurstReceiver::new(plan)?;
        return Ok(match bursts {
            None => of_acknowledged(&receiver.acknowledged(WARM_UP + signals)?[WARM_UP..]),
            Some(bursts) => of_bursts(&receiver.bursts(WARM_UP + bursts)?[WARM_UP..]),
        });
    }
    let threads = ThreadSetup {
        main_blocks: word(params, "main") == "blocked",
        one_runs: word(params, "others") == "one running",
    };
    let mut observed = match variant {
        "process-directed" => {
            let (burst, times) = bursts.map_or((1, signals), |bursts| (BURST, bursts));
            let taken = directed::to_process(threads, placement, burst, WARM_UP + times)?;
            of_process(&taken[WARM_UP..])
        }
        "thread-directed" => {
            let taken = directed::to_thread(threads, placement, WARM_UP + signals)?;
            of_thread(&taken[WARM_UP..])
        }
        other => return Err(unknown("lost-signals", "variant", other)),
    };
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    if threads.one_runs && processors < 3 {
        observed.notes.push(format!(
            "one thread spins, the sender polls and the taker wakes: 3 threads on {processors} \
             processors"
        ));
    }
    Ok(observed)
}

fn of_acknowledged(missed: &[bool]) -> Observed {
    let of = missed.len();
    let note = match missed.iter().filter(|&&one| one).count() {
        0 => format!("none of {of} wake-ups was missed"),
        count => {
            format!("{count} of {of} wake-ups were missed: another signal had to wake the thread")
        }
    };
    // A signal whose wake-up was missed is never announced, and no other signal is lost. A series
    // `missed` would therefore have the same samples.
    Observed::of([Series::share("lost", missed.iter().copied())], vec![note])
}

fn of_bursts(bursts: &[Burst]) -> Observed {
    let mean = |metric: &str, seen: fn(&Burst) -> u32| {
        let lost = |burst: &Burst| 1.0 - f64::from(seen(burst)) / f64::from(BURST);
        let samples = bursts.iter().map(lost).collect();
        let series = Series::ns(metric, samples).in_unit("share").by_mean();
        series.batched(BURST as usize)
    };
    let total = |of: fn(&Burst) -> u32| bursts.iter().map(of).sum::<u32>();
    let note = format!(
        "{} sent, {} reached the thread, {} announced by its loop",
        BURST as usize * bursts.len(),
        total(|burst| burst.reached),
        total(|burst| burst.announced),
    );
    let series = [
        mean("lost", |burst| burst.announced),
        mean("merged", |burst| burst.reached),
        Series::share("missed", bursts.iter().map(|burst| burst.missed)),
    ];
    Observed::of(series, vec![note])
}

fn of_process(taken: &[Vec<u32>]) -> Observed {
    let all: Vec<u32> = taken.iter().flatten().copied().collect();
    let mut series = vec![Series::share("main_thread", all.iter().map(|&thread| thread == MAIN))];
    if all.len() > 1 {
        series.push(Series::share("same_thread", all.windows(2).map(|pair| pair[0] == pair[1])));
    }
    let of_each = (0..THREADS as u32).map(|thread| {
        let count = all.iter().filter(|&&taker| taker == thread).count();
        if thread == MAIN { format!("main {count}") } else { format!("{count}") }
    });
    let of_each = of_each.collect::<Vec<String>>().join(", ");
    let note = format!("signals taken by each of {THREADS} threads: {of_each}");
    Observed::of(series, vec![note])
}

fn of_thread(taken: &[(u32, Vec<u32>)]) -> Observed {
    let own = taken.iter().flat_map(|(named, takers)| takers.iter().map(move |one| one == named));
    Observed::of([Series::share("own_thread", own)], Vec::new())
}

#[cfg(test)]
mod tests;
