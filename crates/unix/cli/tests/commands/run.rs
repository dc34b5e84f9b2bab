//! Tests of `tontine-unix run` from a user's point of view: exit statuses, output, and invalid
//! input.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{handles, signal, text, tontine, until};
use crate::scenarios::{scenario, unix};

fn run(arguments: &[&str], file: &Path) -> Output {
    unix("run", arguments, file)
}

/// Runs a scenario, and returns its exit status and its document.
fn json(arguments: &[&str], file: &Path) -> (Option<i32>, Value) {
    let output = run(&[&["--format", "json"], arguments].concat(), file);
    (output.status.code(), serde_json::from_slice(&output.stdout).expect("only JSON"))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/unix").join(name)
}

#[test]
fn run_example_holds_and_prints_timeline() {
    let output = run(&[], &example("groups/setsid.unix"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let printed = text(&output.stdout);
    for part in ["process", "begins shell", "setsid -> EPERM", "holds: all expectations"] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
}

#[test]
fn same_seed_prints_same_bytes() {
    for format in ["text", "columns", "json"] {
        let once = run(&["--seed", "7", "--format", format], &example("sending/group-kill.unix"));
        let again = run(&["--seed", "7", "--format", format], &example("sending/group-kill.unix"));
        assert_eq!(text(&once.stdout), text(&again.stdout));
    }
}

#[test]
fn failed_expectation_is_named_with_status_1() {
    let file = scenario("process main\n  wait -> exited 3\n\nexpect main exited 1\n");
    let output = run(&[], file.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let inline = "fails: line 2, in main: wait: expected exited 3, found ECHILD";
    assert!(printed.contains(inline), "{printed}");
    assert!(printed.contains("fails: line 4: expect main exited 1: found exited 0"), "{printed}");
}

#[test]
fn json_names_failure_and_line() {
    let file = scenario("process main\n  wait -> exited 3\n\nexpect main exited 0\n");
    let (status, document) = json(&["--mode", "master"], file.path());
    assert_eq!(status, Some(1));
    assert_eq!(document["holds"], false);
    assert_eq!(document["mode"], "master");
    assert_eq!(document["failures"][0]["line"], 2);
    assert_eq!(document["failures"][0]["found"], "ECHILD");
    let timeline = document["timeline"].as_array().expect("events");
    assert!(timeline.iter().any(|event| event["kind"] == "miss"), "{document}");
}

#[test]
fn json_names_thread_of_failure() {
    let file = scenario(
        "process main\n  h = thread other\n  join h\n  wait -> exited 3\n\n\
         thread other\n  wait -> exited 4\n",
    );
    let (_, document) = json(&[], file.path());
    let failures = document["failures"].as_array().expect("failures");
    let of = |line| failures.iter().find(|failure| failure["line"] == line).expect("a failure");
    let (first, other) = (of(4)["thread"].as_i64(), of(7)["thread"].as_i64());
    assert!(first.is_some() && other.is_some() && first != other, "{document}");
}

#[test]
fn blocked_run_is_reported_as_deadlock() {
    let file = scenario("process main\n  pause\n");
    let output = run(&[], file.path());
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.contains("fails: the run: expected an end, found all threads blocked"));
}

#[test]
fn invalid_input_is_marked_with_status_2() {
    let file = scenario("process main\n  frok child\n");
    let output = run(&[], file.path());
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains(":2:3: unknown word `frok`; did you mean `fork`?"), "{said}");
    assert!(said.contains("\n  |   frok child\n  |   ^^^^\n"), "{said}");
    let missing = run(&[], Path::new("/nonexistent/file.unix"));
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nonexistent/file.unix: No such file"));
    let mode =
        run(&["--mode", "uniprocessor", "--processors", "2"], &example("groups/setsid.unix"));
    assert_eq!(mode.status.code(), Some(2), "{}", text(&mode.stderr));
}

#[test]
fn runs_stop_at_first_failure() {
    // Two processes race, and under some schedules the second process is first.
    let file = scenario(
        "process main\n  fork other\n  note \"first\"\n  wait\n\n\
         process other\n  note \"second\"\n\nexpect notes \"first\", \"second\"\n",
    );
    let output = run(&["--runs", "500"], file.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("simulated, seed "), "{}", text(&output.stdout));
}

/// A scenario that loops without end.
const ENDLESS: &str = "process main\n  note \"here\"\n  repeat 2000000000: x = x + 1\n";

#[test]
fn limit_stops_endless_run_and_prints_timeline() {
    let file = scenario(ENDLESS);
    for executor in ["simulated", "parallel"] {
        let output = run(&["--limit", "2", "--executor", executor], file.path());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        assert!(printed.contains("notes \"here\""), "{printed}");
        let why = "fails: the run: expected an end, found none within 2 s (--limit)";
        assert!(printed.contains(why), "{printed}");
    }
}

#[test]
fn signal_stops_run_and_prints_events_so_far() {
    let file = scenario(ENDLESS);
    for by in [Signal::INT, Signal::TERM] {
        let mut tontine = tontine();
        tontine.args(["run", "--limit", "0"]).arg(file.path()).stdout(Stdio::piped());
        let mut child = tontine.spawn().expect("tontine runs");
        await_work(&child);
        signal(&child, by);
        let mut printed = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
        let status = child.wait().expect("the process ends");
        assert_eq!(status.code(), Some(128 + by.as_raw()), "{printed}");
        assert!(printed.contains("notes \"here\""), "{printed}");
        assert!(printed.contains("expected an end, found SIG"), "{printed}");
    }
}

/// Regression: SIGHUP stopped a run under nohup(1).
#[test]
fn run_under_nohup_survives_sighup() {
    let file = scenario(ENDLESS);
    let mut nohup = Command::new("nohup");
    nohup.arg(crate::PROGRAM).args(["run", "--limit", "0"]).arg(file.path());
    let mut child = nohup.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("nohup runs");
    await_work(&child);
    signal(&child, Signal::HUP);
    signal(&child, Signal::TERM);
    let mut printed = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
    let status = child.wait().expect("the process ends");
    assert_eq!(status.code(), Some(128 + Signal::TERM.as_raw()), "{printed}");
    assert!(printed.contains("expected an end, found SIGTERM"), "{printed}");
}

/// A scenario whose program makes no system call for longer than the test takes.
#[cfg(debug_assertions)]
const SPINNING: &str = "process main\n  note \"here\"\n  exec \"spin\"\n";

/// Starts a run with default signal dispositions. Otherwise SIGINT could be ignored, because a
/// shell ignores it for its background jobs.
#[cfg(debug_assertions)]
fn start_spinning(file: &Path, limit: &str) -> Child {
    let mut tontine = Command::new("env");
    tontine.args(["--default-signal", crate::PROGRAM]);
    tontine.args(["run", "--spin", "100", "--limit", limit]).arg(file);
    tontine.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("tontine runs")
}

#[cfg(debug_assertions)]
#[test]
fn unstoppable_run_is_abandoned_with_name_of_thread() {
    let file = scenario(SPINNING);
    let term = Signal::TERM;
    for (limit, by, code, why) in [
        ("3", None, 1, "found none within 3 s (--limit);"),
        ("0", Some(term), 128 + term.as_raw(), "found SIGTERM before it;"),
    ] {
        let mut child = start_spinning(file.path(), limit);
        if let Some(by) = by {
            await_work(&child);
            signal(&child, by);
        }
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert_eq!(child.wait().expect("the process ends").code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(said.contains("thread 3 of process 3 computes without a system call"), "{said}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn second_signal_ends_command_immediately() {
    use std::os::unix::process::ExitStatusExt;

    let file = scenario(SPINNING);
    for by in [Signal::INT, Signal::TERM] {
        let mut child = start_spinning(file.path(), "0");
        await_work(&child);
        let mut status = None;
        until("the command ends", || {
            // Two signals that arrive at the same time coalesce.
            signal(&child, by);
            status = child.try_wait().expect("a child of the test");
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.signal()), Some(by.as_raw()), "{status:?}");
    }
}

/// Waits until a command has a handler of SIGTERM, and until its scenario has computed.
fn await_work(child: &Child) {
    until("the command handles SIGTERM", || handles(child.id(), Signal::TERM));
    let before = cpu_ticks(child.id());
    until("the scenario computes", || cpu_ticks(child.id()) > before + 5);
}

/// Returns the processor time that a process used, in ticks.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().nth(11).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

#[test]
fn oversized_and_binary_files_are_refused() {
    let output = run(&[], Path::new("/dev/zero"));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/dev/zero: expected a scenario of at most 1 MiB"));
    let file = scenario("");
    fs::write(file.path(), b"process a\n\xff\n").expect("written");
    let output = run(&[], file.path());
    assert!(text(&output.stderr).contains("line 2: expected text in UTF-8"));
}

#[test]
fn json_lists_blocked_threads() {
    let file =
        scenario("process main\n  child = fork sleeper\n  wait\n\nprocess sleeper\n  pause\n");
    let (_, document) = json(&[], file.path());
    let state = document["state"].as_array().expect("processes");
    let sleeper =
        state.iter().find(|process| process["process"] == "sleeper").expect("a remaining process");
    assert_eq!(sleeper["state"], "S");
    assert_eq!(sleeper["threads"][0]["call"], "pause");
    assert_eq!(sleeper["threads"][0]["sleeps"], true);
}

#[test]
fn statistics_option_counts_locks() {
    let output = run(&["--statistics"], &example("sending/group-kill.unix"));
    let printed = text(&output.stdout);
    assert!(printed.contains("proc_relation_lock"), "{printed}");
    let (_, document) = json(&["--statistics"], &example("sending/group-kill.unix"));
    let rows = document["locks"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["acquisitions"].as_u64() > Some(0)), "{rows:?}");
}

#[test]
fn delivery_and_masks_options_choose_thread() {
    // The oldest thread blocks the signal, but another thread does not.
    let file = scenario(
        "process main\n  on USR1: note \"taken\"; done = 1\n  thread other\n  sleep 10ms\n  \
         block USR1\n  kill self USR1\n  sleep 10ms\n  check done == 1\n\n\
         thread other\n  sleep 1s -> anything\n",
    );
    assert_eq!(run(&[], file.path()).status.code(), Some(0));
    assert_eq!(run(&["--delivery", "oldest"], file.path()).status.code(), Some(1));
    assert_eq!(run(&["--masks", "per-process"], file.path()).status.code(), Some(1));
}
