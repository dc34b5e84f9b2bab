//! Tests of real sessions on pseudo-terminals and, if the machine has an sshd, through a remote
//! login.

use std::fs;
use std::time::{Duration, Instant};

use super::*;
use crate::invocation_tests::{AMPLE, is_killed_with_its_processes, leaves_nothing, place};

fn ends_and_leaves_nothing(variant: &str) {
    leaves_nothing(
        || measure(variant, 2, 1, AMPLE),
        |observed| {
            let Ok(observed) = observed else { return false };
            let samples = &observed.series[0].samples;
            let noted = |note: &String| note.starts_with("all 2 were at work for ");
            samples.len() == 2
                && samples.iter().all(|&seconds| seconds > 0.01)
                && observed.notes.iter().any(noted)
        },
    );
}

#[test]
fn two_sessions_at_terminals_end_and_leave_nothing() {
    ends_and_leaves_nothing("pty");
}

#[test]
fn two_remote_logins_end_and_leave_nothing() {
    let real = || fs::read("/etc/passwd").ok();
    let before = real();
    ends_and_leaves_nothing("login");
    assert_eq!(real(), before, "the real /etc/passwd was written");
}

/// Two clients, two shells, and a command of each.
#[test]
fn killed_invocation_kills_its_users_processes() {
    is_killed_with_its_processes(6, |_| measure("login", 2, 1_000, AMPLE));
}

/// The second script exits with 0, but before its end.
#[test]
fn failed_session_reports_its_last_output() {
    in_a_process_of_its_own(|| {
        let place = place();
        let script = Script { text: String::new(), missing: Vec::new() };
        let homes = homes(place.path(), 1, &script).expect("homes");
        for (script, output) in [("echo so far; exit 4\n", "so far"), ("exit 0\n", "")] {
            fs::write(script_in(place.path()), script).expect("a script");
            match at_terminals(&homes, Instant::now() + AMPLE) {
                Err(MeasureError::Failed(why)) => assert!(why.contains(output), "{why}"),
                found => assert!(unless_skipped(found, script).is_none(), "{script}"),
            }
        }
    });
}

#[test]
fn share_of_all_is_the_overlap_of_all_spans() {
    let zero = Instant::now();
    let at = |ms: u64| zero + Duration::from_millis(ms);
    let span = |from, to| SessionSpan { began: at(from), ended: at(to) };
    assert_eq!(share_of_all(&[span(0, 80)]), 1.0);
    assert_eq!(share_of_all(&[span(0, 80), span(20, 100)]), 0.6);
    assert_eq!(share_of_all(&[span(0, 40), span(50, 100), span(20, 60)]), 0.0);
    assert_eq!(share_of_all(&[]), 0.0);
}
