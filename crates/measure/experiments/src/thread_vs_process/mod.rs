//! The cost of creating a thread or a process and waiting for its end: [`ThreadVsProcess`].
//! [`ballast`] provides the parent's memory, [`Creator`] the ways to create.

mod ballast;

use std::time::{Duration, Instant};

use tontine_bench::os::fork_trim::ForkTrim;
use tontine_mechanisms::creation::Creator;

use crate::prelude::*;
use crate::strace::{self, TraceLine};
use ballast::Ballast;

pub(crate) struct ThreadVsProcess;

/// The parents: name, and touched memory in bytes in addition to that of the small process.
const PARENTS: [(&str, u64); 3] = [("small", 0), ("1 MiB", 1 << 20), ("1 GiB", 1 << 30)];
/// The placements: all on one processor, or chosen by the scheduler.
const PLACES: [&str; 2] = ["same-core", "unpinned"];
/// The variants of a small parent, which are processes that exit as a program does.
const EXITING: [&str; 4] = ["fork", "posix-spawn", "clone-vfork", "clone3-exit"];
/// The variants that are measured with no other parent.
const SMALL_ONLY: [&str; 2] = ["clone-vfork", "clone3-exit"];
const FEWEST: usize = 3;

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
    fn facts(&self) -> Facts {
        card!("card.md")
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
        let [small, usual, huge] = PARENTS.map(|(name, _)| name);
        let [pinned, free] = PLACES;
        // On a single processor both placements are the same.
        let several = pin::allowed().is_ok_and(|allowed| allowed.len() > 1);
        let mut cells = Vec::new();
        if !SMALL_ONLY.contains(&variant) {
            cells.push((usual, pinned));
            cells.extend(large.then_some((huge, pinned)));
            cells.extend((by_name && size != Size::Quick).then_some((usual, free)));
        }
        if EXITING.contains(&variant) {
            cells.push((small, pinned));
            cells.extend(several.then_some((small, free)));
        }
        let cell = |(parent, placement)| params([("parent", parent), ("placement", placement)]);
        cells.into_iter().map(cell).collect()
    }

    /// The duration of an invocation in ms, which determines the number of creations.
    fn operations(&self, _: &str, size: Size) -> usize {
        CreationPlan::of(size).budget.as_millis() as usize
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let found = word(&task.params, "parent");
        let parent = PARENTS.into_iter().find(|(name, _)| *name == found);
        let (name, bytes) = parent.ok_or_else(|| unknown("thread-vs-process", "parent", found))?;
        let place = word(&task.params, "placement");
        let pinned = match place {
            "same-core" => true,
            "unpinned" => false,
            other => return Err(unknown("thread-vs-process", "placement", other)),
        };
        let mut observed = measure(&task.variant, bytes, pinned, CreationPlan::of(task.size))?;
        if (name, place) == ("1 MiB", "same-core") {
            observed.notes.extend(seen(&task.variant));
        }
        Ok(observed)
    }
}

fn creator(variant: &str) -> Result<Creator> {
    match variant {
        "thread" => Ok(Creator::Thread),
        "fork" => Ok(Creator::Fork),
        "vfork" => Ok(Creator::Vfork),
        "posix-spawn" => Creator::posix_spawn(),
        "clone3" => Ok(Creator::bare_clone3()),
        "clone3-vfork" => Ok(Creator::bare_clone3_as_vfork()),
        "clone-vfork" => Ok(Creator::clone_as_vfork()),
        "clone3-exit" => Ok(Creator::Clone3),
        "clone3-thread" => Creator::bare_thread(),
        other => Err(unknown("thread-vs-process", "variant", other)),
    }
}

fn measure(variant: &str, bytes: u64, pinned: bool, plan: CreationPlan) -> Result<Observed> {
    capacity::for_memory(bytes)?;
    let creator = creator(variant)?;
    if pinned {
        pin::pin_to(pin::first()?)?;
    }
    let _trimmed = ForkTrim::now();
    let ballast = (bytes > 0).then(|| Ballast::touched(bytes)).transpose()?;
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
    let notes = ballast.map(|ballast| ballast.note()).into_iter().collect();
    Ok(Observed::of([Series::ns("create_join", samples)], notes))
}

/// Traces a creation by the C library and describes it in a few lines. Called after the timing, so
/// that the tracing thread and its child disturb nothing.
fn seen(variant: &str) -> Vec<String> {
    let (what, creator) = match variant {
        "thread" => ("pthread_create and pthread_join", Creator::Thread),
        "fork" => ("fork and waitpid", Creator::Fork),
        _ => return Vec::new(),
    };
    let lines = match creation(&creator) {
        Ok(lines) => lines,
        Err(error) => return vec![format!("the system calls could not be traced: {error}")],
    };
    let mut notes = vec![format!("traced, {what}: {}", strace::in_short(&lines))];
    for line in &lines {
        if let (Some(call), Some((flags, signal))) = (line.call(), line.creation()) {
            let signal = if signal == "0" { "" } else { ", exit_signal=SIGCHLD" };
            notes.push(format!("traced, {call}: flags={flags}{signal}"));
        } else if line.is_signal() {
            notes.push(format!(
                "traced, the signal that it sends: si_code={}, si_status={}",
                line.field("si_code").unwrap_or("?"),
                line.field("si_status").unwrap_or("?")
            ));
        }
    }
    notes
}

/// Returns the two traces of source 003: of `pthread_create` and `pthread_join`, and of `fork` and
/// `waitpid`.
pub(crate) fn traces() -> Result<[Vec<TraceLine>; 2]> {
    Ok([creation(&Creator::Thread)?, creation(&Creator::Fork)?])
}

fn creation(creator: &Creator) -> Result<Vec<TraceLine>> {
    strace::trace(|| creator.create_and_wait().expect("a creation"))
}

#[cfg(test)]
mod tests;
