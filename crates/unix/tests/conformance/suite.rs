//! The lists that there are, and how many of their assertions hold: [`Suite`], [`Tally`].

use std::fs;
use std::iter::Sum;
use std::path::Path;

use crate::claim::{self, Claim, Verdict};

/// What a list is about.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    /// What is counted.
    pub(crate) counted: &'static str,
    /// Whether it is about these interfaces, or about others that meet them in the same files.
    pub(crate) proper: bool,
}

const SUITES: [About; 4] = [
    About {
        file: "open_posix.txt",
        title: "Open POSIX Test Suite",
        counted: "The assertions that are numbered in the `assertions.xml` of 27 directories of \
                  `conformance/interfaces`, in the copy that the Linux Test Project keeps: those \
                  of fork and of signals. An assertion counts once, however many programs check \
                  it, and whether or not one does.",
        proper: true,
    },
    About {
        file: "gvisor.txt",
        title: "gVisor",
        counted: "The cases of gVisor's tests of system calls that are about these interfaces.",
        proper: true,
    },
    About {
        file: "gvisor_beside.txt",
        title: "gVisor, beside",
        counted: "The other cases of files that have some of those: how terminals edit, flush and \
                  tell of themselves, how files are executed, POSIX timers.",
        proper: false,
    },
    About {
        file: "ltp.txt",
        title: "Linux Test Project",
        counted: "The programs of the Linux Test Project's tests of system calls that are about \
                  these interfaces.",
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
                Verdict::Holds(_) => tally.holds += 1,
                Verdict::NotApplicable(_) => tally.not_applicable += 1,
                Verdict::Open(_) => tally.open += 1,
            }
        }
        tally
    }
}

/// All lists that there are.
///
/// # Panics
/// If a line is malformed, or a list is about an unknown suite.
pub(crate) fn all() -> Vec<Suite> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let name = entry.expect("the folder can be read").file_name();
        let name = name.to_string_lossy();
        let known = SUITES.iter().any(|about| about.file == name);
        assert!(known || !name.ends_with(".txt"), "{name} is no list of a suite that is known");
    }
    let mut suites = Vec::new();
    for about in &SUITES {
        let path = folder.join(about.file);
        if path.exists() {
            let text = fs::read_to_string(path).expect("a list can be read");
            let place = format!("crates/unix/tests/conformance/{}", about.file);
            let claims = claim::parse(&place, &text).unwrap_or_else(|why| panic!("\n{why}"));
            suites.push(Suite { about, claims });
        }
    }
    suites
}

/// How many assertions have which verdict.
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
