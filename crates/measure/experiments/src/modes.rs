//! The modes of the virtual Unix as variants: [`mode`], [`run`]. The modes run on real processors
//! or on a model: [`System`].
//!
//! Source 001 compares two kernels: one that does all process and signal work on a master
//! processor, and one that does it in parallel. Both are modes of `tontine-unix-sim`. The
//! experiments decide what they measure in each mode.

use std::fs;
use std::time::Duration;

use std::sync::{Arc, Mutex, PoisonError};

use tontine_unix::{Fd, Sys};
use tontine_unix_sim::{
    Builder, CostKind, CostModel, EndReason, Executor, LockingMode, RunReport, Virtual,
};

use crate::prelude::*;

const CALLS_NOTE: &str =
    "a virtual Unix inside one process: a system call is a function call, not a trap";
pub(super) const MODEL_NOTE: &str = "simulation, validated at P = 1 (within 10 %) and, except for \
                                     `master`, at P = 2 (medians within a quarter): \
                                     docs/reference/model.md";
const MOST_MODELLED: usize = 256;
pub(super) const FORK_NOTE: &str =
    "a virtual fork copies no address space: the child runs another closure in the same memory";

/// Interval in nanoseconds at which a computing process lets others run. A model uses the same.
const STRETCH_NS: f64 = 25_000.0;
const MODELLED: &str = "modelled";
/// The parameter that names a file of costs, or replaces some of the library's costs, such as
/// `fork=100000 exit=30000` (in nanoseconds). Without it, the library's costs apply.
pub(super) const COSTS: &str = "costs";
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

#[derive(Debug, Clone, Copy)]
pub(super) enum TimeSource {
    Machine(Clock),
    /// A model with these costs, which vary with this seed.
    Model {
        seed: u64,
        costs: CostModel,
    },
}

impl System {
    /// Returns the model that a cell's parameters describe. Without such parameters, returns a
    /// system on this machine's processors, at most `most` of them.
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

    pub(super) fn is_modelled(self) -> bool {
        matches!(self.watch, TimeSource::Model { .. })
    }

    pub(super) fn note(self) -> String {
        if self.is_modelled() { MODEL_NOTE } else { CALLS_NOTE }.to_owned()
    }

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

    pub(super) fn begin(self, sys: &dyn Sys) -> u64 {
        match self {
            Self::Machine(clock) => clock.start(),
            Self::Model { .. } => nanoseconds(sys),
        }
    }

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

pub(super) fn mode(variant: &str) -> Option<LockingMode> {
    LockingMode::ALL.into_iter().find(|mode| mode.to_string() == variant)
}

pub(super) fn processors(mode: LockingMode, allowed: &[usize], most: usize) -> usize {
    if mode == LockingMode::Uniprocessor { 1 } else { allowed.len().clamp(1, most) }
}

pub(super) fn two_processors(topology: &Topology) -> bool {
    topology.placement("cross-core").is_some()
}

/// The findings of the processes of a virtual Unix.
#[derive(Debug)]
pub(super) struct Found<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Found<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Found<T> {
    pub(super) fn push(&self, one: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }

    pub(super) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a program in a system. Returns what its processes have found, and the report.
pub(super) fn run<T: Send + 'static>(
    builder: Builder,
    program: impl FnOnce(&dyn Sys, &Found<T>) -> tontine_unix::Result<()> + Send + 'static,
) -> Result<(Vec<T>, RunReport)> {
    let unix = builder.build().map_err(|error| MeasureError::fail(error.to_string()))?;
    let all = Found(Arc::default());
    let found = all.clone();
    let report = unix.run(move |sys| i32::from(program(sys, &found).is_err()));
    ran(&report)?;
    Ok((all.take(), report))
}

/// Waits at a gate, a pipe, until no process holds its other end open.
pub(super) fn pass(sys: &dyn Sys, (gate, other_end): (Fd, Fd)) -> tontine_unix::Result<()> {
    sys.close(other_end)?;
    while sys.read(gate, &mut [0])? > 0 {}
    Ok(())
}

/// Waits for children, each of which must exit with status 0.
pub(super) fn reap(sys: &dyn Sys, children: usize) -> tontine_unix::Result<()> {
    let mut failed = false;
    for _ in 0..children {
        failed |= sys.wait()?.status.exited() != Some(0);
    }
    if failed { Err(tontine_unix::Errno::EIO) } else { Ok(()) }
}

/// Checks that a run ended with status 0.
fn ran(report: &RunReport) -> Result<()> {
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

    /// Regression: two processes of 8 ms each on one processor took 8 ms together, because each
    /// process waited for the clock even while the other used the processor.
    #[test]
    fn computing_times_on_one_processor_add_up() {
        let watch = TimeSource::Machine(Clock::calibrated());
        let system = System { mode: LockingMode::Parallel, processors: 1, watch };
        let each = Duration::from_millis(8);
        let (took, _) = run(system.builder(), move |sys, took| {
            let begun = watch.begin(sys);
            for _ in 0..2 {
                sys.fork(move |sys| {
                    watch.compute(sys, each);
                    0
                })?;
            }
            reap(sys, 2)?;
            took.push(watch.ns_since(sys, begun));
            Ok(())
        })
        .expect("it ends");
        assert!(took[0] >= 2.0 * each.as_nanos() as f64 * 0.99, "{took:?}");
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
