//! Tests of every way to create a thread or a process, with a few creations each, and of the
//! traces.

use tontine_host::peer::in_a_process_of_its_own;

use super::*;
use crate::told;

const SHORT: CreationPlan = CreationPlan { samples: 5, budget: Duration::from_millis(1) };

#[test]
fn every_variant_creates_and_waits() {
    for variant in VARIANTS {
        in_a_process_of_its_own(|| {
            let name = variant.name;
            for pinned in [true, false] {
                let observed = match measure(name, 1 << 20, pinned, SHORT) {
                    Ok(observed) => observed,
                    Err(MeasureError::Skipped(why)) => {
                        eprintln!("{name}: skipped: {why}");
                        return Ok(());
                    }
                    Err(trouble) => return Err(format!("{name}: {trouble}")),
                };
                let samples = &observed.series[0].samples;
                if !(FEWEST..=5).contains(&samples.len()) || samples.iter().any(|&ns| ns <= 0.0) {
                    return Err(format!("{name}: {samples:?}"));
                }
            }
            Ok(())
        });
    }
}

/// Checks the explanation of the system calls in the timed part against a trace.
#[test]
fn explained_system_calls_match_the_trace() {
    for variant in VARIANTS {
        told::hold(&explained::EXPLANATION, variant.name, || creator(variant.name));
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
            let text = events.map(|events| trace::explained(&events)).concat();
            assert!(text.contains("CLONE_SETTLS") && text.contains("si_code=CLD_EXITED"), "{text}");
            assert!(text.contains("one address space for both"), "the flags are explained: {text}");
        }
        Err(trouble) => assert!(matches!(trouble, MeasureError::Skipped(_)), "{trouble}"),
    }
}

#[test]
fn quick_run_has_every_variant_and_two_large_parents() {
    let topology = Topology::of_this_machine();
    let large = |size| {
        let all = VARIANTS.iter().flat_map(|one| ThreadVsProcess.params(one.name, &topology, size));
        all.filter(|cell| cell["parent"] == "1 GiB").count()
    };
    assert_eq!([Size::Quick, Size::Default, Size::Full].map(large), [2, 3, VARIANTS.len()]);
    for variant in VARIANTS {
        let cells = ThreadVsProcess.params(variant.name, &topology, Size::Quick);
        assert_eq!((&*cells[0]["parent"], &*cells[0]["placement"]), ("1 MiB", "same-core"));
    }
}

#[test]
fn unknown_variant_or_parameter_is_named() {
    let run = |variant: &str, parent: &str, placement: &str| {
        let task = InvocationTask {
            experiment: "thread-vs-process".into(),
            variant: variant.into(),
            params: cell(parent, placement),
            size: Size::Quick,
        };
        ThreadVsProcess.run(&task).expect_err("unknown").why().to_owned()
    };
    assert!(run("thread", "2 MiB", "same-core").contains("2 MiB"));
    assert!(run("thread", "1 MiB", "elsewhere").contains("elsewhere"));
    assert!(run("golem", "1 MiB", "same-core").contains("golem"));
}

#[test]
fn refused_ptrace_skips_and_names_it() {
    use crate::liveness_check::check::refused;
    let seen = refused::inside(&[libc::SYS_ptrace], || trace::system_calls(|| ()).map(|_| ()));
    let Some(Err(MeasureError::Skipped(why))) = &seen else {
        assert_eq!(seen, None);
        return eprintln!("skipped: no seccomp filters here");
    };
    assert!(why.starts_with("ptrace(PTRACE_TRACEME): "), "{why}");
}
