//! Tests of `tontine-unix check` from a user's point of view: exit statuses and output.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::text;
use crate::scenarios::{scenario, unix};

fn check(arguments: &[&str], file: &Path) -> Output {
    unix("check", arguments, file)
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/unix").join(name)
}

#[test]
fn check_example_agrees_in_every_mode() {
    let output = check(&["--runs", "3"], &example("groups/setsid.unix"));
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    let same = "both sides observed the same";
    for part in ["seeds 1 to 3", "uniprocessor, master, parallel", same] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
}

#[test]
fn check_log_prints_observations() {
    let output = check(&["--log", "--mode", "parallel"], &example("sending/group-kill.unix"));
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("main.1"), "{printed}");
}

#[test]
fn check_names_thread_blocked_on_both_sides() {
    let output = check(&[], scenario("process main\n  pause\n").path());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("main sleeps in `pause` (line 2)"), "{printed}");
}

#[test]
fn check_invalid_input_exits_with_2() {
    for (text_of, part) in [
        ("process main\n  frok other\n", "did you mean `fork`?"),
        ("process main\n  compute 10ms\n", "line 2: cannot be compared"),
    ] {
        let file = scenario(text_of);
        let output = check(&[], file.path());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
    assert_eq!(check(&[], Path::new("/nowhere")).status.code(), Some(2));
}

#[test]
fn real_run_without_quiescence_is_abandoned() {
    let file = scenario("process main\n  while 1 == 1\n    while 1 == 1: x = x + 1\n");
    let output = check(&["--limit", "1"], file.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("was aborted"), "{}", text(&output.stderr));
}
