//! Source 003 as published: its programs, run one after another, and their output.
//!
//! The threads that wait for signals come from `lost-signals`, the traces from `thread-vs-process`,
//! and the three times from `false-sharing`. The program with a shared and a thread-local counter
//! is small enough for this file. The source's heap, whose map the program prints, is
//! `tontine::heap::classic`; the counters of `false-sharing` are also in its blocks.

use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tontine_bench::machine::topology::Topology;
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{ErrorContext, MeasureError, Result};

use crate::SUITE;
use crate::false_sharing;
use crate::lost_signals::{ACKNOWLEDGED, AS_IT_IS};
use crate::published::published;
use crate::thread_vs_process::traces;

/// Number of increments of each thread in the source's loops.
const INCREMENTS: u64 = 10_000_000;
/// Number of increments of each thread in a quick run.
const QUICK_INCREMENTS: u64 = 1_000_000;

/// Runs the source's programs and writes their output. If `quick`, shortens them and says so.
///
/// # Errors
/// Returns `Failed` if `out` cannot be written. If the machine refuses a requirement, a line gives
/// the reason.
pub fn reproduce(quick: bool, out: &mut dyn Write) -> Result<()> {
    let size = if quick { Size::Quick } else { Size::Default };
    if quick {
        say(out, format_args!("Reduced from {INCREMENTS} increments for a quick run.\n"))?;
    }
    say(out, format_args!("Threads that handle signals"))?;
    for (variant, title) in [
        ("handler-pause", "a handler and pause()"),
        ("handler-sigsuspend", "a handler and sigsuspend()"),
        ("sigwait-thread", "sigwait()"),
    ] {
        signals(variant, title, size, out)?;
    }
    say(out, format_args!("\nA shared and a thread-local counter"))?;
    counters(if quick { QUICK_INCREMENTS } else { INCREMENTS }, out)?;
    say(out, format_args!("\nA thread and a process, traced\n"))?;
    match traces() {
        Ok(text) => say(out, format_args!("{text}"))?,
        Err(trouble) => say(out, format_args!("{trouble}"))?,
    }
    say(out, format_args!("\nFalse sharing"))?;
    match false_sharing::map() {
        Ok(map) => say(out, format_args!("{}", map.to_string().trim_end()))?,
        Err(trouble) => say(out, format_args!("the heap's map: {trouble}"))?,
    }
    for (variant, title) in [
        ("serial", "one after the other"),
        ("one-line", "two threads, one line"),
        ("two-lines", "two threads, two lines"),
    ] {
        sharing(variant, title, size, out)?;
    }
    say(
        out,
        format_args!(
            "\nToday: the race before pause() is some ten instructions wide and hardly ever hit \
             by chance; `tontine measure lost-signals` widens it. A compiler that optimises makes \
             each loop of ten million increments one addition; ours may not. The three times of \
             false sharing are those of the loops alone; the published ones are of whole \
             programs, which also create their threads, wait for them and print. For intervals: \
             tontine measure lost-signals thread-local thread-vs-process false-sharing."
        ),
    )
}

/// Returns the task that sends signals one after another to a thread that waits for them as in the
/// source's programs: the gap between two waits is not widened. The usual cell of a variant may
/// widen it.
fn waiting(variant: &str, size: Size) -> InvocationTask {
    let usual = Topology::of_this_machine();
    let placement = usual.placements().first().map_or("same-core", |usual| usual.name);
    let params = [("sending", ACKNOWLEDGED), ("window", AS_IT_IS), ("placement", placement)];
    let params: Params =
        params.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    InvocationTask { experiment: "lost-signals".into(), variant: variant.into(), params, size }
}

/// Writes how many signals a wait method received.
fn signals(variant: &str, title: &str, size: Size, out: &mut dyn Write) -> Result<()> {
    match observe(&waiting(variant, size), "lost") {
        Ok(each) => {
            let lost = each.iter().sum::<f64>();
            let seen = each.len() as f64 - lost;
            say(out, format_args!("{title:>28}: got {seen:.0} of {} signals", each.len()))
        }
        Err(trouble) => say(out, format_args!("{title:>28}: {trouble}")),
    }
}

/// Counts in two threads, in a shared variable and in a thread-local one, and prints both counts.
fn counters(increments: u64, out: &mut dyn Write) -> Result<()> {
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    let shared = AtomicU64::new(0);
    let count = || {
        for _ in 0..increments {
            // Like a compiled `x++`: a load, an addition and a store, not atomic as a whole.
            shared.store(shared.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            OWN.set(std::hint::black_box(OWN.get()) + 1);
        }
        (shared.load(Ordering::Relaxed), OWN.get())
    };
    let printed = thread::scope(|scope| {
        let threads = [scope.spawn(count), scope.spawn(count)];
        threads.map(|thread| thread.join().expect("counting does not panic"))
    });
    for (x, y) in printed {
        say(out, format_args!("x={x}, y={y}"))?;
    }
    let lost = 2 * increments - shared.into_inner();
    say(out, format_args!("{lost} of {} increments of x are lost, of y none", 2 * increments))
}

fn sharing(variant: &str, title: &str, size: Size, out: &mut dyn Write) -> Result<()> {
    let task = usual("false-sharing", variant, size)?;
    let source = published("false-sharing", variant, "both", &task.params);
    let source = source.first().map_or_else(String::new, |found| {
        format!(" (published: {:.0} ms, machine not named)", found.value / 1e6)
    });
    match observe(&task, "both") {
        Ok(each) => {
            let ms = order::median(&each).unwrap_or(f64::NAN) / 1e6;
            say(out, format_args!("{title:>28}: {ms:.1} ms{source}"))
        }
        Err(trouble) => say(out, format_args!("{title:>28}: {trouble}{source}")),
    }
}

/// Returns the samples of one metric of a task.
fn observe(task: &InvocationTask, metric: &str) -> Result<Vec<f64>> {
    let found = SUITE.find(&task.experiment).map(|experiment| experiment.run(task));
    let observed =
        found.unwrap_or_else(|| Err(MeasureError::fail("there is no such experiment")))?;
    let series = observed.series.into_iter().find(|series| series.metric == metric);
    let lack = || MeasureError::fail(format!("{} yielded no series {metric}", task.experiment));
    Ok(series.ok_or_else(lack)?.samples)
}

/// Returns the usual cell of a variant: the first one that the experiment lists.
fn usual(experiment: &str, variant: &str, size: Size) -> Result<InvocationTask> {
    let topology = Topology::of_this_machine();
    let cells = SUITE
        .find(experiment)
        .map(|experiment| experiment.params(variant, &topology, size))
        .unwrap_or_default();
    let params = cells.into_iter().next().ok_or_else(|| {
        MeasureError::skip(format!("{experiment}/{variant} has no cell on this machine"))
    })?;
    Ok(InvocationTask { experiment: experiment.into(), variant: variant.into(), params, size })
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(out, "{line}").during("writing what the programs print")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    /// Regression: two of the three variants worked for 10 µs between two waits, which no program
    /// of the source does.
    #[test]
    fn source_003_signal_programs_have_no_window() {
        let experiment = SUITE.find("lost-signals").expect("it is there");
        let cells = experiment.params("handler-pause", &Topology::of_this_machine(), Size::Quick);
        let waits = waiting("handler-pause", Size::Quick).params;
        assert!(cells.contains(&waits), "{waits:?} is none of {cells:?}");
        for variant in ["handler-sigsuspend", "sigwait-thread"] {
            assert_eq!(waiting(variant, Size::Default).params, waits, "{variant}");
        }
    }

    #[test]
    fn source_003_quick_run_prints_every_program() {
        in_a_process_of_its_own(|| {
            let mut out = Vec::new();
            reproduce(true, &mut out).map_err(|trouble| trouble.to_string())?;
            let text = String::from_utf8(out).map_err(|error| error.to_string())?;
            let in_order = [
                "Reduced from 10000000 increments",
                "Threads that handle signals\n",
                "a handler and pause(): got ",
                "a handler and sigsuspend(): got 100 of 100 signals\n",
                "sigwait(): got 100 of 100 signals\n",
                "A shared and a thread-local counter\n",
                "increments of x are lost, of y none\n",
                "A thread and a process, traced\n",
                "False sharing\nHeap (0x",
                "header: [16:a] footer: [16:a]\n",
                "header: [48:a] footer: [48:a]\n",
                "header: [32:a] footer: [32:a]\n",
                "header: [32:a] footer: [32:a]\n",
                "header: [3984:f] footer: [3984:f]\n",
                ": EOL\n",
                "one after the other: ",
                "two threads, one line: ",
                "two threads, two lines: ",
                "Today: ",
                "whole programs, which also create their threads",
            ];
            let mut rest = text.as_str();
            for part in in_order {
                let Some(at) = rest.find(part) else {
                    return Err(format!("expected `{part}` here: {rest}"));
                };
                rest = &rest[at + part.len()..];
            }
            if text.contains("failed") { Err(text) } else { Ok(()) }
        });
    }

    #[test]
    fn thread_local_counter_is_exact_and_shared_losses_counted() {
        let mut out = Vec::new();
        counters(1_000, &mut out).expect("counted");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text.matches("y=1000\n").count(), 2, "{text}");
        assert!(text.contains("of 2000 increments of x are lost"), "{text}");
    }
}
