//! The modes of the virtual Unix as variants, beside the machine's own kernel: [`mode`],
//! [`beside`], [`ran`]. On real processors, or modelled: [`System`].
//!
//! Source 001 compares two kernels, one that does all process and signal work on a master processor
//! and one that does it in parallel; both are modes of `tontine-unix-sim`. What the experiments
//! measure in them is theirs.

use std::fs;
use std::time::Duration;

use tontine_bench::machine::topology::Topology;
use tontine_bench::size::Size;
use tontine_bench::suite::Variant;
use tontine_bench::task::Params;
use tontine_host::clock::Clock;
use tontine_host::os::pin;
use tontine_host::trouble::{During, Result, Trouble};
use tontine_unix::Sys;
use tontine_unix_sim::{Builder, CostModel, EndReason, Executor, LockingMode, RunReport, Virtual};

/// That a system call there is a function call.
const CALLS_NOTE: &str =
    "a virtual Unix inside one process: a system call is a function call, not a trap";
/// What a modelled figure is.
pub(super) const MODEL_NOTE: &str = "simulation, validated at P = 1 (within 10 %) and, but for \
     `master`, at P = 2 (medians within a quarter): docs/model.md";
/// No model has more processors.
const MOST_MODELLED: usize = 256;
/// That a fork there is no fork.
pub(super) const FORK_NOTE: &str =
    "a virtual fork copies no address space: the child runs another closure in the same memory";

/// Who computes looks so often who else is there, in nanoseconds: as often as in a model.
const STRETCH_NS: f64 = 25_000.0;
/// The parameter of a modelled cell.
const MODELLED: &str = "modelled";
/// The parameter that names a file of costs, where they are not the library's.
const COSTS: &str = "costs";
/// How many processors the paper's machine had.
const PAPERS: usize = 10;
/// How many a large one of today has; too many to be modelled in a quick run.
const TODAYS: usize = 64;

/// A virtual Unix, on real processors or modelled.
#[derive(Debug, Clone, Copy)]
pub(super) struct System {
    pub(super) mode: LockingMode,
    pub(super) processors: usize,
    pub(super) watch: Watch,
}

/// Who tells the time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Watch {
    /// The machine's clock.
    Machine(Clock),
    /// The model of a system with these costs, which vary by this seed.
    Model { seed: u64, costs: CostModel },
}

impl System {
    /// The model that a cell's parameters describe; if they describe none, as many real processors
    /// as there are, but at most `most`.
    ///
    /// # Errors
    /// Failed, where they describe no model that can be.
    pub(super) fn of_a_cell(mode: LockingMode, params: &Params, most: usize) -> Result<Self> {
        let (processors, watch) = match modelled_with(params)? {
            Some(processors) => (processors, Watch::of_a_model(params)?),
            None => {
                let processors = processors(mode, &pin::allowed()?, most);
                (processors, Watch::Machine(Clock::calibrated()))
            }
        };
        Ok(Self { mode, processors, watch })
    }

    /// Whether its figures are a model's word.
    pub(super) fn is_modelled(self) -> bool {
        matches!(self.watch, Watch::Model { .. })
    }

    /// What has to be said of its figures, whatever they are of.
    pub(super) fn note(self) -> String {
        if self.is_modelled() { MODEL_NOTE } else { CALLS_NOTE }.to_owned()
    }

    /// What its program runs in.
    pub(super) fn builder(self) -> Builder {
        let executor = match self.watch {
            Watch::Machine(_) => Executor::Parallel,
            Watch::Model { seed, .. } => Executor::Modelled { seed },
        };
        let builder = Virtual::builder().mode(self.mode).processors(self.processors);
        let builder = builder.executor(executor);
        match self.watch {
            Watch::Machine(_) => builder,
            Watch::Model { costs, .. } => builder.costs(costs),
        }
    }
}

impl Watch {
    /// Of a model; its costs vary otherwise in each invocation.
    ///
    /// # Errors
    /// Failed, where the parameters name costs that cannot be read.
    pub(super) fn of_a_model(params: &Params) -> Result<Self> {
        let costs = match params.get(COSTS) {
            None => CostModel::published(),
            Some(path) => {
                let text = fs::read_to_string(path).during("reading the costs")?;
                text.parse().map_err(|error| Trouble::fail(format!("{path}: {error}")))?
            }
        };
        Ok(Self::Model { seed: std::process::id().into(), costs })
    }

    /// A stamp before what is timed.
    pub(super) fn begin(self, sys: &dyn Sys) -> u64 {
        match self {
            Self::Machine(clock) => clock.start(),
            Self::Model { .. } => nanoseconds(sys),
        }
    }

    /// Nanoseconds since a stamp.
    pub(super) fn ns_since(self, sys: &dyn Sys, begun: u64) -> f64 {
        match self {
            Self::Machine(clock) => clock.ns_between(begun, clock.stop()),
            Self::Model { .. } => (nanoseconds(sys) - begun) as f64,
        }
    }

    /// Has its processor for so long: what others use of it meanwhile does not count.
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

fn nanoseconds(sys: &dyn Sys) -> u64 {
    u64::try_from(sys.now().as_nanos()).unwrap_or(u64::MAX)
}

/// The cell of a model of so many processors.
pub(super) fn modelled(mut params: Params, processors: usize) -> Params {
    let word = if processors == 1 { "processor" } else { "processors" };
    params.insert(MODELLED.to_owned(), format!("{processors} {word}"));
    params
}

/// The cells of a model of this mode, for each number of processors: one a level. A uniprocessor
/// has one, whatever the others have.
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

/// How many processors a cell is modelled with, if it is.
///
/// # Errors
/// Failed, where that is no number.
pub(super) fn modelled_with(params: &Params) -> Result<Option<usize>> {
    let Some(found) = params.get(MODELLED) else { return Ok(None) };
    let number = found.split(' ').next().and_then(|number| number.parse().ok());
    let number = number.filter(|number| (1..=MOST_MODELLED).contains(number));
    number.map(Some).ok_or_else(|| {
        Trouble::fail(format!("expected a model of 1 to {MOST_MODELLED} processors: `{found}`"))
    })
}

/// The mode that a variant's name means.
pub(super) fn mode(variant: &str) -> Option<LockingMode> {
    LockingMode::ALL.into_iter().find(|mode| mode.to_string() == variant)
}

/// The variants, each a mode.
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
        summary: "virtual Unix, locks of each process in place of the relation lock (its §9)",
    },
];

/// The machine's own kernel, and all modes beside it.
pub(super) const fn beside(linux: Variant) -> [Variant; 1 + VARIANTS.len()] {
    let [uniprocessor, master, coarse, parallel, per_process] = VARIANTS;
    [linux, uniprocessor, master, coarse, parallel, per_process]
}

/// Processors that a mode has here: at most `most`.
pub(super) fn processors(mode: LockingMode, allowed: &[usize], most: usize) -> usize {
    if mode == LockingMode::Uniprocessor { 1 } else { allowed.len().clamp(1, most) }
}

/// Whether the machine has a second processor.
pub(super) fn two_processors(topology: &Topology) -> bool {
    topology.placement("cross-core").is_some()
}

/// That a run ended as it should.
///
/// # Errors
/// Failed: with the state of the system, where it did not.
pub(super) fn ran(report: &RunReport) -> Result<()> {
    let fine = report.status.and_then(|status| status.exited()) == Some(0);
    if fine && report.ending == EndReason::Finished {
        return Ok(());
    }
    let state = report.state.as_ref().map(ToString::to_string).unwrap_or_default();
    let ended = report.status.map_or("did not end".to_owned(), |status| status.to_string());
    Err(Trouble::fail(format!("the virtual Unix {ended} ({:?})\n{state}", report.ending)))
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
        assert_eq!((beside(linux)[0], &beside(linux)[1..]), (linux, &VARIANTS[..]));
        assert_eq!(mode("linux"), None);
    }

    /// Two processes of 8 ms each on one processor took 8 ms together: each had waited for the
    /// clock, whoever used the processor.
    #[test]
    fn who_computes_beside_another_on_one_processor_takes_as_long_as_both() {
        let watch = Watch::Machine(Clock::calibrated());
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
                .expect("there is room");
            }
            let waited = (0..2).all(|_| sys.wait().is_ok());
            seen.store(watch.ns_since(sys, begun) as u64, Ordering::Relaxed);
            i32::from(!waited)
        });
        ran(&report).expect("it ends");
        assert!(took.load(Ordering::Relaxed) >= 2 * each.as_nanos() as u64 * 99 / 100, "{took:?}");
    }

    #[test]
    fn a_run_that_stalls_is_a_failure_that_shows_who_waits() {
        let unix = tontine_unix_sim::Virtual::builder().build().expect("a system");
        let report = unix.run(|sys| {
            sys.pause();
            0
        });
        let found = ran(&report).expect_err("it waits for ever");
        assert!(found.why().contains("Deadlocked") && found.why().contains("program"), "{found}");
    }
}
