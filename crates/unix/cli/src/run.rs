//! `tontine-unix run`: runs a scenario on a virtual system, and prints whether its expectations
//! hold.
//!
//! `document.rs` formats a run as JSON, `bound.rs` stops runs at the limit or on a signal.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
#[cfg(debug_assertions)]
use std::time::{Duration, Instant};

use tontine_command::{CommandFailure, FAILED, print, stopped_by};
use tontine_unix_lab::scenario::{Scenario, ScenarioRun, run as observe};
use tontine_unix_sim::{Builder, Executor, Stopper, Virtual};

use super::bound::Bound;
use super::document::document;
use super::{delivery, masks, mode, processors};
use crate::args::{self, RunScenario, ShownFormat};

/// Maximum size of a scenario's text in bytes.
const MAX_TEXT: u64 = 1 << 20;
/// Maximum number of threads that are alive at the same time.
const MAX_THREADS: usize = 4096;

/// Runs `unix run`.
pub(crate) fn run(args: &RunScenario) -> Result<ExitCode, CommandFailure> {
    let scenario = scenario(&args.file)?;
    let stopper = Stopper::new();
    let bound = Bound::begin(args.limit, &stopper)
        .map_err(CommandFailure::cannot("install signal handlers"))?;
    let mut seed = args.seed;
    let last = args.seed.saturating_add(args.runs - 1);
    // Only the first run that fails is printed, because later runs would hide it.
    let observed = loop {
        let system = system(args, seed).stopper(&stopper);
        let observed = observe(&scenario, system).map_err(CommandFailure::usage)?;
        if !observed.verdict.holds() || stopper.reason().is_some() || seed == last {
            break observed;
        }
        seed += 1;
    };
    let signal = bound.end();
    match args.format {
        ShownFormat::Json => {
            let mut text = serde_json::to_string_pretty(&document(args, seed, &observed))
                .map_err(CommandFailure::failed)?;
            text.push('\n');
            print(text.as_bytes())?;
        }
        ShownFormat::Text | ShownFormat::Columns => {
            print(report(args, seed, &observed).as_bytes())?
        }
    }
    Ok(match signal {
        Some(signal) => stopped_by(signal),
        None if observed.verdict.holds() => ExitCode::SUCCESS,
        None => ExitCode::from(FAILED),
    })
}

/// Reads and parses the scenario in a file.
pub(super) fn scenario(file: &Path) -> Result<Scenario, CommandFailure> {
    let named = file.display();
    let text = read(file).map_err(|why| CommandFailure::usage(format!("{named}: {why}")))?;
    text.parse().map_err(|error| CommandFailure::usage(format!("{named}:{error}")))
}

/// Reads the text of a scenario.
pub(super) fn read(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|file| file.take(MAX_TEXT + 1).read_to_end(&mut bytes));
    opened.map_err(|error| format!("{error}; name a file with a scenario"))?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(format!(
            "expected a scenario of at most {} MiB, found more; shorten it",
            MAX_TEXT >> 20
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: expected text in UTF-8, found other bytes; convert the file")
    })
}

/// Returns a builder for the system that the arguments describe, with this seed.
fn system(args: &RunScenario, seed: u64) -> Builder {
    let executor = match args.executor {
        args::ExecutorName::Simulated => Executor::Simulated { seed },
        args::ExecutorName::Parallel => Executor::Parallel,
    };
    let builder = Virtual::builder()
        .mode(mode(args.mode))
        .processors(processors(args))
        .executor(executor)
        .delivery(delivery(args.delivery))
        .masks(masks(args.masks))
        .statistics(args.statistics)
        .max_stacks(MAX_THREADS);
    with_spin(builder, args)
}

/// Adds a program that cannot be stopped and that no scenario can express: it computes for `--spin`
/// seconds without a system call.
#[cfg(debug_assertions)]
fn with_spin(builder: Builder, args: &RunScenario) -> Builder {
    let Some(seconds) = args.spin else { return builder };
    builder.program("spin", move |_, _| {
        let (start, whole) = (Instant::now(), Duration::from_secs(seconds));
        while start.elapsed() < whole {
            std::hint::spin_loop();
        }
        0
    })
}

/// Adds nothing, because release builds have no `--spin`.
#[cfg(not(debug_assertions))]
fn with_spin(builder: Builder, _: &RunScenario) -> Builder {
    builder
}

/// Returns the timeline and the verdict as text.
fn report(args: &RunScenario, seed: u64, observed: &ScenarioRun) -> String {
    let ScenarioRun { timeline, verdict, report } = observed;
    let mut text = match args.format {
        ShownFormat::Columns => timeline.columns().to_string(),
        ShownFormat::Text | ShownFormat::Json => timeline.to_string(),
    };
    text.push('\n');
    if let Some(state) = &report.state {
        let _ = writeln!(text, "{}", state.brief());
    }
    if let Some(locks) = &report.locks {
        let _ = writeln!(text, "{locks}");
    }
    let file = args.file.display();
    let how = match args.executor {
        args::ExecutorName::Simulated if seed > args.seed && verdict.holds() => {
            format!("simulated, seeds {} to {seed}", args.seed)
        }
        args::ExecutorName::Simulated => format!("simulated, seed {seed}"),
        args::ExecutorName::Parallel if args.runs > 1 => {
            format!("in parallel, run {} of {}", seed - args.seed + 1, args.runs)
        }
        args::ExecutorName::Parallel => "in parallel".to_owned(),
    };
    let processors = match processors(args) {
        1 => "1 processor".to_owned(),
        n => format!("{n} processors"),
    };
    let mode = mode(args.mode);
    // Writing to a string does not fail.
    let _ = writeln!(text, "{file}, {how}, mode {mode}, {processors}:\n{verdict}");
    text
}
