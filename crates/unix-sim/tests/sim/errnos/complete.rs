//! Completeness check: reads the trait's source and checks that every call and argument has a row
//! or a reason for lacking one.

use std::collections::{BTreeMap, BTreeSet};

use tontine_unix::{Linux, Sys};

use super::{
    descriptors, exec_fork, groups_sessions, limits_priorities, ptrace, signals, terminals,
    threads, timers, waits,
};
use crate::errnos::row::{On, Row};

const TABLES: [&[Row]; 10] = [
    descriptors::ROWS,
    exec_fork::ROWS,
    groups_sessions::ROWS,
    limits_priorities::ROWS,
    ptrace::ROWS,
    signals::ROWS,
    terminals::ROWS,
    threads::ROWS,
    timers::ROWS,
    waits::ROWS,
];

const ASKS: &str = "a query that always succeeds";
const SIGNAL: &str =
    "a `Signal` cannot hold an invalid number: `signal_type_excludes_invalid_numbers`";
const ANY: &str = "every value of its type is valid";
const RUNS: &str = "a function to run";

/// Arguments that are always valid, each with the reason.
const SOUND: &[(&str, &str)] = &[
    ("lacks()", ASKS),
    ("getpid()", ASKS),
    ("getppid()", ASKS),
    ("gettid()", ASKS),
    ("fork_boxed(child)", RUNS),
    ("exit(status)", "only its low eight bits are used"),
    ("killpg(signal)", SIGNAL),
    ("sigqueue(value)", ANY),
    ("sigvec(vector)", "flags that 4.3BSD lacks are ignored"),
    ("sigpending()", ASKS),
    ("sigsuspend(mask)", "SIGKILL and SIGSTOP in it are ignored"),
    ("pause()", "it ends only by a handler"),
    ("alarm(seconds)", ANY),
    ("thread_boxed(body)", RUNS),
    ("sched_yield()", ASKS),
    ("poll()", ASKS),
    ("compute(duration)", ANY),
    ("processor()", ASKS),
    ("now()", ASKS),
    ("getuid()", ASKS),
    ("geteuid()", ASKS),
    ("getrlimit(resource)", ANY),
    ("setrlimit(resource)", ANY),
    ("getrusage()", ASKS),
    ("set_subreaper(on)", ANY),
    ("mark(mark)", "a mark beyond the counts is not counted"),
    ("sigblock(mask)", ANY),
    ("sigsetmask(mask)", ANY),
    ("sigpause(mask)", ANY),
    ("getpgrp()", ASKS),
    ("sigwait(set)", "an empty set waits indefinitely"),
];

/// Returns the trait's methods and the names of their arguments.
fn methods() -> BTreeMap<&'static str, Vec<&'static str>> {
    let source = include_str!("../../../../unix/src/sys.rs");
    let (_, rest) = source.split_once("pub trait Sys {").expect("the trait's source");
    let (body, _) = rest.split_once("\n}\n").expect("the end of the trait");
    let heads = body.lines().filter_map(|line| line.strip_prefix("    fn "));
    heads
        .map(|head| {
            assert!(head.ends_with([';', '{']), "a signature on one line: {head}");
            let (name, rest) = head.split_once('(').expect("arguments");
            let arguments = rest.split(" -> ").next().expect("at least one part");
            let arguments = arguments.split(", ").filter_map(|one| one.split_once(": "));
            (name, arguments.map(|(argument, _)| argument).collect())
        })
        .collect()
}

/// Returns all valid `of` values: `kill(target)` for each argument, and `kill()` for errors that no
/// argument causes.
fn places() -> BTreeSet<String> {
    let methods = methods();
    let arguments = methods.iter().flat_map(|(name, arguments)| {
        arguments.iter().map(move |argument| format!("{name}({argument})"))
    });
    arguments.chain(methods.keys().map(|name| format!("{name}()"))).collect()
}

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.into_iter().flatten()
}

#[test]
fn every_argument_has_a_row_or_a_reason() {
    let rows: BTreeSet<&str> = rows().map(|row| row.of).collect();
    let sound: BTreeSet<&str> = SOUND.iter().map(|(of, _)| *of).collect();
    let places = places();
    let spoken_of: BTreeSet<&str> = rows.union(&sound).copied().collect();
    let strange: Vec<_> = spoken_of.iter().filter(|of| !places.contains(**of)).collect();
    assert!(strange.is_empty(), "not in the trait: {strange:?}");
    assert_eq!(rows.intersection(&sound).next(), None, "both a row and a reason for none");
    let missing: Vec<_> = methods()
        .into_iter()
        .flat_map(|(name, arguments)| match arguments.as_slice() {
            [] => vec![format!("{name}()")],
            some => some.iter().map(|argument| format!("{name}({argument})")).collect(),
        })
        .filter(|of| !spoken_of.contains(of.as_str()))
        .collect();
    assert!(missing.is_empty(), "neither a row nor a reason: {missing:?}");
}

#[test]
fn row_for_one_backend_states_its_reason() {
    for row in rows() {
        match row.on {
            On::Linux(reason) | On::Virtual(reason) => assert!(!reason.is_empty(), "{}", row.of),
            On::Both | On::BothAsRoot => {}
        }
    }
    let linux = Linux::new().expect("a kernel with pidfds");
    for (call, _) in linux.lacks() {
        let of_it = |row: &&Row| row.of.split('(').next() == Some(call);
        let rows: Vec<_> = rows().filter(of_it).collect();
        assert!(!rows.is_empty(), "{call} has no row");
        for row in rows {
            assert!(matches!(row.on, On::Linux(_)), "{} needs a row for Linux only", row.of);
        }
    }
}
