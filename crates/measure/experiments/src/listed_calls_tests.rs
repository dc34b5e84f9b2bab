//! Checks the system calls in an explanation against those that a [`Creator`] makes:
//! [`assert_match`].

use tontine_mechanisms::creation::Creator;

use crate::prelude::*;
use crate::strace::{self, TraceLine};

/// The system calls that explanations name.
const CALLS: [&str; 15] = [
    "clone",
    "clone3",
    "vfork",
    "wait4",
    "futex",
    "exit",
    "exit_group",
    "execve",
    "mmap",
    "munmap",
    "madvise",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "set_robust_list",
];

/// A call in the explanation, and `true` if it is always made.
type ListedCall<'a> = (&'a str, bool);

/// Fails if the caller or the created process makes a call that the explanation lacks, omits a call
/// that the explanation lists, or makes the calls in a different order.
pub(crate) fn assert_match(
    explanation: &Explanation,
    variant: &str,
    make: impl FnOnce() -> Result<Creator>,
) {
    let twice = strace::trace(|| {
        let creator = make().expect("a creator");
        creator.create_and_wait().expect("the first creation");
        // Marks the start of the second creation in the trace.
        std::hint::black_box(rustix::process::getppid());
        creator.create_and_wait().expect("the second creation");
        // The creator is not dropped here, because it would close its descriptors inside the trace.
        std::mem::forget(creator);
    });
    let lines = match twice {
        Ok(lines) => lines,
        Err(MeasureError::Skipped(why)) => return eprintln!("skipped: {why}"),
        Err(error) => panic!("{variant}: {error}"),
    };
    let mark = |line: &TraceLine| line.call() == Some("getppid");
    let split = lines.iter().position(mark).expect("the call of getppid");
    let second = &lines[split + 1..];
    let mut listed = explanation.calls.iter();
    let (_, listed) = listed
        .find(|(names, _)| names.split(", ").any(|one| one == variant))
        .expect("an explanation");
    let seen = |callers: bool| -> Vec<String> {
        let lines = second.iter().filter(|line| line.by_caller == callers);
        lines.filter_map(TraceLine::call).map(str::to_owned).collect()
    };
    let (caller, created) = read(listed);
    for (who, listed, seen) in [("caller", caller, seen(true)), ("created", created, seen(false))] {
        assert!(agree(&listed, &seen), "{variant}, {who}: explained {listed:?}, traced {seen:?}");
    }
    let creations = second.iter().filter(|line| line.is_creation());
    assert_eq!(creations.count(), 1, "{variant}");
}

/// Returns the calls in the first sentence: those of the caller, and those of the created process
/// or thread.
fn read(text: &str) -> (Vec<ListedCall<'_>>, Vec<ListedCall<'_>>) {
    let (mut caller, mut created) = (Vec::new(), Vec::new());
    let mut of = &mut caller;
    for clause in text.split(". ").next().unwrap_or_default().split([',', ';']) {
        if ["in the child", "in the thread"].iter().any(|who| clause.trim().starts_with(who)) {
            of = &mut created;
        }
        let mut words =
            clause.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        if let Some(name) = words.find(|word| CALLS.contains(word)) {
            let sometimes = [" if ", " unless "].iter().any(|word| clause.contains(word));
            of.push((name, !sometimes));
        }
    }
    (caller, created)
}

/// Returns `true` if the calls are those of the explanation, with or without the calls that are not
/// always made. Consecutive calls with the same name count as one.
fn agree(listed: &[ListedCall<'_>], seen: &[String]) -> bool {
    let mut seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    seen.dedup();
    [false, true].into_iter().any(|only_certain| {
        let listed = listed.iter().filter(|(_, certain)| *certain || !only_certain);
        let mut listed: Vec<&str> = listed.map(|(name, _)| *name).collect();
        listed.dedup();
        listed == seen
    })
}

#[test]
fn explained_clauses_parse_as_calls_of_caller_and_child() {
    let text = "clone3 as fork, wait4; futex in the join if it lives; in the child exit. No mmap";
    let (caller, created) = read(text);
    assert_eq!(caller, [("clone3", true), ("wait4", true), ("futex", false)]);
    assert_eq!(created, [("exit", true)]);
}

/// Regression: the check accepted a substring of an explained call, and did not require an
/// explained call to be made.
#[test]
fn different_missing_or_reordered_calls_disagree() {
    let listed = [("munmap", true), ("futex", false), ("exit_group", true)];
    let agrees = |seen: &[&str]| {
        let seen: Vec<String> = seen.iter().map(|&name| name.to_owned()).collect();
        agree(&listed, &seen)
    };
    assert!(agrees(&["munmap", "exit_group"]));
    assert!(agrees(&["munmap", "futex", "futex", "exit_group"]));
    assert!(!agrees(&["munmap", "exit"]));
    assert!(!agrees(&["munmap", "munmap", "exit_group", "mmap"]));
    assert!(!agrees(&["exit_group"]));
    assert!(!agrees(&["exit_group", "munmap"]));
}
