//! `tontine unix run`: runs a scenario on a virtual system, and says whether what it expects holds.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use tontine_unix::scenario::{EventKind, Failure, Observed, Record, Scenario, run as observe};
use tontine_unix::{Builder, Executor, Virtual};

use super::mode;
use crate::args::{self, RunScenario, Shown};
use crate::{FAILED, Refusal, print};

/// Carries out `unix run`.
pub(crate) fn run(asked: &RunScenario) -> Result<ExitCode, Refusal> {
    let file = asked.file.display();
    let text = std::fs::read_to_string(&asked.file);
    let text = text.map_err(|error| Refusal::usage(format!("{file}: {error}")))?;
    let scenario: Scenario =
        text.parse().map_err(|error| Refusal::usage(format!("{file}:{error}")))?;
    let mut seed = asked.seed;
    let last = asked.seed.saturating_add(asked.runs - 1);
    // One run that fails is what matters: the others would hide it.
    let observed = loop {
        let observed = observe(&scenario, system(asked, seed)).map_err(Refusal::usage)?;
        if !observed.verdict.holds() || seed == last {
            break observed;
        }
        seed += 1;
    };
    match asked.format {
        Shown::Json => {
            let mut text = serde_json::to_string_pretty(&document(asked, seed, &observed))
                .map_err(Refusal::failed)?;
            text.push('\n');
            print(text.as_bytes())?;
        }
        Shown::Text | Shown::Columns => print(report(asked, seed, &observed).as_bytes())?,
    }
    let holds = observed.verdict.holds();
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// The system that was asked for, with this seed.
fn system(asked: &RunScenario, seed: u64) -> Builder {
    let executor = match asked.executor {
        args::ExecutorName::Simulated => Executor::Simulated { seed },
        args::ExecutorName::Parallel => Executor::Parallel,
    };
    let mode = mode(asked.mode);
    Virtual::builder().mode(mode).processors(processors(asked)).executor(executor)
}

/// Two where the mode has more than one.
fn processors(asked: &RunScenario) -> usize {
    let usual = if asked.mode == args::ModeName::Uniprocessor { 1 } else { 2 };
    asked.processors.map_or(usual, usize::from)
}

/// The timeline and the verdict.
fn report(asked: &RunScenario, seed: u64, observed: &Observed) -> String {
    let Observed { timeline, verdict, report } = observed;
    let mut text = match asked.format {
        Shown::Columns => timeline.columns().to_string(),
        Shown::Text | Shown::Json => timeline.to_string(),
    };
    text.push('\n');
    if let Some(state) = &report.state {
        text.push_str(&format!("{state}\n"));
    }
    let file = asked.file.display();
    let how = match asked.executor {
        args::ExecutorName::Simulated if seed > asked.seed && verdict.holds() => {
            format!("simulated, seeds {} to {seed}", asked.seed)
        }
        args::ExecutorName::Simulated => format!("simulated, seed {seed}"),
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

fn document(asked: &RunScenario, seed: u64, observed: &Observed) -> Value {
    let Observed { timeline, verdict, report } = observed;
    let is_simulated = asked.executor == args::ExecutorName::Simulated;
    json!({
        "file": asked.file.display().to_string(),
        "mode": mode(asked.mode).to_string(),
        "processors": processors(asked),
        "seed": is_simulated.then_some(seed),
        "holds": verdict.holds(),
        "failures": verdict.failures.iter().map(failure).collect::<Vec<_>>(),
        "timeline": timeline.records.iter().map(record).collect::<Vec<_>>(),
        "steps": is_simulated.then_some(report.steps),
        "elapsed_ns": u64::try_from(report.elapsed.as_nanos()).unwrap_or(u64::MAX),
    })
}

fn failure(failure: &Failure) -> Value {
    json!({
        "line": failure.line,
        "process": failure.process,
        "what": failure.what,
        "expected": failure.expected,
        "found": failure.found,
    })
}

fn record(record: &Record) -> Value {
    let kind = match record.kind {
        EventKind::Began => "began",
        EventKind::Call => "call",
        EventKind::Handler => "handler",
        EventKind::Note => "note",
        EventKind::Miss => "miss",
    };
    json!({
        "at_ns": u64::try_from(record.at.as_nanos()).unwrap_or(u64::MAX),
        "pid": record.pid,
        "tid": record.tid,
        "process": record.name,
        "line": record.line,
        "kind": kind,
        "what": record.what,
        "result": record.result,
        "found": record.found,
    })
}
