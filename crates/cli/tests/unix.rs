//! `tontine unix run` as its users meet it: exit statuses, what it prints, and bad input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str], file: &Path) -> Output {
    let mut tontine = Command::new(env!("CARGO_BIN_EXE_tontine"));
    tontine.args(["unix", "run"]).args(arguments).arg(file).output().expect("tontine runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/unix").join(name)
}

/// A file with this scenario.
fn scenario(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".unix").tempfile().expect("a file");
    fs::write(file.path(), text).expect("written");
    file
}

#[test]
fn an_example_holds_and_its_timeline_is_printed() {
    let output = run(&[], &example("setsid.unix"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let printed = text(&output.stdout);
    for part in ["process", "begins shell", "setsid -> EPERM", "holds: every expectation"] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
}

#[test]
fn the_same_seed_prints_the_same_bytes() {
    for format in ["text", "columns", "json"] {
        let once = run(&["--seed", "7", "--format", format], &example("group-kill.unix"));
        let again = run(&["--seed", "7", "--format", format], &example("group-kill.unix"));
        assert_eq!(text(&once.stdout), text(&again.stdout));
    }
}

#[test]
fn an_expectation_that_fails_is_named_and_the_status_is_1() {
    let file = scenario("process main\n  wait -> exited 3\n\nexpect main exited 1\n");
    let output = run(&[], file.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let inline = "fails: line 2, in main: wait: expected exited 3, found ECHILD";
    assert!(printed.contains(inline), "{printed}");
    assert!(printed.contains("fails: line 4: expect main exited 1: found exited 0"), "{printed}");
}

#[test]
fn json_says_what_failed_and_where() {
    let file = scenario("process main\n  wait -> exited 3\n\nexpect main exited 0\n");
    let output = run(&["--format", "json", "--mode", "coarse"], file.path());
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).expect("only JSON");
    assert_eq!(document["holds"], false);
    assert_eq!(document["mode"], "coarse");
    assert_eq!(document["failures"][0]["line"], 2);
    assert_eq!(document["failures"][0]["found"], "ECHILD");
    let timeline = document["timeline"].as_array().expect("events");
    assert!(timeline.iter().any(|event| event["kind"] == "miss"), "{document}");
}

#[test]
fn a_run_that_never_ends_is_found_to_stall() {
    let file = scenario("process main\n  pause\n");
    let output = run(&[], file.path());
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.contains("fails: the run: expected an end, found that everybody waits"));
}

#[test]
fn bad_input_is_shown_with_a_caret_and_the_status_is_2() {
    let file = scenario("process main\n  frok child\n");
    let output = run(&[], file.path());
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains(":2:3: unknown word `frok`; did you mean `fork`?"), "{said}");
    assert!(said.contains("\n  |   frok child\n  |   ^^^^\n"), "{said}");
    let missing = run(&[], Path::new("/nonexistent/file.unix"));
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nonexistent/file.unix: No such file"));
    let mode = run(&["--mode", "uniprocessor", "--processors", "2"], &example("setsid.unix"));
    assert_eq!(mode.status.code(), Some(2), "{}", text(&mode.stderr));
}

#[test]
fn many_runs_stop_at_the_first_that_fails() {
    // Two processes race: some schedule has them the other way round.
    let file = scenario(
        "process main\n  fork other\n  note \"first\"\n  wait\n\n\
         process other\n  note \"second\"\n\nexpect notes \"first\", \"second\"\n",
    );
    let output = run(&["--runs", "500"], file.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("simulated, seed "), "{}", text(&output.stdout));
}
