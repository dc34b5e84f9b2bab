//! Tests of scenarios that do not end by themselves: each is stopped, and its verdict names the
//! bound.

use std::thread;
use std::time::Duration;

use tontine_unix_lab::scenario::{MemoryLog, Scenario, ScenarioRun, run};
use tontine_unix_sim::{Builder, EndReason, Executor, Stopper, Virtual};

fn observe(text: &str, system: Builder) -> ScenarioRun {
    let scenario: Scenario = text.parse().expect("a scenario");
    run(&scenario, system).expect("a system")
}

fn systems() -> [Builder; 2] {
    let simulated = Virtual::builder().executor(Executor::Simulated { seed: 1 });
    [simulated, Virtual::builder().processors(2)]
}

/// Returns a stopper that acts shortly after the start of the run.
fn soon() -> Stopper {
    after(Duration::from_millis(100))
}

fn after(time: Duration) -> Stopper {
    let stopper = Stopper::new();
    let later = stopper.clone();
    thread::spawn(move || {
        thread::sleep(time);
        later.stop("enough");
    });
    stopper
}

#[test]
fn endless_run_is_stopped_in_any_loop() {
    for text in [
        "process a\n  note \"x\"\n  repeat 2000000000: x = x + 1\n",
        "process a\n  note \"x\"\n  repeat 2000000000\n    repeat 2000000000: x = x + 1\n",
        "process a\n  note \"x\"\n  repeat 2000000000\n    while self != 0: y = y + 1\n",
        "process a\n  note \"x\"\n  repeat 2000000000: yield -> ok\n",
        "process a\n  note \"x\"\n  sleep 1s\n  repeat 2000000000: compute 1s\n",
    ] {
        for system in systems() {
            let observed = observe(text, system.stopper(&soon()));
            assert_eq!(observed.report.ending, EndReason::Stopped, "{text}");
            let said = observed.verdict.to_string();
            assert!(said.contains("the run: expected an end, found enough"), "{said}");
        }
    }
}

#[test]
fn stopped_run_reports_events_before_stop() {
    let text = "process a\n  note \"x\"\n  repeat 2000000000: y = y + 1\n";
    let mut time = Duration::from_millis(100);
    let observed = loop {
        let observed = observe(text, systems()[0].clone().stopper(&after(time)));
        // On a busy machine, the run may be stopped before its first event.
        if observed.timeline.notes().next().is_some() || time > Duration::from_secs(30) {
            break observed;
        }
        time *= 2;
    };
    assert_eq!(observed.timeline.notes().collect::<Vec<_>>(), [("a", "x")]);
    assert!(observed.report.state.is_some());
}

#[test]
fn stopper_set_before_run_stops_run_immediately() {
    let stopper = Stopper::new();
    stopper.stop("before it began");
    for system in systems() {
        let observed = observe("process a\n  sleep 1s\n", system.stopper(&stopper));
        assert_eq!(observed.report.ending, EndReason::Stopped);
    }
}

#[test]
fn process_in_endless_loop_can_be_killed() {
    let text = "process a\n  b = fork b\n  sleep 1ms\n  kill b KILL\n  wait b -> b killed KILL\n\n\
                process b\n  repeat 2000000000: x = x + 1\n\nexpect b killed KILL\n";
    for system in systems() {
        let observed = observe(text, system);
        assert!(observed.verdict.holds(), "{}", observed.verdict);
    }
}

#[test]
fn full_log_stops_run() {
    let text = "process a\n  repeat 2000000000: note \"x\"\n";
    let observed = observe(text, systems()[0].clone());
    assert_eq!(observed.report.ending, EndReason::Stopped);
    assert_eq!(observed.timeline.records.len(), MemoryLog::RECORDS);
    let said = observed.verdict.to_string();
    assert!(said.contains("found more than 200000 events"), "{said}");
}

#[test]
fn longer_notes_fill_log_sooner() {
    let long = "x".repeat(10_000);
    let text = format!("process a\n  repeat 2000000000: note \"{long}\"\n");
    let observed = observe(&text, systems()[0].clone());
    assert!(observed.timeline.records.len() < MemoryLog::BYTES / 10_000 + 10);
    let said = observed.verdict.to_string();
    assert!(said.contains("found more than 64 MiB of events"), "{said}");
}

#[test]
fn stack_limit_applies_to_privileged_user() {
    let text = "process a\n  repeat 100: fork b\n  fork b -> EAGAIN\n\nprocess b\n  pause\n";
    let observed = observe(text, systems()[0].clone().max_stacks(64));
    let said = observed.timeline.to_string();
    assert!(said.contains("fork b -> EAGAIN"), "{said}");
}

#[test]
fn deadlock_report_uses_names_of_scenario() {
    let text = "process mother\n  pipe r w\n  one = fork reader\n  wait one\n\n\
                process reader\n  block {INT}\n  read r\n";
    let observed = observe(text, systems()[0].clone());
    assert_eq!(observed.report.ending, EndReason::Deadlocked);
    let state = observed.report.state.expect("the run has not ended").to_string();
    for part in [
        " S init\n",
        " S mother\n",
        " S reader\n",
        "sleeps in wait for child 4 (reader)",
        "sleeps in read for pipe 7, blocked {SIGINT}\n",
        " written by 3 (mother), itself\n",
        "blocked all\n",
    ] {
        assert!(state.contains(part), "no {part:?} in\n{state}");
    }
    assert!(state.lines().all(|line| line.len() < 100), "{state}");
}
