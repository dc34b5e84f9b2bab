//! Completeness of the scenarios in `examples/unix/errors`: each argument of a system call has a
//! scenario, or a reason for lacking one.

use std::collections::{BTreeMap, BTreeSet};

use crate::examples::folder;

const QUERY: &str = "a query that always succeeds";
const SIGNAL: &str = "a `Signal` cannot hold an invalid number";
const ANY: &str = "every value of its type is valid";
const TYPED: &str = "no scenario can express the invalid values: `sim::errors`";
const RUNS: &str = "a function to run";

/// Arguments without a scenario, each with the reason.
const NO_SCENARIO: &[(&str, &str)] = &[
    ("lacks()", QUERY),
    ("getpid()", QUERY),
    ("getppid()", QUERY),
    ("gettid()", QUERY),
    ("fork(child)", RUNS),
    ("exec(arguments)", TYPED),
    ("exit(status)", "only its low eight bits are used"),
    ("killpg(signal)", SIGNAL),
    ("sigqueue(value)", ANY),
    ("sigaction(action)", TYPED),
    ("sigvec(vector)", "flags that 4.3BSD lacks are ignored"),
    ("sigprocmask(change)", "SIGKILL and SIGSTOP are silently not blocked"),
    ("sigpending()", QUERY),
    ("sigsuspend(mask)", "SIGKILL and SIGSTOP in it are ignored"),
    ("pause()", "it ends only by a handler"),
    ("alarm(seconds)", ANY),
    ("nanosleep(duration)", "it ends only by a handler"),
    ("thread(body)", RUNS),
    ("sched_yield()", QUERY),
    ("poll()", QUERY),
    ("compute(duration)", ANY),
    ("processor()", QUERY),
    ("now()", QUERY),
    ("getuid()", QUERY),
    ("geteuid()", QUERY),
    ("getrlimit(resource)", ANY),
    ("setrlimit(resource)", ANY),
    ("getrusage()", QUERY),
    ("profil(counts)", "only Linux refuses it: `linux_profil_returns_enosys_and_is_listed`"),
    ("set_subreaper(on)", ANY),
    ("mark(mark)", "a mark beyond the counts is not counted"),
    ("sigblock(mask)", ANY),
    ("sigsetmask(mask)", ANY),
    ("sigpause(mask)", ANY),
    ("getpgrp()", QUERY),
    ("sigwait(set)", "an empty set waits indefinitely"),
    ("tcsetattr(termios)", TYPED),
];

/// Returns the trait's methods and the names of their arguments.
fn methods() -> BTreeMap<String, Vec<String>> {
    let source = include_str!("../../../api/src/sys.rs");
    let (_, rest) = source.split_once("pub trait Sys {").expect("the trait's source");
    let (body, _) = rest.split_once("\n}\n").expect("the end of the trait");
    let heads = body.lines().filter_map(|line| line.strip_prefix("    fn "));
    let method = |head: &str| {
        assert!(head.ends_with([';', '{']), "a signature on one line: {head}");
        let (name, rest) = head.split_once('(').expect("arguments");
        let arguments = rest.split(" -> ").next().expect("at least one part");
        let arguments = arguments.split(", ").filter_map(|one| one.split_once(": "));
        let arguments = arguments.map(|(argument, _)| argument.to_owned()).collect();
        (name.trim_end_matches("_boxed").to_owned(), arguments)
    };
    heads.map(method).collect()
}

/// Returns the arguments that the first comments of the scenarios name, such as `kill(target)`, or
/// `setsid()` for errors that no argument causes.
fn named_by_scenarios() -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for file in std::fs::read_dir(folder().join("errors")).expect("a folder") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("a scenario");
        let comments = text.lines().take_while(|line| line.starts_with('#'));
        let words = comments.flat_map(|line| line.split([' ', ',', '#', ';', ':']));
        // `kill(2)` is a page of the manual.
        let is_argument = |word: &&str| {
            word.ends_with(')')
                && word.split_once('(').is_some_and(|(name, argument)| {
                    !name.is_empty() && !argument.starts_with(|first: char| first.is_numeric())
                })
        };
        named.extend(words.filter(is_argument).map(str::to_owned));
    }
    named
}

#[test]
fn every_argument_has_a_scenario_or_a_reason() {
    let methods = methods();
    let named = named_by_scenarios();
    let reasons: BTreeSet<String> = NO_SCENARIO.iter().map(|(of, _)| (*of).to_owned()).collect();
    let both: Vec<_> = named.intersection(&reasons).collect();
    assert!(both.is_empty(), "both a scenario and a reason for none: {both:?}");
    let places = |(name, arguments): (&String, &Vec<String>)| {
        let mut places: Vec<_> =
            arguments.iter().map(|argument| format!("{name}({argument})")).collect();
        if places.is_empty() {
            places.push(format!("{name}()"));
        }
        places
    };
    let needed: BTreeSet<String> = methods.iter().flat_map(places).collect();
    let found: BTreeSet<String> = named.union(&reasons).cloned().collect();
    let missing: Vec<_> = needed.difference(&found).collect();
    assert!(missing.is_empty(), "neither a scenario nor a reason: {missing:?}");
    let calls: BTreeSet<String> = methods.keys().map(|name| format!("{name}()")).collect();
    let unknown: Vec<_> = found.difference(&needed).filter(|of| !calls.contains(*of)).collect();
    assert!(unknown.is_empty(), "not in the trait: {unknown:?}");
}
