//! The examples run on real processes: what they expect is what Linux does.
//!
//! Where one needs what a process of this test cannot have (a registered program, the first user),
//! the test says so and passes it over.

mod examples;

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tontine_unix::scenario::{
    Call, PipeLog, Scenario, Statement, Step, Timeline, Verdict, read_log, root,
};
use tontine_unix::{Children, Linux, Signal, Sys, Target, WaitOptions};

use examples::examples;

/// How long a scenario may take; those here take less than two seconds alone.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether some statement makes a call that `is` describes.
fn has(body: &[Statement], is: fn(&Call) -> bool) -> bool {
    body.iter().any(|statement| match &statement.step {
        Step::Call(step) => is(&step.call),
        Step::Repeat(_, body) | Step::While(_, body) => has(body, is),
        _ => false,
    })
}

fn executes(call: &Call) -> bool {
    use tontine_unix::scenario::Path::Process;
    match call {
        Call::Exec(path) => matches!(path, Process(_)),
        Call::Spawn(spawning) => matches!(spawning.path, Process(_)),
        _ => false,
    }
}

fn becomes_another(call: &Call) -> bool {
    matches!(call, Call::Value(tontine_unix::scenario::OnValue::Setuid, _))
}

/// Runs a scenario on real processes; an error if it did not come to an end.
fn run(scenario: &Scenario) -> io::Result<Timeline> {
    let (log, reader) = PipeLog::new()?;
    let linux = Linux::new()?;
    let sys: &dyn Sys = &linux;
    let root = sys.fork_boxed(root(scenario, log))?;
    let (done, records) = mpsc::channel();
    thread::spawn(move || done.send(read_log(reader)));
    let records = records.recv_timeout(LIMIT);
    if records.is_err() {
        end_descendants(root.number());
    }
    // It has ended by itself, unless the scenario hung.
    let _ = sys.kill(Target::Process(root), Some(Signal::KILL));
    sys.waitid(Children::One(root), WaitOptions::EXITED)?;
    let records = records.map_err(|_| io::Error::other("it did not come to an end"))??;
    Ok(Timeline { records })
}

/// Ends what a scenario that hangs has left; its root adopts orphans, so all are below it.
fn end_descendants(of: i32) {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    for child in children.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()) {
        end_descendants(child);
        let target = Target::of(child);
        let _ = Linux::new().and_then(|linux| linux.kill(target, Some(Signal::KILL)));
    }
}

#[test]
fn every_example_holds_on_linux() {
    let is_first_user = rustix::process::geteuid().is_root();
    let mut failed = Vec::new();
    let mut ran = 0;
    for (name, scenario) in examples() {
        let any = |is| scenario.blocks.iter().any(|block| has(&block.body, is));
        if any(executes) || (any(becomes_another) && !is_first_user) {
            eprintln!("{name}: passed over");
            continue;
        }
        match run(&scenario) {
            Ok(timeline) => {
                let verdict = Verdict::new(&scenario, &timeline);
                if !verdict.holds() {
                    failed.push(format!("{name}\n{verdict}\n{timeline}"));
                }
            }
            Err(error) => failed.push(format!("{name}: {error}")),
        }
        ran += 1;
    }
    assert!(ran >= 25, "only {ran} examples ran");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn an_expectation_that_fails_is_named_with_its_line() {
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
    let timeline = run(&scenario).expect("it ends");
    let verdict = Verdict::new(&scenario, &timeline);
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
