//! Tests of every way to create a thread or a process, with a few creations each, and of the
//! traces.

use std::time::Duration;

use super::*;
use crate::listed_calls_tests as listed_calls;

const SHORT: CreationPlan = CreationPlan { samples: 5, budget: Duration::from_millis(1) };

#[test]
fn every_variant_creates_and_waits() {
    for variant in ThreadVsProcess.variants() {
        in_a_process_of_its_own(|| {
            for (bytes, pinned) in [(1 << 20, true), (0, true), (0, false)] {
                let found = measure(variant.name, bytes, pinned, SHORT);
                let Some(observed) = unless_skipped(found, variant) else { return };
                let samples = &observed.series[0].samples;
                let whole = (FEWEST..=5).contains(&samples.len());
                assert!(whole && samples.iter().all(|&ns| ns > 0.0), "{variant:?}: {samples:?}");
                no_child_is_left();
            }
        });
    }
}

/// Checks the explanation of the system calls in the timed part against a trace.
#[test]
fn explained_system_calls_match_the_trace() {
    for variant in ThreadVsProcess.variants() {
        listed_calls::assert_match(ThreadVsProcess.explanation(), variant.name, || {
            creator(variant.name)
        });
    }
}

#[test]
fn thread_and_fork_notes_contain_their_trace() {
    for (variant, flag) in [("thread", "CLONE_THREAD"), ("fork", "exit_signal=SIGCHLD")] {
        let notes = seen(variant);
        let refused = notes.len() == 1 && notes[0].contains("could not be traced: skipped");
        assert!(refused || notes.iter().any(|note| note.contains(flag)), "{notes:?}");
    }
    assert!(seen("vfork").is_empty());
    match traces() {
        Ok(events) => {
            let text = events.map(|events| strace::explained(&events)).concat();
            assert!(text.contains("CLONE_SETTLS") && text.contains("si_code=CLD_EXITED"), "{text}");
            assert!(text.contains("one address space for both"), "the flags are explained: {text}");
        }
        Err(error) => assert!(matches!(error, MeasureError::Skipped(_)), "{error}"),
    }
}

#[test]
fn quick_run_has_every_variant_and_two_large_parents() {
    let topology = Topology::of_this_machine();
    let large = |size| {
        let all = ThreadVsProcess
            .variants()
            .iter()
            .flat_map(|one| ThreadVsProcess.params(one.name, &topology, size));
        all.filter(|cell| cell["parent"] == "1 GiB").count()
    };
    assert_eq!(
        [Size::Quick, Size::Default, Size::Full].map(large),
        [2, 3, ThreadVsProcess.variants().len() - SMALL_ONLY.len()]
    );
    for variant in ThreadVsProcess.variants() {
        let cells = ThreadVsProcess.params(variant.name, &topology, Size::Quick);
        let parent = if SMALL_ONLY.contains(&variant.name) { "small" } else { "1 MiB" };
        assert_eq!((&*cells[0]["parent"], &*cells[0]["placement"]), (parent, "same-core"));
    }
}

#[test]
fn refused_ptrace_skips_the_trace() {
    crate::liveness_check::refused_tests::skips(&[libc::SYS_ptrace], "strace", || {
        strace::trace(|| ()).map(drop)
    });
}
