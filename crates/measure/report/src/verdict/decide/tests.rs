//! Tests that each answer follows from its figures, names them, and guesses nothing.

use crate::fixture;

use super::*;

fn answers(results: &Results) -> Vec<(&'static str, String)> {
    let all = decisions(results);
    all.iter().map(|decision| (decision.question, decision.answer.plain())).collect()
}

fn measured(results: &mut Results, variant: &str, ns: f64) {
    for cell in results.cells.iter_mut().filter(|cell| cell.variant == variant) {
        (cell.estimate, cell.low, cell.high) = (Some(ns), Some(ns * 0.99), Some(ns * 1.01));
    }
}

#[test]
fn decisions_follow_from_figures() {
    let mut results = fixture::run();
    let all = answers(&results);
    assert_eq!(all.len(), 6);
    assert!(all[0].1.starts_with("Spin for about 2."), "{}", all[0].1);
    assert!(all[1].1.starts_with("Messages do not decide: no difference"), "{}", all[1].1);
    assert!(all[1].1.contains("as long as between threads (semaphore). "), "{}", all[1].1);
    assert!(all[2].1.starts_with("futex-word: right after all 4"), "{}", all[2].1);
    assert!(all[3].1.starts_with("mailbox-spin "), "{}", all[3].1);
    assert!(all[4].1.starts_with("Yes: words 8 bytes apart"), "{}", all[4].1);
    assert!(all[5].1.starts_with("mimalloc, with 2 threads"), "{}", all[5].1);
    measured(&mut results, "mailbox-sleep", 90.0);
    measured(&mut results, "semaphore-process", 9_000.0);
    measured(&mut results, "glibc", 1.0);
    let all = answers(&results);
    assert!(all[0].1.starts_with("Sleep: here it is even faster"), "{}", all[0].1);
    assert!(all[1].1.starts_with("Thread, if messages matter"), "{}", all[1].1);
    assert!(all[5].1.starts_with("glibc"), "{}", all[5].1);
}

#[test]
fn answers_name_cells_of_run_with_intervals() {
    let results = fixture::run();
    for decision in decisions(&results) {
        assert!(!decision.figures.is_empty(), "{}", decision.question);
        for one in &decision.figures {
            let cell = results.cells.iter().find(|cell| evidence(cell).as_ref() == Some(one));
            assert!(cell.is_some() && !one.shown.interval.is_empty(), "{one:?}");
        }
    }
}

#[test]
fn unmeasured_figures_are_named_and_not_guessed() {
    let mut results = fixture::run();
    results.cells.clear();
    results.tried.clear();
    let all = decisions(&results);
    assert_eq!(all.len(), 4);
    for decision in &all {
        assert_eq!(decision.answer.plain(), "Not decided.", "{}", decision.question);
        assert!(!decision.missing.is_empty() && decision.figures.is_empty());
    }
    let mut results = fixture::run();
    results.cells.retain(|cell| cell.experiment != "thread-vs-process");
    let mut skipped = fixture::small().cells[2].clone();
    (skipped.experiment, skipped.why) = ("thread-vs-process".into(), Some("no free space".into()));
    results.cells.push(skipped);
    let all = decisions(&results);
    assert_eq!(all[1].missing, ["thread-vs-process (no free space)"]);
}

#[test]
fn liveness_decision_names_least_wrong_check_if_all_fail() {
    let mut results = fixture::run();
    for row in &mut results.tried {
        if row.variant == "futex-word" && row.tried.event == "exec" {
            row.tried.says = "alive".into();
        }
    }
    let answer = answers(&results)[2].1.clone();
    let least = [
        "futex-word: wrong least often, after 1 of 4",
        "polling-thread: wrong least often, after 2 of 4",
    ];
    assert!(answer.starts_with(least[0]) && answer.contains("(exec)"), "{answer}");
    results.tried.retain(|row| row.variant != "futex-word");
    let answer = answers(&results)[2].1.clone();
    assert!(answer.starts_with(least[1]) && answer.contains("(exec, zombie)"), "{answer}");
}

/// Regression: if no difference was resolved, the answer said that a message takes "no longer". A
/// semaphore between threads with two modes represented all mechanisms, and a vfork represented a
/// process.
#[test]
fn thread_or_process_has_three_answers_from_steady_rows() {
    let mut results = fixture::run();
    measured(&mut results, "semaphore-process", 9_000.0);
    let answer = |results: &Results| answers(results)[1].1.clone();
    assert!(answer(&results).starts_with("Thread, if messages matter"));
    measured(&mut results, "semaphore-process", 90.0);
    let below = answer(&results);
    assert!(below.starts_with("Process, if messages matter: one between processes takes 0.0"));
    assert!(below.contains("Creating and ending a process (fork) takes 4.12× (4.00× – 4.20×)"));

    // The other pair has a single mode at the same placement, and therefore supplies the answer.
    for cell in results.cells.iter_mut().filter(|cell| cell.variant == "semaphore") {
        cell.notes.push("unstable: two modes between invocations: 2 near 488 ns".into());
    }
    let answer = answer(&results);
    assert!(answer.starts_with("Messages do not decide") && answer.contains("(spinlock-tas)"));
    let rests = decisions(&results)[1].figures.clone();
    let named = |name: &str| rests.iter().any(|one| one.name.contains(name));
    assert!(named("/spinlock-tas-process ") && named("/fork ") && !named("vfork"), "{rests:?}");
}

#[test]
fn spin_or_sleep_cites_longest_pause_of_same_mechanism() {
    let mut results = fixture::run();
    let decision = &decisions(&results)[0];
    let answer = decision.answer.plain();
    assert!(answer.contains("After 10 ms asleep, a wake-up takes 3"), "{answer}");
    let of = "wake-up/mailbox-sleep one_way [pause_us ";
    let pauses: Vec<&str> =
        decision.figures.iter().filter_map(|one| one.name.strip_prefix(of)).collect();
    assert_eq!(pauses, ["1, placement cross-core]", "10000, placement cross-core]"]);
    results.cells.retain(|cell| cell.experiment != "wake-up" || cell.variant == "futex");
    let decision = &decisions(&results)[0];
    assert_eq!(decision.missing, ["wake-up/mailbox-sleep"]);
    assert!(!decision.answer.plain().contains("asleep"));
}

#[test]
fn survival_decision_cites_cell_of_torn_messages() {
    let figures = decisions(&fixture::run())[3].figures.clone();
    let torn = figures.iter().find(|one| one.name == "survival/mailbox torn").unwrap();
    assert_eq!(torn.shown.in_line(), "0 of 500 (at most 0.74 %)");
}

#[test]
fn survival_decision_prefers_mechanism_that_loses_nothing() {
    let mut results = fixture::run();
    results.cells.retain(|c| c.experiment != "survival" || c.variant != "mailbox");
    let answer = answers(&results)[3].1.clone();
    assert!(answer.starts_with("pipe ") && answer.contains("were lost"), "{answer}");
    results.cells.retain(|c| {
        c.experiment != "survival" || ["futex", "zmq-ipc"].contains(&c.variant.as_str())
    });
    assert_eq!(answers(&results)[3].1, "None of the tested mechanisms.");
}
