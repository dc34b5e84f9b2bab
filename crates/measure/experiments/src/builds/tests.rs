//! Tests of real builds, at the lowest levels.

use std::time::Duration;

use super::*;
use crate::invocation_tests::{AMPLE, is_killed_with_its_processes, leaves_nothing};

#[test]
#[ignore = "takes long: compiles programs"]
fn two_concurrent_builds_end_and_leave_no_files() {
    leaves_nothing(
        || measure(2, AMPLE),
        |observed| {
            let Ok(observed) = observed else { return false };
            let samples = &observed.series[0].samples;
            let noted = observed.notes[0].contains("lines of C");
            noted && samples.len() == 2 && samples.iter().all(|&took| took > 0.01)
        },
    );
}

#[test]
fn build_beyond_its_timeout_fails_and_leaves_nothing() {
    leaves_nothing(
        || measure(1, Duration::ZERO),
        |found| matches!(found, Err(error) if error.why().contains("within its time")),
    );
}

/// Two `make` processes, each with a child.
#[test]
fn killed_invocation_kills_its_builds() {
    is_killed_with_its_processes(4, |_| measure(2, AMPLE));
}
