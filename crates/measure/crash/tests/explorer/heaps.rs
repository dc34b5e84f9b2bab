//! Tests of the explorer on heaps: Tontine's heap, which survives every kill, and control heaps
//! with a deliberate bug.

use tontine_crash::KillMode;
use tontine_crash::subject::Operation;
use tontine_crash::verdict::KillVerdict;

use crate::common::{explore, operations};

/// The heap allocates no block twice, loses no block, and blocks no member.
fn assert_survives(operation: Option<Operation>, sample: Option<usize>) {
    let report = explore("heap", |request| {
        request.operation = operation;
        request.sample = sample;
    });
    for one in operations(&report).into_iter().flatten() {
        assert!(one.stepped, "{one:?}");
        assert_eq!((one.passed, one.not_explored), (one.explored, 0), "{one:?}");
    }
}

/// Samples the operations that have few steps even in unoptimised code.
#[test]
fn shared_heap_survives_sampled_kills() {
    for operation in [
        Operation::Allocate,
        Operation::AllocateSlab,
        Operation::Free,
        Operation::FreeRemote,
        Operation::HandOver,
        Operation::Accept,
    ] {
        assert_survives(Some(operation), Some(2));
    }
}

/// Exists only in optimised builds: without optimisation, a recovery has more steps than a
/// recording.
#[cfg(not(debug_assertions))]
#[test]
#[ignore = "takes long: kills at every instruction"]
fn shared_heap_survives_every_kill() {
    assert_survives(None, None);
}

/// A member dies during a handover, and the member that recovers it dies at each step of the
/// recovery. A third member then finds the heap consistent. Exists only in optimised builds, like
/// [`shared_heap_survives_every_kill`].
#[cfg(not(debug_assertions))]
#[test]
#[ignore = "takes long: kills twice at every instruction"]
fn heap_survives_two_successive_deaths() {
    let report = explore("heap", |request| {
        request.mode = KillMode::Pairs;
        request.operation = Some(Operation::HandOver);
        request.sample = Some(1);
    });
    for one in operations(&report).into_iter().flatten() {
        assert!(one.explored > 10, "a recovery has many steps: {one:?}");
        assert_eq!((one.passed, one.not_explored), (one.explored, 0), "{one:?}");
    }
}

/// Proves that the explorer finds bugs; otherwise a report without findings would prove nothing.
#[test]
fn broken_control_heaps_yield_expected_verdicts() {
    for (name, verdict) in [
        ("control-heap-lock", Some(KillVerdict::Wedged)),
        ("control-heap-torn", Some(KillVerdict::Torn)),
        ("control-heap-lost", Some(KillVerdict::Lost)),
        ("control-heap-sound", None),
    ] {
        let report = explore(name, |_| ());
        for one in operations(&report).into_iter().flatten() {
            let found = |verdict| one.findings.iter().any(|finding| finding.verdict == verdict);
            assert!(verdict.is_none_or(found), "{name} is expected to be {verdict:?}: {one:?}");
            assert!(verdict.is_some() || one.findings.is_empty(), "{name} is sound: {one:?}");
        }
    }
}

/// Explores a control heap with a bug that no single kill reveals, and the sound control heap,
/// which survives two deaths.
#[test]
fn pairs_mode_finds_heap_broken_by_two_deaths() {
    for (name, mode, lost) in [
        ("control-heap-pairs", KillMode::Fast, false),
        ("control-heap-pairs", KillMode::Pairs, true),
        ("control-heap-sound", KillMode::Pairs, false),
    ] {
        let report = explore(name, |request| request.mode = mode);
        for one in operations(&report).into_iter().flatten() {
            assert_eq!((one.lost > 0, one.wedged, one.torn), (lost, 0, 0), "{name}: {one:?}");
            assert!(one.passed > 0, "{name}: {one:?}");
        }
    }
}

/// A member that dies while it holds the mutex leaves the mutex locked, and no member frees the
/// blocks of the dead member.
#[test]
fn heap_under_non_robust_mutex_wedges() {
    let report = explore("boost-heap", |request| request.operation = Some(Operation::Allocate));
    for one in operations(&report).into_iter().flatten() {
        assert!(one.wedged > 0 && one.passed > 0, "{one:?}");
    }
}
