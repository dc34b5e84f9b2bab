//! The modes of the virtual Unix as variants, listed after the machine's own kernel: [`mode`],
//! [`with_linux`], [`ran`]. The modes run on real processors or on a model: [`System`].
//!
//! Source 001 compares two kernels: one that does all process and signal work on a master
//! processor, and one that does it in parallel. Both are modes of `tontine-unix-sim`. The
//! experiments decide what they measure in each mode.

use std::fs;
use std::time::Duration;

use tontine_bench::machine::topology::Topology;
use tontine_bench::size::Size;
use tontine_bench::suite::Variant;
use tontine_bench::task::Params;
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::pin;
use tontine_unix::Sys;
use tontine_unix_sim::{
    Builder, CostKind, CostModel, EndReason, Executor, LockingMode, RunReport, Virtual,
};

/// The note that a system call of the virtual Unix is a function call.
const CALLS_NOTE: &str =
    "a virtual Unix inside one process: a system call is a function call, not a trap";
/// The note for modelled figures.
pub(super) const MODEL_NOTE: &str = "simulation, validated at P = 1 (within 10 %) and, except for \
                                     `master`, at P = 2 (medians within a quarter): \
                                     docs/reference/model.md";
/// Maximum number of modelled processors.
const MOST_MODELLED: usize = 256;
/// The note that a fork of the virtual Unix copies no address space.
pub(super) const FORK_NOTE: &str =
    "a virtual fork copies no address space: the child runs another closure in the same memory";

/// Interval in nanoseconds at which a computing process lets others run. A model uses the same.
const STRETCH_NS: f64 = 25_000.0;
/// The parameter of a modelled cell.
const MODELLED: &str = "modelled";
/// The parameter that names a file of costs, or replaces some of the library's costs, such as
/// `fork=100000 exit=30000` (in nanoseconds). Without it, the library's costs apply.
pub(super) const COSTS: &str = "costs";
/// Number of processors of the paper's machine.
const PAPERS: usize = 10;
/// Number of processors of a large current machine, which a quick run does not model.
const TODAYS: usize = 64;

/// A virtual Unix, on real processors or modelled.
#[derive(Debug, Clone, Copy)]
pub(super) struct System {
    pub(super) mode: LockingMode,
    pub(super) processors: usize,
    pub(super) watch: TimeSource,
}

/// A source of time.
#[derive(Debug, Clone, Copy)]
pub(super) enum TimeSource {
    /// The machine's clock.
    Machine(Clock),
    /// A model with these costs, which vary with this seed.
    Model { seed: u64, costs: CostModel },
}

impl System {
    /// Returns the model that a cell's parameters describe. Without such parameters, returns a
    /// system on this machine's processors, at most `most` of them.
    ///
    /// # Errors
    /// Returns `Failed` if the parameters describe an invalid model.
    pub(super) fn of_a_cell(mode: LockingMode, params: &Params, most: usize) -> Result<Self> {
        let (processors, watch) = match modelled_with(params)? {
            Some(processors) => (processors, TimeSource::of_a_model(params)?),
            None => {
                let processors = processors(mode, &pin::allowed()?, most);
                (processors, TimeSource::Machine(Clock::calibrated()))
            }
        };
        Ok(Self { mode, processors, watch })
    }

    /// Returns `true` if the system's figures are modelled.
    pub(super) fn is_modelled(self) -> bool {
        matches!(self.watch, TimeSource::Model { .. })
    }

    /// Returns the note that applies to all figures of the system.
    pub(super) fn note(self) -> String {
        if self.is_modelled() { MODEL_NOTE } else { CALLS_NOTE }.to_owned()
    }

    /// Returns the builder of the system in which the program runs.
    pub(super) fn builder(self) -> Builder {
        let executor = match self.watch {
            TimeSource::Machine(_) => Executor::Parallel,
            TimeSource::Model { seed, .. } => Executor::Modelled { seed },
        };
        let builder = Virtual::builder().mode(self.mode).processors(self.processors);
        let builder = builder.executor(executor);
        match self.watch {
            TimeSource::Machine(_) => builder,
            TimeSource::Model { costs, .. } => builder.costs(costs),
        }
    }
}

impl TimeSource {
    /// Creates a model's source of time. The costs vary differently in each invocation.
    ///
    /// # Errors
    /// Returns `Failed` if the costs in the parameters are invalid or cannot be read.
    pub(super) fn of_a_model(params: &Params) -> Result<Self> {
        let costs = match params.get(COSTS) {
            None => CostModel::published(),
            Some(found) if found.contains('=') => replaced(found)?,
            Some(path) => {
                let text = fs::read_to_string(path).during("reading the costs")?;
                text.parse().map_err(|error| MeasureError::fail(format!("{path}: {error}")))?
            }
        };
        Ok(Self::Model { seed: std::process::id().into(), costs })
    }

    /// Takes a stamp before the timed part.
    pub(super) fn begin(self, sys: &dyn Sys) -> u64 {
        match self {
            Self::Machine(clock) => clock.start(),
            Self::Model { .. } => nanoseconds(sys),
        }
    }

    /// Returns the nanoseconds since a stamp.
    pub(super) fn ns_since(self, sys: &dyn Sys, begun: u64) -> f64 {
        match self {
            Self::Machine(clock) => clock.ns_between(begun, clock.stop()),
            Self::Model { .. } => (nanoseconds(sys) - begun) as f64,
        }
    }

    /// Computes for `duration`, not counting the time for which other processes have the processor.
    pub(super) fn compute(self, sys: &dyn Sys, duration: Duration) {
        let Self::Machine(clock) = self else { return sys.compute(duration) };
        let mut left_ns = duration.as_nanos() as f64;
        while left_ns > 0.0 {
            let begun = clock.start();
            while clock.ns_between(begun, clock.stop()) < left_ns.min(STRETCH_NS) {
                std::hint::spin_loop();
            }
            left_ns -= STRETCH_NS;
            sys.poll();
        }
    }
}

/// Returns the library's costs with some steps replaced, such as `fork=100000 exit=30000`.
fn replaced(text: &str) -> Result<CostModel> {
    text.split_whitespace().try_fold(CostModel::published(), |costs, word| {
        let (name, ns) = word.split_once('=').unwrap_or((word, ""));
        let step = CostKind::ALL.into_iter().find(|step| step.name() == name);
        let found = step.zip(ns.parse().ok().filter(|ns: &f64| ns.is_finite()));
        let (step, ns) = found.ok_or_else(|| {
            MeasureError::fail(format!("expected the cost of a step, found `{word}`"))
        })?;
        Ok(costs.with(step, ns))
    })
}

fn nanoseconds(sys: &dyn Sys) -> u64 {
    u64::try_from(sys.now().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the cell of a model of `processors` processors.
pub(super) fn modelled(mut params: Params, processors: usize) -> Params {
    let word = if processors == 1 { "processor" } else { "processors" };
    params.insert(MODELLED.to_owned(), format!("{processors} {word}"));
    params
}

/// Returns one modelled cell of this mode per level and number of processors. A uniprocessor has
/// only one processor.
pub(super) fn modelled_cells(
    mode: Option<LockingMode>,
    size: Size,
    levels: impl Fn(usize) -> Vec<usize>,
    cell: impl Fn(usize) -> Params,
) -> Vec<Params> {
    let processors: &[usize] = match (mode, size) {
        (None, _) => &[],
        (Some(LockingMode::Uniprocessor), _) => &[1],
        (_, Size::Quick) => &[PAPERS],
        (_, Size::Default | Size::Full) => &[PAPERS, TODAYS],
    };
    let cells = processors.iter().flat_map(|&processors| {
        let cells = levels(processors).into_iter().map(&cell);
        cells.map(move |params| modelled(params, processors)).collect::<Vec<_>>()
    });
    cells.collect()
}

/// Returns the number of processors with which a cell is modelled, or `None` if it is measured.
///
/// # Errors
/// Returns `Failed` if the parameter is not a valid number.
pub(super) fn modelled_with(params: &Params) -> Result<Option<usize>> {
    let Some(found) = params.get(MODELLED) else { return Ok(None) };
    let number = found.split(' ').next().and_then(|number| number.parse().ok());
    let number = number.filter(|number| (1..=MOST_MODELLED).contains(number));
    number.map(Some).ok_or_else(|| {
        MeasureError::fail(format!(
            "expected a model of 1 to {MOST_MODELLED} processors, found `{found}`"
        ))
    })
}

/// Returns the mode named by a variant.
pub(super) fn mode(variant: &str) -> Option<LockingMode> {
    LockingMode::ALL.into_iter().find(|mode| mode.to_string() == variant)
}

/// The modes as variants.
pub(super) const VARIANTS: [Variant; 5] = [
    Variant { name: "uniprocessor", summary: "virtual Unix on one processor, without locks" },
    Variant {
        name: "master",
        summary: "virtual Unix, OSF/1.0's way: every call but exec runs on processor 0",
    },
    Variant { name: "coarse", summary: "virtual Unix, one lock for all relations of processes" },
    Variant { name: "parallel", summary: "virtual Unix, OSF/1.1's way: the source's locks" },
    Variant {
        name: "per-process",
        summary: "virtual Unix, locks of each process instead of the relation lock (its §9)",
    },
];

/// Returns the machine's own kernel, followed by all modes.
pub(super) const fn with_linux(linux: Variant) -> [Variant; 1 + VARIANTS.len()] {
    let [uniprocessor, master, coarse, parallel, per_process] = VARIANTS;
    [linux, uniprocessor, master, coarse, parallel, per_process]
}

/// Returns the number of processors that a mode uses on this machine, at most `most`.
pub(super) fn processors(mode: LockingMode, allowed: &[usize], most: usize) -> usize {
    if mode == LockingMode::Uniprocessor { 1 } else { allowed.len().clamp(1, most) }
}

/// Returns `true` if the machine has a second processor.
pub(super) fn two_processors(topology: &Topology) -> bool {
    topology.placement("cross-core").is_some()
}

/// Checks that a run ended with status 0.
///
/// # Errors
/// Returns `Failed` if the run ended with another status or not at all; the error shows the
/// system's state.
pub(super) fn ran(report: &RunReport) -> Result<()> {
    let fine = report.status.and_then(|status| status.exited()) == Some(0);
    if fine && report.ending == EndReason::Finished {
        return Ok(());
    }
    let state = report.state.as_ref().map(ToString::to_string).unwrap_or_default();
    let ended = report.status.map_or("did not end".to_owned(), |status| status.to_string());
    Err(MeasureError::fail(format!("the virtual Unix {ended} ({:?})\n{state}", report.ending)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_mode_is_a_variant() {
        let named: Vec<_> = VARIANTS.iter().filter_map(|variant| mode(variant.name)).collect();
        assert_eq!(named, LockingMode::ALL);
        let linux = Variant { name: "linux", summary: "" };
        assert_eq!((with_linux(linux)[0], &with_linux(linux)[1..]), (linux, &VARIANTS[..]));
        assert_eq!(mode("linux"), None);
    }

    /// Regression: two processes of 8 ms each on one processor took 8 ms together, because each
    /// process waited for the clock even while the other used the processor.
    #[test]
    fn computing_times_on_one_processor_add_up() {
        let watch = TimeSource::Machine(Clock::calibrated());
        let system = System { mode: LockingMode::Parallel, processors: 1, watch };
        let each = Duration::from_millis(8);
        let took = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&took);
        let report = system.builder().build().expect("a system").run(move |sys| {
            let begun = watch.begin(sys);
            for _ in 0..2 {
                sys.fork(move |sys| {
                    watch.compute(sys, each);
                    0
                })
                .expect("fork");
            }
            let waited = (0..2).all(|_| sys.wait().is_ok());
            seen.store(watch.ns_since(sys, begun) as u64, Ordering::Relaxed);
            i32::from(!waited)
        });
        ran(&report).expect("it ends");
        assert!(took.load(Ordering::Relaxed) >= 2 * each.as_nanos() as u64 * 99 / 100, "{took:?}");
    }

    #[test]
    fn costs_parameter_replaces_named_steps_only() {
        let costs = |text: &str| {
            let params = Params::from([(COSTS.to_owned(), text.to_owned())]);
            TimeSource::of_a_model(&params).map(|watch| match watch {
                TimeSource::Model { costs, .. } => costs,
                TimeSource::Machine(_) => panic!("not a model"),
            })
        };
        let found = costs("fork=100000 exit=0").expect("costs");
        let published = CostModel::published();
        assert_eq!(found.ns(CostKind::Fork), 100_000.0);
        assert_eq!(found.ns(CostKind::Exit), 0.0);
        assert_eq!(found.ns(CostKind::Reap), published.ns(CostKind::Reap));
        for wrong in ["pigeon=1", "fork=", "fork=x"] {
            assert!(costs(wrong).expect_err("no cost").why().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn deadlocked_run_fails_and_shows_waiting_processes() {
        let unix = tontine_unix_sim::Virtual::builder().build().expect("a system");
        let report = unix.run(|sys| {
            sys.pause();
            0
        });
        let found = ran(&report).expect_err("it never ends");
        assert!(found.why().contains("Deadlocked") && found.why().contains("program"), "{found}");
    }
}
