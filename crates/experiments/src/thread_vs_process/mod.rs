//! The cost of creating a thread or a process and waiting for its end: [`ThreadVsProcess`].
//!
//! [`ballast`] provides the parent's memory, [`Creator`] implements the ways to create, and
//! `explained` is the text for readers. [`tontine_host::trace`] traces the system calls.
//!
//! Source 003 shows the system calls but no times. `fork-throughput` measures how processes disturb
//! each other. The maximum number of processes is not measured.

mod ballast;
mod explained;

use std::time::{Duration, Instant};

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::fork_trim::ForkTrim;
use tontine_host::os::{pin, room};
use tontine_host::trace::{self, TraceEvent};
use tontine_mechanisms::creation::Creator;

use ballast::Ballast;

/// The experiment `thread-vs-process`.
#[derive(Debug, Clone, Copy)]
pub struct ThreadVsProcess;

/// The parents: name, and touched memory in bytes.
const PARENTS: [(&str, u64); 2] = [("1 MiB", 1 << 20), ("1 GiB", 1 << 30)];
/// The placements: all on one processor, or chosen by the scheduler.
const PLACES: [&str; 2] = ["same-core", "unpinned"];
/// Minimum number of samples of an invocation.
const FEWEST: usize = 3;

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("thread", "pthread_create of a function that does nothing, and pthread_join"),
    variant("fork", "the C library's fork of a child that exits immediately, and waitpid"),
    variant("vfork", "the system call vfork of a child that exits immediately, and wait4"),
    variant("posix-spawn", "posix_spawn of a program that only exits, and waitpid"),
    variant("clone3", "bare clone3 without flags: a fork without the C library"),
    variant("clone3-vfork", "bare clone3 with CLONE_VM|CLONE_VFORK"),
    variant("clone3-thread", "bare clone3 with a thread's flags but no stack or TLS to set up"),
];

/// Time and maximum number of samples of an invocation.
#[derive(Debug, Clone, Copy)]
struct CreationPlan {
    samples: usize,
    budget: Duration,
}

impl CreationPlan {
    fn of(size: Size) -> Self {
        let (samples, budget_ms) = match size {
            Size::Quick => (200, 25),
            Size::Default => (1_000, 50),
            Size::Full => (20_000, 1_000),
        };
        Self { samples, budget: Duration::from_millis(budget_ms) }
    }
}

impl Experiment for ThreadVsProcess {
    fn name(&self) -> &'static str {
        "thread-vs-process"
    }

    fn summary(&self) -> &'static str {
        "What does it cost to create a thread or a process, and to wait for its end?"
    }

    fn topic(&self) -> Topic {
        Topic::Processes
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    /// Returns the cells. Touching 1 GiB takes longer than measuring with it. A quick run therefore
    /// does it only for the two variants in the experiment's name, a default run also for
    /// posix-spawn, the usual replacement of fork, and a full run for all variants.
    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let by_name = ["thread", "fork"].contains(&variant);
        let large = match size {
            Size::Quick => by_name,
            Size::Default => by_name || variant == "posix-spawn",
            Size::Full => true,
        };
        let [(small, _), (huge, _)] = PARENTS;
        let [pinned, free] = PLACES;
        let mut cells = vec![cell(small, pinned)];
        if large {
            cells.push(cell(huge, pinned));
        }
        if by_name && size != Size::Quick {
            cells.push(cell(small, free));
        }
        cells
    }

    /// The duration of an invocation in ms, which determines the number of creations.
    fn operations(&self, _: &str, size: Size) -> usize {
        CreationPlan::of(size).budget.as_millis() as usize
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let found = task.params.get("parent").map_or("", String::as_str);
        let parent = PARENTS.into_iter().find(|(name, _)| *name == found);
        let (name, bytes) = parent.ok_or_else(|| {
            MeasureError::fail(format!("expected parent to be 1 MiB or 1 GiB, found `{found}`"))
        })?;
        let place = task.params.get("placement").map_or(PLACES[0], String::as_str);
        let pinned = match place {
            "same-core" => true,
            "unpinned" => false,
            other => {
                let text = format!("expected placement same-core or unpinned, found `{other}`");
                return Err(MeasureError::fail(text));
            }
        };
        let mut observed = measure(&task.variant, bytes, pinned, CreationPlan::of(task.size))?;
        if (name, place) == (PARENTS[0].0, PLACES[0]) {
            observed.notes.extend(seen(&task.variant));
        }
        Ok(observed)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("fork", "thread"),
            ("vfork", "thread"),
            ("posix-spawn", "thread"),
            ("clone3", "fork"),
            ("clone3-vfork", "vfork"),
            ("clone3-thread", "thread"),
        ]
    }
}

fn cell(parent: &str, placement: &str) -> Params {
    Params::from([
        ("parent".to_owned(), parent.to_owned()),
        ("placement".to_owned(), placement.to_owned()),
    ])
}

/// Returns the [`Creator`] of a variant.
///
/// # Errors
/// Returns `Failed` if there is no such variant, and `Skipped` if the system refuses a requirement.
fn creator(variant: &str) -> Result<Creator> {
    match variant {
        "thread" => Ok(Creator::Thread),
        "fork" => Ok(Creator::Fork),
        "vfork" => Ok(Creator::Vfork),
        "posix-spawn" => Creator::posix_spawn(),
        "clone3" => Ok(Creator::bare_clone3()),
        "clone3-vfork" => Ok(Creator::bare_clone3_as_vfork()),
        "clone3-thread" => Creator::bare_thread(),
        other => Err(MeasureError::fail(format!("thread-vs-process has no variant {other}"))),
    }
}

/// Creates and waits repeatedly, with `bytes` bytes of touched memory in the parent.
fn measure(variant: &str, bytes: u64, pinned: bool, plan: CreationPlan) -> Result<Observed> {
    room::for_memory(bytes)?;
    let creator = creator(variant)?;
    if pinned {
        let allowed = pin::allowed()?;
        let first = allowed.first();
        pin::pin_to(*first.ok_or_else(|| MeasureError::skip("sched_getaffinity: no processor"))?)?;
    }
    let _lean = ForkTrim::now();
    let ballast = Ballast::touched(bytes)?;
    let clock = Clock::calibrated();
    // The first creation fills the C library's cache of stacks, and shows whether creation is
    // permitted.
    creator.create_and_wait()?;
    let mut samples = Vec::with_capacity(plan.samples);
    let began = Instant::now();
    while samples.len() < plan.samples && (samples.len() < FEWEST || began.elapsed() < plan.budget)
    {
        let from = clock.start();
        creator.create_and_wait()?;
        samples.push(clock.ns_between(from, clock.stop()));
    }
    let notes = ballast.notes();
    Ok(Observed { series: vec![Series::ns("create_join", samples)], notes, ..Observed::default() })
}

/// Traces a creation by the C library and describes it in a few lines. Called after the timing, so
/// that the tracing thread and its child disturb nothing.
fn seen(variant: &str) -> Vec<String> {
    let (what, events) = match variant {
        "thread" => ("pthread_create and pthread_join", trace::pthread_create()),
        "fork" => ("fork and waitpid", trace::fork()),
        _ => return Vec::new(),
    };
    let events = match events {
        Ok(events) => events,
        Err(trouble) => return vec![format!("the system calls could not be traced: {trouble}")],
    };
    let mut notes = vec![format!("traced, {what}: {}", trace::in_short(&events))];
    for event in &events {
        match event {
            TraceEvent::Call(call) => notes.extend(call.creates.map(|creation| {
                let (title, flags) = (call.title(), creation.flag_names());
                let signal = if creation.exit_signal == 0 { "" } else { ", exit_signal=SIGCHLD" };
                format!("traced, {title}: flags={flags}{signal}")
            })),
            TraceEvent::Signal(_, arrived) => notes.push(format!(
                "traced, the signal that it sends: si_code={}, si_status={}",
                arrived.code_name(),
                arrived.end.map_or(0, |end| end.status)
            )),
            TraceEvent::Ended(..) => {}
        }
    }
    notes
}

/// Returns the two traces of source 003: of `pthread_create` and `pthread_join`, and of `fork` and
/// `waitpid`.
///
/// # Errors
/// Returns the errors of [`trace::events`].
pub(crate) fn traces() -> Result<[Vec<TraceEvent>; 2]> {
    Ok([trace::pthread_create()?, trace::fork()?])
}

#[cfg(test)]
mod tests;
