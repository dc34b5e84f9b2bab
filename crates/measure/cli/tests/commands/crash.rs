//! Tests of `tontine-measure crash` from a user's point of view: exit statuses, reproducers, and
//! leftovers.

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{signal, text, tontine, until};

fn crash(arguments: &[&str]) -> Output {
    tontine().arg("crash").args(arguments).output().expect("tontine runs")
}

/// Returns the first operation of a report in JSON, or `None` if the machine does not allow
/// tracing.
fn operation(output: &Output) -> Option<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let operation = report["subjects"][0]["operations"][0].clone();
    let trouble = operation["trouble"].as_str().unwrap_or_default();
    assert!(trouble.is_empty() || trouble.starts_with("skipped: "), "{trouble}");
    trouble.is_empty().then_some(operation)
}

#[test]
fn reproducer_of_wedged_peer_repeats_finding() {
    let json = ["--operation", "send", "--format", "json"];
    let Some(found) = operation(&crash(&[&["semaphore-ring"], &json[..]].concat())) else {
        return;
    };
    let finding = &found["findings"][0];
    assert_eq!(finding["verdict"], "wedged", "{found}");
    let reproducer = finding["reproducer"].as_str().expect("a command line");
    let words: Vec<&str> = reproducer.split_whitespace().skip(2).collect();
    let again = operation(&crash(&[&words[..], &["--format", "json"]].concat()));
    let again = again.expect("the first run was traced");
    assert_eq!((&again["explored"], &again["wedged"]), (&1.into(), &1.into()), "{again}");
    assert_eq!(again["findings"][0]["code"], finding["code"], "the same instruction");
}

#[test]
fn pair_point_also_kills_successor() {
    let arguments = ["robust-ring", "--mode", "pairs", "--operation", "send", "--point", "60+90"];
    let Some(found) = operation(&crash(&[&arguments[..], &["--format", "json"]].concat())) else {
        return;
    };
    assert_eq!((&found["explored"], &found["passed"]), (&1.into(), &1.into()), "{found}");
}

#[test]
fn crash_prints_table() {
    let output = crash(&["pipe", "--operation", "send"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for word in ["target", "pipe", "send", "in total"] {
        assert!(text(&output.stdout).contains(word), "{word}: {}", text(&output.stdout));
    }
}

#[test]
fn crash_unknown_name_suggests_nearest_with_status_2() {
    for (arguments, offer) in [
        (&["robust-rin"][..], "'robust-ring'"),
        (&["pipe", "--operation", "sent"][..], "'send'"),
        (&["pipe", "--point", "3"][..], "--operation"),
        (&["pipe", "--operation", "send", "--point", "x"][..], "N+M"),
    ] {
        let output = crash(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(offer), "{}", text(&output.stderr));
    }
}

/// Regression: for a point that does not exist, the command printed a remark below an empty table
/// and exited with status 0, so a script would have assumed that the kill had happened.
#[test]
fn unknown_point_exits_with_1() {
    let output = crash(&["pipe", "--operation", "send", "--point", "9999"]);
    let said = text(&output.stdout);
    if said.contains("skipped") {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no point 9999"), "{said}");
}

#[test]
fn target_without_pairs_mode_is_reported() {
    let output = crash(&["pipe", "--mode", "pairs"]);
    assert!(text(&output.stdout).contains("this target has no pairs"));
}

#[test]
#[ignore = "takes long: explores until it is killed"]
fn signal_ends_exploration_without_leftovers() {
    for by in [Signal::INT, Signal::TERM] {
        let mut run = long_run();
        signal(&run, by);
        assert_eq!(run.wait().expect("the process ends").code(), Some(128 + by.as_raw()));
        assert_eq!(left(run.id()), Vec::<String>::new());
    }
}

#[test]
#[ignore = "takes long: explores until it is killed"]
fn killed_explorer_leaves_nothing_after_next_run() {
    let mut run = long_run();
    run.kill().expect("the process still runs");
    run.wait().expect("the process ends");
    until("no process outlives its explorer", || processes(run.id()).next().is_none());
    assert!(crash(&["pipe", "--operation", "send"]).status.success());
    assert_eq!(left(run.id()), Vec::<String>::new());
}

/// Starts a run, and returns when the first kills have begun. A recording has three workers at
/// most, and more than three kills run in parallel.
fn long_run() -> Child {
    let run = tontine()
        .args(["crash", "semaphore-ring", "posix-mq", "--mode", "full"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("tontine runs");
    until("kills have begun", || processes(run.id()).count() > 3);
    run
}

/// Returns the files and processes of an explorer, whose names contain its pid.
fn left(explorer: u32) -> Vec<String> {
    let folders = [std::env::temp_dir(), "/dev/shm".into(), "/dev/mqueue".into()];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let names = files.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| is_of(name, explorer)).chain(processes(explorer)).collect()
}

fn processes(explorer: u32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(move |line| {
        line.split('\0').any(|word| {
            let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy();
            is_of(&name, explorer)
        })
    })
}

fn is_of(name: &str, explorer: u32) -> bool {
    name.starts_with("tontine-crash-") && name.contains(&format!("p{explorer:010}-"))
}
