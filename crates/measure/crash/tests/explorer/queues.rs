//! Tests of the explorer on queues: mechanisms that survive every kill, mechanisms that are known
//! not to survive certain kills, and control mechanisms with a deliberate bug, which show that the
//! explorer finds bugs.

use std::collections::BTreeSet;

use tontine_crash::KillMode;
use tontine_crash::subject::Operation;
use tontine_crash::verdict::KillVerdict;

use crate::common::{explore, operations};

fn mailbox_survives_kills(sample: Option<usize>) {
    for name in ["mailbox", "mailbox-causal", "mailbox-succession", "mailbox-relay"] {
        let report = explore(name, |request| request.sample = sample);
        for one in operations(&report).into_iter().flatten() {
            assert_eq!(one.passed, one.explored, "{one:?}");
            let grows = one.operation != Operation::Grow || one.points > 1000;
            assert!(grows, "a lane that grows takes many steps: {one:?}");
        }
    }
}

#[test]
fn mailbox_survives_sampled_kills() {
    mailbox_survives_kills(Some(3));
}

#[test]
#[ignore = "takes long: kills at every instruction"]
fn mailbox_survives_every_kill() {
    mailbox_survives_kills(None);
}

#[test]
fn pipe_survives_every_kill() {
    let report = explore("pipe", |_| ());
    for one in operations(&report).into_iter().flatten() {
        assert_eq!(one.passed, one.classes, "{one:?}");
    }
}

fn ring_under_semaphores(operation: Option<Operation>) {
    let report = explore("semaphore-ring", |request| request.operation = operation);
    for one in operations(&report).into_iter().flatten() {
        let may_diverge = one.operation.name().ends_with("-waking");
        assert!(one.not_explored == 0 || may_diverge, "{one:?}");
        assert_eq!(one.torn, 0, "a message is counted after it was copied: {one:?}");
        let holds = one.operation.name() != "close";
        assert_eq!(one.wedged > 0, holds, "{one:?}");
    }
}

#[test]
fn ring_under_semaphores_wedges_if_holder_dies_in_send() {
    ring_under_semaphores(Some(Operation::Send));
    ring_under_semaphores(Some(Operation::Close));
}

#[test]
#[ignore = "takes long: waits for many timeouts"]
fn ring_under_semaphores_wedges_if_holder_dies() {
    ring_under_semaphores(None);
}

fn ring_under_robust_mutex(sample: Option<usize>) {
    let report = explore("robust-ring", |request| request.sample = sample);
    for one in operations(&report).into_iter().flatten() {
        // A woken process runs concurrently, so a run may take another path.
        let may_diverge = one.operation.name().ends_with("-waking");
        assert!(one.not_explored == 0 || may_diverge, "{one:?}");
        assert_eq!((one.torn, one.lost), (0, 0), "{one:?}");
        assert!(one.passed > 0, "{one:?}");
    }
}

#[test]
fn ring_under_robust_mutex_loses_no_message_in_sample() {
    ring_under_robust_mutex(Some(3));
}

#[test]
#[ignore = "takes long: kills at every instruction"]
fn ring_under_robust_mutex_loses_no_message() {
    ring_under_robust_mutex(None);
}

/// Proves that the explorer finds bugs; otherwise a report without findings would prove nothing.
#[test]
fn broken_control_queues_yield_expected_verdicts() {
    for (name, verdict) in [
        ("control-lock", KillVerdict::Wedged),
        ("control-torn", KillVerdict::Torn),
        ("control-lost", KillVerdict::Lost),
    ] {
        let report = explore(name, |_| ());
        for one in operations(&report).into_iter().flatten() {
            let found: BTreeSet<&str> =
                one.findings.iter().map(|finding| finding.detail.as_str()).collect();
            assert!(
                one.findings.iter().any(|finding| finding.verdict == verdict),
                "{name} is expected to be {verdict:?}, found: {found:?}"
            );
        }
    }
}

#[test]
fn reproducer_repeats_recorded_kill() {
    let report = explore("control-lock", |_| ());
    let Some(operations) = operations(&report) else {
        return;
    };
    let [one] = operations else { panic!("expected one operation") };
    assert!(!one.findings.is_empty(), "expected a finding to repeat");
    for finding in one.findings.iter().take(1) {
        let words: Vec<&str> = finding.reproducer.split_whitespace().collect();
        let point = finding.point.to_string();
        assert_eq!(
            words,
            ["tontine-measure", "crash", "control-lock", "--operation", "send", "--point", &point]
        );
        let again = explore("control-lock", |request| request.point = Some((finding.point, None)));
        let [again] = self::operations(&again).expect("the first run was traced") else {
            panic!("expected one operation");
        };
        assert_eq!((again.explored, again.wedged), (1, 1), "{again:?}");
        assert_eq!(again.findings[0].code, finding.code, "the same instruction");
    }
}

#[test]
fn missing_kill_point_returns_error() {
    let report = explore("control-torn", |request| request.point = Some((1 << 30, None)));
    let trouble = report.subjects[0].operations[0].trouble.as_deref().unwrap_or_default();
    assert!(trouble.contains("no point") || trouble.starts_with("skipped: "), "{trouble:?}");
}

/// A receiver dies before it acknowledges a message, and its successor dies at every point of the
/// takeover of the lane. The third receiver receives all messages, in order.
#[test]
#[ignore = "takes long: kills twice at every instruction"]
fn lane_survives_two_receiver_deaths() {
    let report = explore("mailbox-succession", |request| {
        request.mode = KillMode::Pairs;
        request.operation = Some(Operation::Receive);
        request.point = Some((0, None));
    });
    for one in operations(&report).into_iter().flatten() {
        assert!(one.explored > 10, "a takeover has many steps: {one:?}");
        assert_eq!((one.passed, one.not_explored), (one.explored, 0), "{one:?}");
    }
}

/// Like [`lane_survives_two_receiver_deaths`], but the first receiver dies before it waits for
/// messages, and the second dies while it binds the address.
#[test]
#[ignore = "takes long: kills twice at every instruction"]
fn lane_survives_death_of_binding_successor() {
    let report = explore("mailbox-succession", |request| {
        request.mode = KillMode::Pairs;
        request.operation = Some(Operation::ReceiveEmpty);
        request.point = Some((0, None));
    });
    for one in operations(&report).into_iter().flatten() {
        assert!(one.explored > 10, "binding an address has many steps: {one:?}");
        assert_eq!((one.passed, one.not_explored), (one.explored, 0), "{one:?}");
    }
}

/// Like [`lane_survives_death_of_binding_successor`], but the second receiver dies at one step.
#[test]
fn lane_survives_death_of_successor_early_in_bind() {
    let report = explore("mailbox-succession", |request| {
        request.mode = KillMode::Pairs;
        request.operation = Some(Operation::ReceiveEmpty);
        request.point = Some((0, Some(100)));
    });
    for one in operations(&report).into_iter().flatten() {
        assert_eq!((one.explored, one.passed), (1, 1), "{one:?}");
    }
}
