//! Each answer follows its figures, names them, and guesses none.

use super::*;
use crate::report::fixture;

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
fn each_answer_follows_its_figures() {
    let mut results = fixture::run();
    let all = answers(&results);
    assert_eq!(all.len(), 6);
    assert!(all[0].1.starts_with("Spin for about 2."), "{}", all[0].1);
    assert!(all[1].1.starts_with("Process: "), "{}", all[1].1);
    assert!(all[2].1.starts_with("futex-word: right in all 4"), "{}", all[2].1);
    assert!(all[3].1.starts_with("mailbox-spin "), "{}", all[3].1);
    assert!(all[4].1.starts_with("Yes: words 8 bytes apart"), "{}", all[4].1);
    assert!(all[5].1.starts_with("mimalloc, with 2 threads"), "{}", all[5].1);
    measured(&mut results, "mailbox-sleep", 90.0);
    measured(&mut results, "semaphore-process", 9_000.0);
    measured(&mut results, "glibc", 1.0);
    let all = answers(&results);
    assert!(all[0].1.starts_with("Sleep: here it is even faster"), "{}", all[0].1);
    assert!(all[1].1.starts_with("Thread, where messages decide"), "{}", all[1].1);
    assert!(all[5].1.starts_with("glibc"), "{}", all[5].1);
}

#[test]
fn every_answer_names_cells_of_the_run_with_their_intervals() {
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
fn what_was_not_measured_is_named_and_nothing_is_guessed() {
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
    (skipped.experiment, skipped.why) = ("thread-vs-process".into(), Some("no room".into()));
    results.cells.push(skipped);
    let all = decisions(&results);
    assert_eq!(all[1].missing, ["thread-vs-process (no room)"]);
}

#[test]
fn where_no_check_is_always_right_the_one_that_errs_least_is_named_with_its_errors() {
    let mut results = fixture::run();
    for row in &mut results.tried {
        if row.variant == "futex-word" && row.tried.event == "exec" {
            row.tried.says = "dead".into();
        }
    }
    let answer = answers(&results)[2].1.clone();
    let least = ["futex-word: it errs least, in 1 of 4", "kill-0: it errs least, in 1 of 4"];
    assert!(answer.starts_with(least[0]) && answer.contains("(exec)"), "{answer}");
    results.tried.retain(|row| row.variant != "futex-word");
    let answer = answers(&results)[2].1.clone();
    assert!(answer.starts_with(least[1]) && answer.contains("(zombie)"), "{answer}");
}

#[test]
fn of_two_survivors_the_one_that_keeps_the_mail_is_chosen() {
    let mut results = fixture::run();
    results.cells.retain(|c| c.experiment != "survival" || c.variant != "mailbox");
    let answer = answers(&results)[3].1.clone();
    assert!(answer.starts_with("pipe ") && answer.contains("was lost"), "{answer}");
    results.cells.retain(|c| {
        c.experiment != "survival" || ["futex", "zmq-ipc"].contains(&c.variant.as_str())
    });
    assert_eq!(answers(&results)[3].1, "None of those that were killed.");
}
