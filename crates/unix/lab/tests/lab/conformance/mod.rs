//! Lists of the assertions that other systems' tests make about the interfaces of
//! [`Sys`](tontine_unix::Sys), and the tests here that show them. The lists are in this folder;
//! `docs/evidence/conformance.md` counts them ([`page`]).
//!
//! A list has one line per assertion, in our words, with one of three verdicts:
//!
//! ```text
//! <group>/<number> | assertion | holds <target>::<module>::<test>[, another]
//! <group>/<number> | assertion | holds examples::<folder>::<scenario>
//! <group>/<number> | assertion | n/a <key of a reason>
//! <group>/<number> | assertion | open <why>
//! ```
//!
//! The parser ignores blank lines and lines that begin with `#`. [`claim`] parses lines, and
//! [`sources`] finds tests.

mod claim;
mod page;
mod sources;

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use self::claim::{Claim, Verdict};

/// Minimum percentage of applicable assertions that hold.
const MIN_HOLDS_PERCENT: usize = 95;
/// Maximum percentage of the assertions of the suites for POSIX and Linux that do not apply.
const MAX_NOT_APPLICABLE_PERCENT: usize = 25;
/// Minimum number of applicable assertions of the other sources.
const MIN_OTHERS: usize = 90;

/// A list, and what it lists.
#[derive(Debug)]
pub(crate) struct Suite {
    file: &'static str,
    title: &'static str,
    /// The assertions that are counted.
    counted: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A test suite for POSIX or Linux.
    Suite,
    /// Other interfaces that the files of such a suite test.
    Additional,
    /// The tests of another system, a library or a language.
    Other,
}

const SUITES: [Suite; 10] = [
    Suite {
        file: "open_posix.txt",
        title: "Open POSIX Test Suite",
        counted: "the numbered assertions about fork and signals in the `assertions.xml` of 27 \
                  directories of `conformance/interfaces`, in the copy of the Linux Test Project",
        kind: Kind::Suite,
    },
    Suite {
        file: "gvisor.txt",
        title: "gVisor",
        counted: "the cases of the system-call tests that concern these interfaces",
        kind: Kind::Suite,
    },
    Suite {
        file: "gvisor_beside.txt",
        title: "gVisor, additional cases",
        counted: "the other cases in the same files: terminal editing, flushing and queries, the \
                  execution of files, POSIX timers",
        kind: Kind::Additional,
    },
    Suite {
        file: "ltp.txt",
        title: "Linux Test Project",
        counted: "the programs of the system-call tests that concern these interfaces",
        kind: Kind::Suite,
    },
    Suite {
        file: "netbsd.txt",
        title: "NetBSD",
        counted: "cases of tests/lib/libc/gen and tests/lib/libc/sys",
        kind: Kind::Other,
    },
    Suite {
        file: "freebsd.txt",
        title: "FreeBSD",
        counted: "cases of tests/sys/kern",
        kind: Kind::Other,
    },
    Suite {
        file: "glibc.txt",
        title: "glibc",
        counted: "programs of posix, signal, nptl, sysdeps/pthread and sysdeps/unix/sysv/linux",
        kind: Kind::Other,
    },
    Suite {
        file: "cpython.txt",
        title: "CPython",
        counted: "cases of test_signal, test_posix, test_wait3 and eintr_tester; test_subprocess \
                  was not read",
        kind: Kind::Other,
    },
    Suite {
        file: "go.txt",
        title: "Go",
        counted: "cases of os, os/exec, os/signal and syscall",
        kind: Kind::Other,
    },
    Suite {
        file: "selftests.txt",
        title: "Linux selftests",
        counted: "cases of tools/testing/selftests: pidfd, signal, timers, clone3",
        kind: Kind::Other,
    },
];

impl Suite {
    fn claims(&self) -> Vec<Claim> {
        let path = folder().join(self.file);
        let text = fs::read_to_string(path).expect("a readable list");
        claim::parse(self.file, &text).unwrap_or_else(|why| panic!("\n{why}"))
    }

    fn tally(&self) -> Tally {
        Tally::of(&self.claims())
    }
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/conformance"))
}

/// The number of assertions with each verdict.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    holds: usize,
    not_applicable: usize,
    open: usize,
}

impl Tally {
    fn of(claims: &[Claim]) -> Self {
        let count =
            |is: fn(&Verdict) -> bool| claims.iter().filter(|claim| is(&claim.verdict)).count();
        Self {
            holds: count(|verdict| matches!(verdict, Verdict::Holds(_))),
            not_applicable: count(|verdict| matches!(verdict, Verdict::NotApplicable(_))),
            open: count(|verdict| matches!(verdict, Verdict::Open(_))),
        }
    }

    /// Returns the sum over the suites of a kind, or over all.
    fn sum(is: impl Fn(Kind) -> bool) -> Self {
        let suites = SUITES.iter().filter(|suite| is(suite.kind));
        suites.map(Suite::tally).fold(Self::default(), |sum, one| Self {
            holds: sum.holds + one.holds,
            not_applicable: sum.not_applicable + one.not_applicable,
            open: sum.open + one.open,
        })
    }

    fn all(self) -> usize {
        self.applies() + self.not_applicable
    }

    fn applies(self) -> usize {
        self.holds + self.open
    }
}

#[test]
fn conformance_page_matches_lists() {
    const PAGE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/evidence/conformance.md");
    let text = page::page();
    if env::var_os("WRITE_DOCS").is_some() {
        fs::write(PAGE, &text).expect("a writable page");
    }
    let there = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(text == there, "{PAGE} differs from the lists; it tells how to update it");
}

#[test]
fn every_test_named_in_list_exists() {
    let mut missing = Vec::new();
    for claim in SUITES.iter().flat_map(Suite::claims) {
        let absent = claim.tests().iter().filter_map(|test| sources::find(test).err());
        missing.extend(absent.map(|why| format!("{}: {why}", claim.place)));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_assertion_is_listed_once_and_every_list_is_known() {
    for suite in &SUITES {
        let mut seen = BTreeSet::new();
        for claim in suite.claims() {
            let new = seen.insert((claim.group.clone(), claim.name.clone()));
            assert!(new, "{}: {}/{} is listed twice", claim.place, claim.group, claim.name);
        }
    }
    for entry in fs::read_dir(folder()).expect("the folder exists") {
        let name = entry.expect("the folder can be read").file_name();
        let name = name.to_string_lossy();
        let known = SUITES.iter().any(|suite| suite.file == name);
        assert!(known || !name.ends_with(".txt"), "{name} is not the list of a known suite");
    }
}

#[test]
fn most_applicable_assertions_hold_and_few_do_not_apply() {
    let suites = Tally::sum(|kind| kind == Kind::Suite);
    assert!(suites.not_applicable * 100 <= MAX_NOT_APPLICABLE_PERCENT * suites.all(), "{suites:?}");
    let others = Tally::sum(|kind| kind == Kind::Other);
    assert!(others.applies() >= MIN_OTHERS, "{others:?}");
    for tally in [suites, others] {
        assert!(tally.holds * 100 >= MIN_HOLDS_PERCENT * tally.applies(), "{tally:?}");
    }
}

#[test]
fn open_posix_test_suite_is_listed_in_full() {
    let claims = SUITES[0].claims();
    let directories: BTreeSet<_> = claims.iter().map(|claim| &claim.group).collect();
    assert_eq!((directories.len(), claims.len()), (27, 247));
}
