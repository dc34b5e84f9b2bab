//! A run of a scenario as JSON, for programs: [`document`].

use serde_json::{Value, json};
use tontine_unix::SigSet;
use tontine_unix_lab::scenario::{EventKind, FailedExpectation, Record, ScenarioRun};
use tontine_unix_sim::{LockRow, ProcessState, SystemState, ThreadState};

use super::{mode, processors};
use crate::args::{self, RunScenario};

/// Returns the run with its verdict, events, state, locks and times.
pub(super) fn document(args: &RunScenario, seed: u64, observed: &ScenarioRun) -> Value {
    let ScenarioRun { timeline, verdict, report } = observed;
    let is_simulated = args.executor == args::ExecutorName::Simulated;
    json!({
        "file": args.file.display().to_string(),
        "mode": mode(args.mode).to_string(),
        "processors": processors(args),
        "executor": if is_simulated { "simulated" } else { "parallel" },
        "seed": is_simulated.then_some(seed),
        "holds": verdict.holds(),
        "failures": verdict.failures.iter().map(failure).collect::<Vec<_>>(),
        "timeline": timeline.records.iter().map(record).collect::<Vec<_>>(),
        "state": report.state.as_ref().map_or_else(Vec::new, state),
        "locks": report.locks.as_ref().map(|locks| locks.rows.iter().map(lock).collect::<Vec<_>>()),
        "steps": is_simulated.then_some(report.steps),
        "elapsed_ns": u64::try_from(report.elapsed.as_nanos()).unwrap_or(u64::MAX),
    })
}

fn failure(failure: &FailedExpectation) -> Value {
    json!({
        "line": failure.line,
        "process": failure.process,
        "thread": failure.thread,
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

/// Returns the remaining processes of a run that did not end.
fn state(state: &SystemState) -> Vec<Value> {
    let thread = |thread: &ThreadState| {
        json!({
            "tid": thread.tid,
            "call": thread.call,
            "sleeps": thread.sleeps,
            "object": thread.object.trim_start(),
            "other_end": thread.other_end,
            "blocked": names(thread.blocked),
            "pending": names(thread.pending),
            "locks": thread.locks,
        })
    };
    let process = |process: &ProcessState| {
        json!({
            "pid": process.pid,
            "parent": process.parent,
            "group": process.group,
            "session": process.session,
            "state": process.letter.to_string(),
            "process": process.name,
            "end": process.end.map(|end| end.to_string()),
            "pending": names(process.pending),
            "threads": process.threads.iter().map(thread).collect::<Vec<_>>(),
        })
    };
    state.processes.iter().map(process).collect()
}

fn lock(row: &LockRow) -> Value {
    json!({
        "name": row.name,
        "acquisitions": row.acquisitions,
        "waited": row.waited,
        "blocked": row.blocked,
        "timed": row.timed,
        "held_ns": row.held_ns,
        "held_max_ns": row.held_max_ns,
    })
}

fn names(signals: SigSet) -> Vec<String> {
    signals.iter().map(|signal| signal.to_string()).collect()
}
