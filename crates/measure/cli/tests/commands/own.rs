//! Tests of `tontine-measure -- COMMAND` with real commands.

use std::fs;
use std::process::{Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{signal, text, tontine, until};

fn measure(arguments: &[&str]) -> Output {
    tontine().args(arguments).output().expect("tontine runs")
}

fn measured(arguments: &[&str]) -> Value {
    let output = measure(&[&["--format", "json"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("expected a number, found {value}"))
}

#[test]
#[ignore = "takes long: starts measurements"]
fn own_commands_as_json_have_figures_intervals_and_ratio() {
    let arguments = ["--invocations", "6", "--order-seed", "5"];
    let found =
        measured(&[&arguments[..], &["--", "sleep", "0.01", "--", "sleep", "0.2"]].concat());
    assert_eq!((&found["measured"], &found["unit"]), (&json!("wall-time"), &json!("ns")));
    assert_eq!((&found["pairs"], &found["order_seed"]), (&json!(6), &json!(5)));
    let ratio = &found["ratio"];
    assert!(number(&ratio["low"]) > 1.0, "{found}");
    assert!(number(&ratio["estimate"]) <= number(&ratio["high"]), "{found}");
    assert!(ratio["could_resolve"].is_null(), "six pairs are too few: {found}");
    let first = &found["commands"][0];
    assert!(number(&first["low"]) > 1e7 && number(&first["achieved"]) > 0.95, "{found}");
    assert_eq!(first["figures"].as_array().map(Vec::len), Some(6));
}

#[test]
#[ignore = "takes long: starts measurements"]
fn one_command_has_a_figure_and_no_ratio() {
    let output = measure(&["--invocations", "6", "--", "sleep", "0.01"]);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("sleep 0.01   ") && printed.contains(" ms   "), "{printed}");
    assert!(printed.contains("median of 6 starts"), "{printed}");
    assert!(!printed.contains('÷') && !printed.contains("resolved"), "{printed}");
}

#[test]
#[ignore = "takes long: starts measurements"]
fn ready_ends_the_measured_time_and_stops_the_command() {
    let arguments = ["--invocations", "6", "--ready", "3", "--", "sh", "-c", "echo >&3; sleep 99"];
    let found = measured(&arguments);
    assert_eq!(found["measured"], "until-ready");
    assert!(number(&found["commands"][0]["high"]) < 9e10, "{found}");

    let output = measure(&["--ready", "3", "--", "sh", "-c", "echo no >&2; exit 0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("ended without writing to the descriptor of --ready"), "{said}");
    assert!(said.contains("exit status: 0") && said.contains("\n  no\n"), "{said}");
}

#[test]
fn printed_figure_replaces_the_wall_time() {
    let (fast, slow) = ("echo 'tontine: 4 messages/s'", "echo 'tontine: 2 messages/s'");
    let pair = ["--invocations", "6", "--", "sh", "-c", slow, "--", "sh", "-c", fast];
    let found = measured(&pair);
    assert_eq!((&found["measured"], &found["unit"]), (&json!("own-figure"), &json!("messages/s")));
    assert!((number(&found["ratio"]["estimate"]) - 2.0).abs() < 1e-9, "{found}");
    let output = measure(&[&["--format", "github"], &pair[..]].concat());
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&list[0]["unit"], &list[0]["value"]), (&json!("ns/message"), &json!(5e8)));
}

#[test]
fn failing_command_is_named_with_status_and_last_lines() {
    let script = "echo first >&2; echo disk full >&2; exit 3";
    let output = measure(&["--", "sleep", "0.01", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("tontine-measure: sh -c '"), "{said}");
    assert!(said.contains("failed: exit status: 3\n  first\n  disk full\n"), "{said}");
    let output = measure(&["--", "sh", "-c", "kill -9 $$"]);
    assert!(text(&output.stderr).contains("signal: 9"), "{}", text(&output.stderr));
}

#[test]
fn wrong_usage_of_own_commands_exits_with_2() {
    for (arguments, wanted) in [
        (&["--", "/nowhere/at/all"][..], "/nowhere/at/all: cannot be started"),
        (&["--"], "a command after `--` is empty"),
        (&["--", "true", "--"], "a command after `--` is empty"),
        (&["--", "true", "--", "true", "--", "true"], "found 3 commands"),
        (&["--all", "--", "true"], "cannot be used with"),
        (&["round-trip", "--", "true"], "cannot be used with"),
        (&["--out", "x", "--", "true"], "cannot be used with"),
        (&["--ready", "3"], "required"),
        (&["--ready", "2", "--", "true"], "2 is not in 3..=65535"),
    ] {
        let output = measure(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
#[ignore = "takes long: starts measurements"]
fn interrupted_measurement_prints_the_pairs_so_far() {
    let folder = tempfile::tempdir().expect("a folder");
    let starts = folder.path().join("starts");
    let script = format!("echo >> {}", starts.display());
    let child = tontine()
        .args(["--invocations", "10000"])
        .args(["--", "sh", "-c", &script, "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tontine starts");
    // Ten pairs have an interval.
    until("ten pairs are made", || fs::metadata(&starts).is_ok_and(|file| file.len() > 20));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().expect("tontine ends");
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(printed.contains("stopped early") && printed.contains("B ÷ A "), "{printed}");
}
