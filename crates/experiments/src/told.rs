//! Checks the system calls in an explanation against those that a [`Creator`] makes: [`hold`].

use tontine_bench::about::Explanation;
use tontine_host::error::{MeasureError, Result};
use tontine_host::trace::{self, TraceEvent, Who};
use tontine_mechanisms::creation::Creator;

/// A call in the explanation, and `true` if it is always made.
type ListedCall<'a> = (&'a str, bool);

/// Fails if the caller or the created process makes a call that the explanation lacks, omits a call
/// that the explanation lists, or makes the calls in a different order.
pub(crate) fn hold(
    explanation: &Explanation,
    variant: &str,
    make: impl FnOnce() -> Result<Creator> + Send,
) {
    let twice = trace::events(|| {
        let creator = make().expect("a creator");
        creator.create_and_wait().expect("the first creation");
        // Marks the start of the second creation in the trace.
        std::hint::black_box(rustix::process::getppid());
        creator.create_and_wait().expect("the second creation");
        // The creator is not dropped here, because it would close its descriptors inside the trace.
        std::mem::forget(creator);
    });
    let events = match twice {
        Ok(events) => events,
        Err(MeasureError::Skipped(why)) => return eprintln!("skipped: {why}"),
        Err(trouble) => panic!("{variant}: {trouble}"),
    };
    let mark = |event: &TraceEvent| event.call().is_some_and(|call| call.name == Some("getppid"));
    let split = events.iter().position(mark).expect("the call of getppid");
    let second = &events[split + 1..];
    let mut told = explanation.calls.iter();
    let (_, told) = told
        .find(|(names, _)| names.split(", ").any(|one| one == variant))
        .expect("an explanation");
    let seen = |callers: bool| -> Vec<String> {
        let calls = second.iter().filter_map(TraceEvent::call);
        let calls = calls.filter(|call| (call.who == Who::Caller) == callers);
        calls.map(trace::Call::title).collect()
    };
    let (caller, created) = read(told);
    for (who, told, seen) in [("caller", caller, seen(true)), ("created", created, seen(false))] {
        assert!(agree(&told, &seen), "{variant}, {who}: explained {told:?}, traced {seen:?}");
    }
    let creations = second.iter().filter_map(|event| event.call()?.creates);
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
        if let Some(name) = words.find(|word| trace::is_a_call(word)) {
            let sometimes = [" if ", " unless "].iter().any(|word| clause.contains(word));
            of.push((name, !sometimes));
        }
    }
    (caller, created)
}

/// Returns `true` if the calls are those of the explanation, with or without the calls that are not
/// always made. Consecutive calls with the same name count as one.
fn agree(told: &[ListedCall<'_>], seen: &[String]) -> bool {
    let mut seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    seen.dedup();
    [false, true].into_iter().any(|only_certain| {
        let told = told.iter().filter(|(_, certain)| *certain || !only_certain);
        let mut told: Vec<&str> = told.map(|(name, _)| *name).collect();
        told.dedup();
        told == seen
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
    let told = [("munmap", true), ("futex", false), ("exit_group", true)];
    let agrees = |seen: &[&str]| {
        let seen: Vec<String> = seen.iter().map(|&name| name.to_owned()).collect();
        agree(&told, &seen)
    };
    assert!(agrees(&["munmap", "exit_group"]));
    assert!(agrees(&["munmap", "futex", "futex", "exit_group"]));
    assert!(!agrees(&["munmap", "exit"]));
    assert!(!agrees(&["munmap", "munmap", "exit_group", "mmap"]));
    assert!(!agrees(&["exit_group"]));
    assert!(!agrees(&["exit_group", "munmap"]));
}
