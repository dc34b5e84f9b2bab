//! `lost-signals`: the number of sent signals that the receiver sees, and whether it keeps sleeping
//! although a signal has arrived: [`LostSignals`].
//!
//! [`receiver`] is a process whose second thread waits for signals by one of five methods.
//! [`sender`] sends the signals, either in bursts or singly, each once the previous one is
//! acknowledged.
//! [`directed`] counts which of several threads receives a signal sent to the process.
//!
//! `signal-delivery` times deliveries, `signal-throughput` measures signals per second.

mod directed;
mod explanation;
mod receiver;
mod sender;

use std::num::NonZero;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::signal::SIGNAL;

use crate::placement_of;
use directed::{MAIN, THREADS, ThreadSetup};
use receiver::WaitMethod;
use sender::{BURST, Burst, BurstPlan, BurstReceiver};

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct LostSignals;

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
    fn name(&self) -> &'static str {
        "lost-signals"
    }

    fn summary(&self) -> &'static str {
        "How many of the signals sent are never seen, and which thread gets them?"
    }

    fn topic(&self) -> Topic {
        Topic::Signals
    }

    fn explanation(&self) -> &'static Explanation {
        &explanation::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let placement = topology.placements().first().map_or("same-core", |usual| usual.name);
        let cell = |of: &[(&str, &str)]| -> Params {
            let of = of.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
            of.chain([("placement".to_owned(), placement.to_owned())]).collect()
        };
        let acknowledged = |window| cell(&[("sending", ACKNOWLEDGED), ("window", window)]);
        let burst = cell(&[("sending", IN_BURSTS)]);
        let threads = |sending, main, others| {
            cell(&[("sending", sending), ("main", main), ("others", others)])
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
                let queued = cell(&[("sending", IN_BURSTS), ("signal", REALTIME)]);
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
        other => return Err(unknown("sending", other)),
    };
    if let Some(way) = WaitMethod::of(variant) {
        let window_ns = match word(params, "window") {
            "" | AS_IT_IS => 0.0,
            WIDENED => 1_000.0,
            WIDE => 10_000.0,
            other => return Err(unknown("window", other)),
        };
        let kinds = match word(params, "signal") {
            "" => [SIGNAL; 2],
            REALTIME => [libc::SIGRTMIN(); 2],
            AS_PUBLISHED => [SIGNAL, libc::SIGQUIT],
            other => return Err(unknown("signal", other)),
        };
        let plan =
            BurstPlan { way, placement, window_ns, clock: Clock::monotonic(), signals: kinds };
        let scene = BurstReceiver::new(&plan)?;
        return match bursts {
            None => scene
                .acknowledged(WARM_UP + signals)
                .map(|missed| of_acknowledged(&missed[WARM_UP..])),
            Some(bursts) => {
                scene.bursts(WARM_UP + bursts).map(|bursts| of_bursts(&bursts[WARM_UP..]))
            }
        };
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
        other => return Err(unknown("variant", other)),
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

/// Computes the shares for single signals.
fn of_acknowledged(missed: &[bool]) -> Observed {
    let of = missed.len();
    let note = match missed.iter().filter(|&&one| one).count() {
        0 => format!("none of {of} wake-ups was missed"),
        count => {
            format!("{count} of {of} wake-ups were missed: another signal had to wake the thread")
        }
    };
    Observed {
        // A signal whose wake-up was missed is never announced, and no other signal is lost. A
        // series `missed` would therefore have the same samples.
        series: vec![share("lost", missed.iter().copied())],
        notes: vec![note],
        ..Observed::default()
    }
}

/// Computes the shares for bursts.
fn of_bursts(bursts: &[Burst]) -> Observed {
    let mean = |metric: &str, seen: fn(&Burst) -> u32| {
        let lost = |burst: &Burst| 1.0 - f64::from(seen(burst)) / f64::from(BURST);
        let samples = bursts.iter().map(lost).collect();
        let series = Series::ns(metric, samples).in_unit("share").by_mean();
        series.batched(BURST as usize)
    };
    let total = |of: fn(&Burst) -> u32| bursts.iter().map(of).sum::<u32>();
    Observed {
        series: vec![
            mean("lost", |burst| burst.announced),
            mean("merged", |burst| burst.reached),
            share("missed", bursts.iter().map(|burst| burst.missed)),
        ],
        notes: vec![format!(
            "{} sent, {} reached the thread, {} announced by its loop",
            BURST as usize * bursts.len(),
            total(|burst| burst.reached),
            total(|burst| burst.announced),
        )],
        ..Observed::default()
    }
}

/// Computes which threads took the signals that were sent to the process.
fn of_process(taken: &[Vec<u32>]) -> Observed {
    let all: Vec<u32> = taken.iter().flatten().copied().collect();
    let mut series = vec![share("main_thread", all.iter().map(|&thread| thread == MAIN))];
    if all.len() > 1 {
        series.push(share("same_thread", all.windows(2).map(|pair| pair[0] == pair[1])));
    }
    let of_each = (0..THREADS as u32).map(|thread| {
        let count = all.iter().filter(|&&taker| taker == thread).count();
        if thread == MAIN { format!("main {count}") } else { format!("{count}") }
    });
    let of_each = of_each.collect::<Vec<String>>().join(", ");
    let notes = vec![format!("signals taken by each of {THREADS} threads: {of_each}")];
    Observed { series, notes, ..Observed::default() }
}

/// Computes which threads took the signals that were sent to one thread.
fn of_thread(taken: &[(u32, Vec<u32>)]) -> Observed {
    let own = taken.iter().flat_map(|(named, takers)| takers.iter().map(move |one| one == named));
    Observed { series: vec![share("own_thread", own)], ..Observed::default() }
}

fn share(metric: &str, of: impl Iterator<Item = bool>) -> Series {
    let samples = of.map(|so| if so { 1.0 } else { 0.0 }).collect();
    Series::ns(metric, samples).in_unit("share").by_mean()
}

fn word<'a>(params: &'a Params, name: &str) -> &'a str {
    params.get(name).map_or("", String::as_str)
}

fn unknown(what: &str, found: &str) -> MeasureError {
    MeasureError::fail(format!("lost-signals has no {what} `{found}`: see `tontine list`"))
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("handler-pause", "a thread with a handler and a loop over pause, as in the source"),
    variant("handler-sigsuspend", "a handler and sigsuspend, which unblocks and waits in one step"),
    variant("sigwait-thread", "a thread that takes the blocked signal by sigwait"),
    variant("signalfd", "a thread that reads the blocked signal from a signalfd"),
    variant("library", "tontine::signal: its thread takes each signal and calls a function"),
    variant("process-directed", "kill to a process of four threads: which of them handles it?"),
    variant("thread-directed", "tgkill to each of the four threads in turn"),
];

#[cfg(test)]
mod tests;
