//! Tests of `tontine-unix explore` from a user's point of view: findings, output, and invalid
//! input.

use std::path::Path;
use std::process::Output;

use crate::common::text;
use crate::scenarios::{scenario, unix};

fn explore(arguments: &[&str], file: &Path) -> Output {
    unix("explore", arguments, file)
}

const RACY_SCENARIO: &str = include_str!("../../../lab/tests/scenes/believes.unix");

#[test]
fn explore_reports_scenario_that_holds() {
    let file = scenario(
        "process main\n  child = fork quick\n  wait -> child exited 0\n\nprocess quick\n  exit 0\n",
    );
    let output = explore(&["--bound", "1", "--mode", "parallel"], file.path());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("all up to 1 preemptions"), "{printed}");
    assert!(printed.contains("holds"), "{printed}");
}

#[test]
fn printed_replay_command_repeats_violation() {
    let file = scenario(RACY_SCENARIO);
    for how in [&["--mode", "parallel"][..], &["--mode", "parallel", "--seeds", "1000"][..]] {
        let output = explore(how, file.path());
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{printed}{}", text(&output.stderr));
        assert!(printed.contains("line 6"), "{printed}");
        let schedule = printed.split_once("--replay '").expect("a command").1;
        let schedule = schedule.split_once('\'').expect("the closing quote").0;
        let again = explore(&["--mode", "parallel", "--replay", schedule], file.path());
        let repeated = text(&again.stdout);
        assert_eq!(again.status.code(), Some(1), "{repeated}");
        assert!(repeated.contains("line 6") && repeated.contains("(quick)"), "{repeated}");
    }
}

/// Regression: the report of a scenario without an end only stated that the run was stopped, and
/// printed hundreds of turns. No option raised the limit.
#[test]
fn run_without_an_end_names_limit_and_option() {
    let file = scenario(
        "process main\n  fork other\n  while 0 == 0: yield\n\n\
         process other\n  while 0 == 0: yield\n",
    );
    let output = explore(&["--mode", "parallel", "--steps", "2000"], file.path());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}{}", text(&output.stderr));
    for said in
        ["none within 2000 steps (the limit)", "--steps N", "running: process", "more turns"]
    {
        assert!(printed.contains(said), "no {said:?}: {printed}");
    }
    assert!(printed.lines().count() < 400, "{}", printed.lines().count());
    let (_, command) = printed.split_once("explore ").expect("a command");
    assert!(command.starts_with("--mode parallel --steps 2000 --replay "), "{command}");
}

#[test]
fn idle_clock_delays_timers_while_threads_run() {
    let file = scenario("process main\n  alarm 9\n  alarm 0 -> 9\n\nexpect main exited 0\n");
    let early = explore(&[], file.path());
    assert_eq!(early.status.code(), Some(1), "{}", text(&early.stdout));
    assert!(text(&early.stdout).contains("time passes to the next timer"));
    let idle = explore(&["--idle-clock"], file.path());
    assert_eq!(idle.status.code(), Some(0), "{}", text(&idle.stdout));
}

#[test]
fn seed_of_sampled_violation_repeats_it() {
    let file = scenario(RACY_SCENARIO);
    let output =
        explore(&["--mode", "master", "--processors", "3", "--seeds", "1000"], file.path());
    let printed = text(&output.stdout);
    let (_, command) = printed.split_once("or from the seed").expect("a command");
    let (_, words) = command.split_once("explore ").expect("a command");
    let mut words: Vec<&str> = words.split_whitespace().collect();
    assert_eq!(words.pop(), Some(&*file.path().display().to_string()), "{printed}");
    let again = explore(&words, file.path());
    let repeated = text(&again.stdout);
    assert_eq!(again.status.code(), Some(1), "{repeated}");
    let (first, second) = (printed.split_once('\n'), repeated.split_once('\n'));
    assert_eq!(second.expect("lines").1, first.expect("lines").1, "all but the count of schedules");
}

#[test]
fn invalid_schedule_is_refused() {
    let file = scenario(RACY_SCENARIO);
    let output = explore(&["--replay", "3>"], file.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected a schedule"), "{}", text(&output.stderr));
}
