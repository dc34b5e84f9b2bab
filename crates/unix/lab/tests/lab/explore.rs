//! Tests of all schedules of small programs: no schedule violates an invariant in a known race, and
//! the reduction loses no behaviour. `cargo xtask mutants` shows that a race is found in a kernel
//! without its protection.
use tontine_unix::Sys;
use tontine_unix_lab::explore::{Exploration, ExplorationReport};
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::LockingMode;

use crate::scenes::{KNOWN, Known, lost};

/// Maximum preemptions in the tests; `cargo run --release -p tontine-unix-lab --example explored`
/// explores more.
const BOUND: u32 = 1;

fn assert_held(what: &str, outcome: &ExplorationReport) {
    let violation = outcome.violation.as_ref();
    let described =
        violation.map(|one| format!("{}\n{}\n{}", one.what, one.schedule, one.interleaving));
    assert_eq!(described, None, "{what}");
}

#[test]
fn known_races_hold_in_all_modes() {
    for known in &KNOWN {
        for mode in LockingMode::ALL {
            // The longer races have thousands of schedules.
            let outcome = known.exploration(mode).preemption_bound(BOUND).max_schedules(300).run();
            assert_held(&format!("{}, {mode}", known.name), &outcome);
        }
    }
}

/// Maximum number of schedules until a lost wake-up is found, which takes a few hundredths of a
/// second.
const MAX_SCHEDULES_TO_LOST: u64 = 600;

/// Regression: a signal that arrived just before a call made that call return EINTR, whereas Linux
/// runs the handler and then begins the call. In addition, an alarm expired only when no thread was
/// runnable. Therefore no schedule in any mode showed the textbook's lost wake-up.
#[test]
fn signal_before_call_is_lost_with_one_preemption_in_all_modes() {
    let scenarios = lost();
    assert!(scenarios.len() > 20, "{}", scenarios.len());
    for (name, scenario) in &scenarios {
        for mode in LockingMode::ALL {
            let exploration = Exploration::scenario(scenario).mode(mode).preemption_bound(1);
            let outcome = exploration.run();
            let what = format!("{name}, {mode}");
            if name.ends_with("-cured") {
                assert_held(&what, &outcome);
                assert!(outcome.complete, "{what}");
                continue;
            }
            let found =
                outcome.violation.unwrap_or_else(|| panic!("{what}: no violation was found"));
            println!("{what}: {} in {}", found.schedule, outcome.schedules);
            assert!(outcome.schedules < MAX_SCHEDULES_TO_LOST, "{what}: {}", outcome.schedules);
            assert!(exploration.sample(1, 1_000).violation.is_some(), "{what}: sampled");
            let again = exploration.replay(&found.schedule);
            assert_eq!(
                (again.violation, again.interleaving),
                (Some(found.what), found.interleaving)
            );
        }
    }
}

/// Returns the races with the fewest schedules, which are also explored without the reduction.
fn short() -> impl Iterator<Item = (&'static Known, LockingMode)> {
    let races = ["wait against exit", "signal against sigsuspend"];
    let short = KNOWN.iter().filter(move |known| races.contains(&known.name));
    short.flat_map(|known| LockingMode::ALL.map(|mode| (known, mode)))
}

/// Two adjacent steps without a common object are independent. With the reduction, the exploration
/// visits every class of equivalent schedules that it visits without the reduction.
#[test]
fn reduction_skips_only_equivalent_schedules() {
    for (known, mode) in short() {
        assert_nothing_left_out(known.name, mode, || known.exploration(mode));
    }
}

/// Like [`reduction_skips_only_equivalent_schedules`], but time may pass at each point. If a timer
/// is cancelled before it expires, no schedule shows the timer's effect.
#[test]
#[ignore = "explores without reduction"]
fn reduction_loses_no_class_when_time_passes() {
    let text = "process main\n\
                \x20 on ALRM: rang = 1\n\
                \x20 alarm 1\n\
                \x20 child = fork child\n\
                \x20 alarm 0\n\
                \x20 wait child -> child exited 0 or EINTR\n\
                process child\n\
                \x20 sleep 1s\n\
                expect main exited 0\n";
    let scenario: Scenario = text.parse().expect("a scenario");
    for mode in LockingMode::ALL {
        assert_nothing_left_out("alarm", mode, || Exploration::scenario(&scenario).mode(mode));
    }
}

fn assert_nothing_left_out(name: &str, mode: LockingMode, exploration: impl Fn() -> Exploration) {
    let explored = |reduced| exploration().preemption_bound(BOUND).reduced(reduced).classes();
    let ((all, every), (some, met)) = (explored(false), explored(true));
    assert!(all.complete && some.complete, "{name}, {mode}: {:?}", all.violation);
    assert!(some.schedules <= all.schedules);
    let lost: Vec<_> = every.iter().filter(|(class, _)| !met.contains_key(class)).collect();
    assert!(lost.is_empty(), "{name}, {mode}: {lost:?}");
    assert_eq!(every.len(), met.len());
}

/// A fiber passes a point without a decision if only one choice exists, unless each step must be
/// reported. The schedules stay the same.
#[test]
fn skipping_forced_decisions_preserves_schedules() {
    for (known, mode) in short() {
        let exploration = known.exploration(mode).preemption_bound(2);
        let (classes, _) = exploration.classes();
        assert_eq!(exploration.run().by_bound, classes.by_bound, "{}, {mode}", known.name);
    }
}

/// Runs a program that assumes that the first of two children ends first.
fn believes(sys: &dyn Sys) -> i32 {
    let first = sys.fork(|_| 0).expect("within the limits");
    sys.fork(|_| 0).expect("within the limits");
    i32::from(sys.wait().expect("a child exists").pid != first)
}

#[test]
fn sampled_program_race_is_reproduced_by_replay() {
    let exploration = Exploration::new(|| believes);
    let found = exploration.sample(1, 1000).violation.expect("a seed shows the race");
    let seed = found.seed.expect("a sampled violation has a seed");
    let again = exploration.sample(seed, 1).violation.expect("the same seed");
    assert_eq!(again.schedule, found.schedule);
    let replayed = exploration.replay(&found.schedule);
    assert_eq!(replayed.violation, Some(found.what));
    assert!(replayed.interleaving.contains("fork"), "{}", replayed.interleaving);
}

#[test]
fn exploration_reports_deadlock_as_violation() {
    let found = Exploration::new(|| {
        |sys: &dyn Sys| {
            sys.pause();
            0
        }
    });
    let found = found.run().violation.expect("no process wakes the caller");
    assert_eq!(found.preemptions, 0);
    assert!(found.what.starts_with("all threads are blocked"), "{}", found.what);
}

#[test]
fn exploration_reports_endless_run_as_violation() {
    let exploration = Exploration::new(|| {
        |sys: &dyn Sys| loop {
            sys.poll();
        }
    });
    let found = exploration.max_steps(500).run().violation.expect("the run never ends");
    assert!(found.what.starts_with("the run did not end"), "{}", found.what);
}

/// Regression: the report of a run that reached the step limit stated only that the run was
/// stopped. The report named neither the limit, nor how to raise it, nor the running threads.
#[test]
fn report_at_step_limit_names_limit_and_running_threads() {
    let text = "process main\n  while 0 == 0\n    getpid\n";
    let scenario: Scenario = text.parse().expect("a scenario");
    let exploration = Exploration::scenario(&scenario).max_steps(500);
    let found = exploration.run().violation.expect("the run never ends").what;
    for said in [
        "none within 500 steps (the limit)",
        "--steps N",
        "running: process 3 (main), in or after ",
    ] {
        assert!(found.contains(said), "no {said:?}: {found}");
    }
    let program = Exploration::new(|| {
        |sys: &dyn Sys| loop {
            sys.poll();
        }
    });
    let found = program.max_steps(700).run().violation.expect("the run never ends").what;
    for said in ["within 700 steps (the limit)", "Exploration::max_steps", "running: process 2"] {
        assert!(found.contains(said), "no {said:?}: {found}");
    }
}

/// Regression: the report of processes that fork without end had thousands of lines.
#[test]
fn violation_with_many_processes_has_short_report() {
    let text = "process main\n  while 0 == 0\n    fork main\n";
    let scenario: Scenario = text.parse().expect("a scenario");
    let found = Exploration::scenario(&scenario).run().violation.expect("the run never ends").what;
    assert!(found.contains("more processes") && found.contains("more threads"), "{found}");
    assert!(found.lines().count() < 150, "{found}");
}

/// Regression: the report of a turn of a process's first thread named only the process, so a reader
/// could not determine which of several threads had acted.
#[test]
fn interleaving_names_threads_of_multithreaded_processes() {
    let text = "process main\n  other = thread other\n  getpid -> 1\n  join other\n\n\
                thread other\n  getpid -> 1\n";
    let scenario: Scenario = text.parse().expect("a scenario");
    let found = Exploration::scenario(&scenario).run().violation.expect("no process is 1");
    let turns: Vec<&str> =
        found.interleaving.lines().filter(|turn| turn.contains("(main)")).collect();
    assert!(turns.iter().all(|turn| turn.contains(", thread ")), "{}", found.interleaving);
    let threads: std::collections::BTreeSet<&str> =
        turns.iter().filter_map(|turn| turn.split(", thread ").nth(1)?.split(' ').next()).collect();
    assert_eq!(threads.len(), 2, "{}", found.interleaving);
    assert!(found.what.contains("in main, thread "), "{}", found.what);
}

#[test]
fn polling_and_yielding_fiber_lets_others_finish() {
    let outcome = Exploration::new(|| {
        |sys: &dyn Sys| {
            let children = [(); 2].map(|()| sys.fork(|_| 0).expect("within the limits"));
            for child in children {
                let options = tontine_unix::WaitOptions::NOHANG;
                while sys.waitpid(child.into(), options) == Ok(None) {
                    sys.sched_yield();
                }
            }
            0
        }
    });
    let outcome = outcome.preemption_bound(0).run();
    assert_held("polls", &outcome);
    assert!(outcome.complete);
}

#[test]
fn scenario_is_judged_under_each_schedule() {
    let text = include_str!("../scenes/believes.unix");
    let scenario: Scenario = text.parse().expect("a scenario");
    let exploration = Exploration::scenario(&scenario);
    let found = exploration.run().violation.expect("the second child may end first");
    assert!(found.what.contains("line 6"), "{}", found.what);
    assert!(found.interleaving.contains("(quick)"), "{}", found.interleaving);
}
