//! The lists on each page, and the number of assertions with each verdict: [`Page`], [`Suite`],
//! [`Tally`].

use std::fs;
use std::iter::Sum;
use std::path::{Path, PathBuf};

use super::claim::{self, Claim, ScenarioVerdict};

/// The subject of a list.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    /// The assertions that are counted.
    pub(crate) counted: &'static str,
    /// `true` for the interfaces of [`Sys`](tontine_unix::Sys); `false` for other interfaces that
    /// the same files test.
    pub(crate) proper: bool,
}

/// A page and its lists.
#[derive(Debug)]
pub(crate) struct Page {
    /// File name in `docs`.
    pub(crate) file: &'static str,
    /// The beginning of the page, which a text common to both pages follows.
    pub(crate) head: &'static str,
    suites: &'static [About],
}

/// The test suites of POSIX and Linux.
pub(crate) const FIRST: Page = Page {
    file: "conformance.md",
    head: "\
# Conformance

The assertions of test suites for POSIX and Linux about processes and signals, and our tests that
show them. The page is generated from the lists in `crates/unix-lab/tests/lab/conformance`; a test
compares the two, and `WRITE_DOCS=1 cargo test -p tontine-unix-lab --test lab conformance` writes
this page. Another test checks that each test named here exists.
",
    suites: &SUITES,
};

/// The tests of other systems, libraries and languages.
pub(crate) const FURTHER: Page = Page {
    file: "conformance-further.md",
    head: "\
# Conformance, further sources

The assertions about processes and signals in the tests of two other systems, a C library, two
languages and the Linux kernel itself, case by case, and our tests that show them; the test suites
for POSIX and Linux are in [conformance.md](conformance.md). A case that asserts several properties
may be listed as several assertions, and several cases that assert the same property of different
signals may be listed as one. This page is generated and compared in the same way as that page.

Many tests named here are scenarios: `examples::tracing::detach` is
`examples/unix/tracing/detach.unix`, which runs on the virtual Unix under many schedules in every
mode. It also runs on Linux, and on both in lock-step, unless it needs something that is not
available there.
",
    suites: &SOURCES,
};

pub(crate) const PAGES: [&Page; 2] = [&FIRST, &FURTHER];

const SUITES: [About; 4] = [
    About {
        file: "open_posix.txt",
        title: "Open POSIX Test Suite",
        counted: "The numbered assertions about fork and signals in the `assertions.xml` of 27 \
                  directories of `conformance/interfaces`, in the copy of the Linux Test Project. \
                  An assertion counts once, regardless of the number of programs that check it, \
                  even if no program does.",
        proper: true,
    },
    About {
        file: "gvisor.txt",
        title: "gVisor",
        counted: "The cases of gVisor's system-call tests that concern these interfaces.",
        proper: true,
    },
    About {
        file: "gvisor_beside.txt",
        title: "gVisor, additional cases",
        counted: "The other cases in the files of those tests: terminal editing, flushing and \
                  queries, the execution of files, POSIX timers.",
        proper: false,
    },
    About {
        file: "ltp.txt",
        title: "Linux Test Project",
        counted: "The programs of the Linux Test Project's system-call tests that concern these \
                  interfaces.",
        proper: true,
    },
];

const SOURCES: [About; 6] = [
    About {
        file: "netbsd.txt",
        title: "NetBSD",
        counted: "Cases of tests/lib/libc/gen and tests/lib/libc/sys, each file in one stored \
                  version (given in the list).",
        proper: true,
    },
    About {
        file: "freebsd.txt",
        title: "FreeBSD",
        counted: "Cases of tests/sys/kern, each file in one stored version (given in the list).",
        proper: true,
    },
    About {
        file: "glibc.txt",
        title: "glibc",
        counted: "Programs of posix, signal, nptl, sysdeps/pthread and sysdeps/unix/sysv/linux, at \
                  commit 04e750e7 of January 2026.",
        proper: true,
    },
    About {
        file: "cpython.txt",
        title: "CPython",
        counted: "Cases of test_signal, test_posix, test_wait3 and eintr_tester, each in one \
                  stored version (given in the list); test_subprocess was not read.",
        proper: true,
    },
    About {
        file: "go.txt",
        title: "Go",
        counted: "Cases of os, os/exec, os/signal and syscall, each file in one stored version \
                  (given in the list).",
        proper: true,
    },
    About {
        file: "selftests.txt",
        title: "Linux selftests",
        counted: "Cases of tools/testing/selftests: pidfd, signal, timers, clone3, each file in \
                  one stored version (given in the list).",
        proper: true,
    },
];

/// A list.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) about: &'static About,
    pub(crate) claims: Vec<Claim>,
}

impl Suite {
    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for claim in &self.claims {
            match claim.verdict {
                ScenarioVerdict::Holds(_) => tally.holds += 1,
                ScenarioVerdict::NotApplicable(_) => tally.not_applicable += 1,
                ScenarioVerdict::Open(_) => tally.open += 1,
            }
        }
        tally
    }
}

/// Returns all lists.
///
/// # Panics
/// If a line is malformed, or the suite of a list is unknown.
pub(crate) fn all() -> Vec<Suite> {
    for entry in fs::read_dir(folder()).expect("the folder exists") {
        let name = entry.expect("the folder can be read").file_name();
        let name = name.to_string_lossy();
        let known = SUITES.iter().chain(&SOURCES).any(|about| about.file == name);
        assert!(known || !name.ends_with(".txt"), "{name} is not the list of a known suite");
    }
    PAGES.into_iter().flat_map(on).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/conformance")
}

/// Returns the lists on a page.
///
/// # Panics
/// If a line is malformed.
pub(crate) fn on(page: &Page) -> Vec<Suite> {
    let folder = folder();
    let mut suites = Vec::new();
    for about in page.suites {
        let path = folder.join(about.file);
        if path.exists() {
            let text = fs::read_to_string(path).expect("a readable list");
            let place = format!("crates/unix-lab/tests/lab/conformance/{}", about.file);
            let claims = claim::parse(&place, &text).unwrap_or_else(|why| panic!("\n{why}"));
            suites.push(Suite { about, claims });
        }
    }
    suites
}

/// The number of assertions with each verdict.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) holds: usize,
    pub(crate) not_applicable: usize,
    pub(crate) open: usize,
}

impl Tally {
    pub(crate) fn all(self) -> usize {
        self.applies() + self.not_applicable
    }

    pub(crate) fn applies(self) -> usize {
        self.holds + self.open
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, one| Self {
            holds: sum.holds + one.holds,
            not_applicable: sum.not_applicable + one.not_applicable,
            open: sum.open + one.open,
        })
    }
}
