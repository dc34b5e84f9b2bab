//! What an explanation tells of system calls against those that a [`Creator`] makes: [`hold`].

use tontine_bench::about::Explanation;
use tontine_host::trace::{self, TraceEvent, Who};
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::creation::Creator;

/// A call that is told of, and whether it is always made.
type Told<'a> = (&'a str, bool);

/// Fails where the caller or the created make another call than is told of, leave one out, or make
/// them in another order.
pub(crate) fn hold(
    explanation: &Explanation,
    variant: &str,
    make: impl FnOnce() -> Result<Creator> + Send,
) {
    let twice = trace::events(|| {
        let creator = make().expect("what it needs");
        creator.create_and_wait().expect("the first");
        // Splits what follows from what was before.
        std::hint::black_box(rustix::process::getppid());
        creator.create_and_wait().expect("the second");
        // Nor is what comes after: its end would close what it holds.
        std::mem::forget(creator);
    });
    let events = match twice {
        Ok(events) => events,
        Err(Trouble::Skipped(why)) => return eprintln!("skipped: {why}"),
        Err(trouble) => panic!("{variant}: {trouble}"),
    };
    let mark = |event: &TraceEvent| event.call().is_some_and(|call| call.name == Some("getppid"));
    let split = events.iter().position(mark).expect("the mark");
    let second = &events[split + 1..];
    let mut told = explanation.calls.iter();
    let (_, told) =
        told.find(|(names, _)| names.split(", ").any(|one| one == variant)).expect("it is told of");
    let seen = |callers: bool| -> Vec<String> {
        let calls = second.iter().filter_map(TraceEvent::call);
        let calls = calls.filter(|call| (call.who == Who::Caller) == callers);
        calls.map(trace::Call::title).collect()
    };
    let (caller, created) = read(told);
    for (who, told, seen) in [("caller", caller, seen(true)), ("created", created, seen(false))] {
        assert!(agree(&told, &seen), "{variant}, {who}: told of {told:?}, seen {seen:?}");
    }
    let creations = second.iter().filter_map(|event| event.call()?.creates);
    assert_eq!(creations.count(), 1, "{variant}");
}

/// The calls of the first sentence: the caller's, and those of whoever is created.
fn read(text: &str) -> (Vec<Told<'_>>, Vec<Told<'_>>) {
    let (mut caller, mut created) = (Vec::new(), Vec::new());
    let mut of = &mut caller;
    for clause in text.split(". ").next().unwrap_or_default().split([',', ';']) {
        if ["in the child", "in the thread"].iter().any(|who| clause.trim().starts_with(who)) {
            of = &mut created;
        }
        let mut words =
            clause.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        if let Some(name) = words.find(|word| trace::is_a_call(word)) {
            of.push((name, !clause.contains(" where ")));
        }
    }
    (caller, created)
}

/// Whether the calls are those that are told of, with or without those that are not always made. A
/// call several times in a row is one.
fn agree(told: &[Told<'_>], seen: &[String]) -> bool {
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
fn clauses_are_read_as_calls_of_the_caller_and_of_the_created() {
    let text =
        "clone3 as fork, wait4; futex in the join where it lives; in the child exit. No mmap";
    let (caller, created) = read(text);
    assert_eq!(caller, [("clone3", true), ("wait4", true), ("futex", false)]);
    assert_eq!(created, [("exit", true)]);
}

/// A substring of what is told of was once good enough, and what was told of needed not be made.
#[test]
fn other_calls_missing_calls_and_another_order_do_not_agree() {
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
