//! Tests of the examples on real processes: their expectations match Linux.
//!
//! An example is skipped with a message if it needs something that a process of this test lacks,
//! such as its own machine or root's privileges. Examples whose processes call exec belong to
//! `scenario_executed.rs`.

use std::io;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use tontine_unix_lab::scenario::{
    Argument, CallName, PipeLog, Scenario, ScenarioVerdict, SystemCall, TargetKind, Timeline,
    read_log, root,
};

use crate::calls::has;
use crate::examples::examples;
use crate::extent;
use crate::keeper::keep;

/// Number of examples that run at a time. Most of them sleep.
const AT_A_TIME: usize = 4;

/// Returns `true` for calls that signal all processes, which on the real system are all processes
/// of the machine.
fn signals_everyone(call: &SystemCall) -> bool {
    matches!(call.arguments[..], [Argument::Target(TargetKind::Everyone, _), _])
}

fn becomes_another(call: &SystemCall) -> bool {
    call.name == CallName::Setuid
}

/// Returns `true` for calls that use seconds of processor time.
fn computes(call: &SystemCall) -> bool {
    let second = Duration::from_secs(1);
    let long =
        |argument: &Argument| matches!(argument, Argument::Duration(time) if *time >= second);
    call.name == CallName::Compute && call.arguments.iter().any(long)
}

/// Runs a scenario on real processes; returns an error if it does not end.
fn run(scenario: &Scenario) -> io::Result<Timeline> {
    let (log, reader) = PipeLog::new()?;
    let records = thread::spawn(move || read_log(reader));
    let ended = keep(root(scenario, log));
    let records = records.join().expect("no panic")?;
    ended.map(|_| Timeline { records }).ok_or(io::Error::other("the run did not end"))
}

#[test]
fn every_example_holds_on_linux() {
    let is_first_user = rustix::process::geteuid().is_root();
    let mut chosen = examples();
    chosen.retain(|(name, scenario)| {
        let any = |is| has(scenario, is);
        let is_unfit = any(SystemCall::executes)
            || any(signals_everyone)
            || (any(becomes_another) && !is_first_user);
        if is_unfit {
            eprintln!("{name}: skipped");
        }
        !is_unfit && (extent::is_full() || !any(computes))
    });
    assert!(chosen.len() >= 280, "only {} examples run", chosen.len());
    let (next, failed) = (Mutex::new(chosen.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((name, scenario)) = { next.lock().expect("no panic").next() } {
                    if let Some(failure) = failure(scenario) {
                        failed.lock().expect("no panic").push(format!("{name}\n{failure}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Returns the verdict on the run of a scenario if it does not hold, or the run's error.
fn failure(scenario: &Scenario) -> Option<String> {
    let timeline = match run(scenario) {
        Ok(timeline) => timeline,
        Err(error) => return Some(error.to_string()),
    };
    let verdict = ScenarioVerdict::new(scenario, &timeline);
    (!verdict.holds()).then(|| format!("{verdict}\n{timeline}"))
}

#[test]
fn failed_expectation_is_reported_with_line() {
    let text = "\
process main
  child = fork quick
  wait -> child exited 4
  check child == 0
  kill child TERM
  note \"a\"

process quick
  exit 3

expect quick exited 4 or killed TERM
expect 2 of quick exited 3
expect note \"a\" 2 times
expect notes \"b\" or none
expect \"a\" before \"b\"
expect main exited 0
";
    let scenario: Scenario = text.parse().expect("a scenario");
    let timeline = run(&scenario).expect("the run ends");
    let verdict = ScenarioVerdict::new(&scenario, &timeline);
    let lines: Vec<u32> = verdict.failures.iter().map(|failure| failure.line).collect();
    assert_eq!(lines, [3, 4, 5, 11, 12, 13, 14, 15], "{verdict}\n{timeline}");
    let shown = verdict.to_string();
    for part in [
        "in main: wait: expected child exited 4, found ",
        "in main: kill child TERM: expected no error, found ESRCH",
        "line 11: expect quick exited 4 or killed TERM: found exited 3",
        "line 13: expect note \"a\" 2 times: found it 1 times",
        "line 15: expect \"a\" before \"b\": found no note \"b\"",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}
