//! The seeds as they were: [`Seed`], found by number or by file name and run by
//! [`Seed::reproduce`].
//!
//! A reproduction keeps its source's protocol, sizes and form of output, prints the published
//! values beside, and says in a line what has to be said about the method today. The experiments
//! proper, with intervals, are in [`crate::experiment`]; a reproduction feeds no report.

pub mod seed_000;
pub mod seed_001;
pub mod seed_002;
pub mod seed_004;

use std::io::Write;

use crate::trouble::{Result, Trouble};

/// Runs one reproduction, reduced where the flag says so, and writes what it found.
type Reproduce = fn(bool, &mut dyn Write) -> Result<()>;

/// One of the documents that this project grew from.
#[derive(Debug, Clone, Copy)]
pub struct Seed {
    /// Its number: `000`.
    pub number: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Name of its file.
    pub file: &'static str,
    how: How,
}

/// What there is to run.
#[derive(Debug, Clone, Copy)]
enum How {
    /// This.
    Run(Reproduce),
    /// Nothing yet: the part of the project that it comes with.
    Later(&'static str),
}

const SEEDS: &[Seed] = &[
    Seed {
        number: "000",
        title: "When is it signaled?",
        file: "000_e5b594b431d286f3.txt",
        how: How::Run(seed_000::reproduce),
    },
    Seed {
        number: "001",
        title: "Parallelizing signal handling and process management in OSF/1",
        file: "001_eea79c693d64053d.txt",
        how: How::Run(seed_001::reproduce),
    },
    Seed {
        number: "002",
        title: "Monitoring processes",
        file: "002_6bd361610943228c.txt",
        how: How::Run(seed_002::reproduce),
    },
    Seed {
        number: "003",
        title: "Threads 2: thread safety, signals, allocators",
        file: "003_992cd4313600ddb8.txt",
        how: How::Later(
            "the shared heap and the signal thread (`tontine::heap`, `tontine::signal`)",
        ),
    },
    Seed {
        number: "004",
        title: "Minimal latency of mechanisms between processes",
        file: "004_460f2a7bc619b165.txt",
        how: How::Run(seed_004::reproduce),
    },
];

/// All seeds, by number.
pub fn seeds() -> &'static [Seed] {
    SEEDS
}

/// The seed of that number (`000` or `0`) or of that file name.
pub fn find(name: &str) -> Option<&'static Seed> {
    let number = name.parse::<usize>().ok().filter(|_| name.len() <= 3);
    SEEDS.iter().find(|seed| {
        seed.file == name || number.is_some_and(|number| seed.number.parse() == Ok(number))
    })
}

impl Seed {
    /// Whether there is something to run.
    pub fn is_reproduced(&self) -> bool {
        matches!(self.how, How::Run(_))
    }

    /// Repeats the seed and writes its output, with what it published beside. `quick` reduces the
    /// sizes; the output then says so.
    ///
    /// # Errors
    /// Skipped, where the machine lacks what it needs; failed, where it went wrong, where `out`
    /// refuses, or where this seed is not reproduced yet.
    pub fn reproduce(&self, quick: bool, out: &mut dyn Write) -> Result<()> {
        match self.how {
            How::Run(reproduce) => reproduce(quick, out),
            How::Later(with) => Err(Trouble::fail(format!(
                "seed {} ({}) is not reproduced yet: it comes with {with}",
                self.number, self.title
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_found_by_number_and_by_file_name() {
        for seed in seeds() {
            for name in [seed.number, seed.number.trim_start_matches("00"), seed.file] {
                assert_eq!(find(name).map(|found| found.number), Some(seed.number), "{name}");
            }
        }
        for stranger in ["", "5", "0000", "-0", "000_", "e5b594b431d286f3"] {
            assert!(find(stranger).is_none(), "{stranger}");
        }
    }

    #[test]
    fn what_is_not_reproduced_yet_says_what_it_comes_with() {
        for seed in seeds().iter().filter(|seed| !seed.is_reproduced()) {
            let mut out = Vec::new();
            let trouble = seed.reproduce(true, &mut out).expect_err("not yet");
            assert!(trouble.why().contains("not reproduced yet: it comes with"), "{trouble}");
            assert!(out.is_empty());
        }
    }
}
