//! `tontine unix run`: runs a scenario on a virtual system, and prints whether its expectations
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

use tontine_unix_lab::scenario::{Scenario, ScenarioRun, run as observe};
use tontine_unix_sim::{Builder, Executor, Stopper, Virtual};

use super::bound::Bound;
use super::document::document;
use super::{delivery, masks, mode, processors};
use crate::args::{self, RunScenario, ShownFormat};
use crate::{CommandFailure, FAILED, print, stopped_by};

/// Maximum size of a scenario's text in bytes.
const MAX_TEXT: u64 = 1 << 20;
/// Maximum number of threads that are alive at the same time.
const MAX_THREADS: usize = 4096;

/// Runs `unix run`.
pub(crate) fn run(asked: &RunScenario) -> Result<ExitCode, CommandFailure> {
    let scenario = scenario(&asked.file)?;
    let stopper = Stopper::new();
    let bound = Bound::begin(asked.limit, &stopper)
        .map_err(CommandFailure::cannot("install signal handlers"))?;
    let mut seed = asked.seed;
    let last = asked.seed.saturating_add(asked.runs - 1);
    // Only the first run that fails is printed, because later runs would hide it.
    let observed = loop {
        let system = system(asked, seed).stopper(&stopper);
        let observed = observe(&scenario, system).map_err(CommandFailure::usage)?;
        if !observed.verdict.holds() || stopper.reason().is_some() || seed == last {
            break observed;
        }
        seed += 1;
    };
    let signal = bound.end();
    match asked.format {
        ShownFormat::Json => {
            let mut text = serde_json::to_string_pretty(&document(asked, seed, &observed))
                .map_err(CommandFailure::failed)?;
            text.push('\n');
            print(text.as_bytes())?;
        }
        ShownFormat::Text | ShownFormat::Columns => {
            print(report(asked, seed, &observed).as_bytes())?
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
fn system(asked: &RunScenario, seed: u64) -> Builder {
    let executor = match asked.executor {
        args::ExecutorName::Simulated => Executor::Simulated { seed },
        args::ExecutorName::Parallel => Executor::Parallel,
    };
    let builder = Virtual::builder()
        .mode(mode(asked.mode))
        .processors(processors(asked))
        .executor(executor)
        .delivery(delivery(asked.delivery))
        .masks(masks(asked.masks))
        .statistics(asked.statistics)
        .max_stacks(MAX_THREADS);
    with_spin(builder, asked)
}

/// Adds a program that cannot be stopped and that no scenario can express: it computes for `--spin`
/// seconds without a system call.
#[cfg(debug_assertions)]
fn with_spin(builder: Builder, asked: &RunScenario) -> Builder {
    let Some(seconds) = asked.spin else { return builder };
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
fn report(asked: &RunScenario, seed: u64, observed: &ScenarioRun) -> String {
    let ScenarioRun { timeline, verdict, report } = observed;
    let mut text = match asked.format {
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
    let file = asked.file.display();
    let how = match asked.executor {
        args::ExecutorName::Simulated if seed > asked.seed && verdict.holds() => {
            format!("simulated, seeds {} to {seed}", asked.seed)
        }
        args::ExecutorName::Simulated => format!("simulated, seed {seed}"),
        args::ExecutorName::Parallel if asked.runs > 1 => {
            format!("in parallel, run {} of {}", seed - asked.seed + 1, asked.runs)
        }
        args::ExecutorName::Parallel => "in parallel".to_owned(),
    };
    let processors = match processors(asked) {
        1 => "1 processor".to_owned(),
        n => format!("{n} processors"),
    };
    let mode = mode(asked.mode);
    // Writing to a string does not fail.
    let _ = writeln!(text, "{file}, {how}, mode {mode}, {processors}:\n{verdict}");
    text
}
