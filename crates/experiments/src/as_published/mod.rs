//! The sources' programs as published: [`SourceDocument`], found by number or by file name and run
//! by [`SourceDocument::reproduce`].
//!
//! A reproduction keeps its source's protocol, sizes and form of output, prints the published
//! values next to its own, and comments on the method in one line. [`crate`] contains the actual
//! experiments, with intervals; no report includes a reproduction.

pub mod seed_000;
pub mod seed_001;
pub mod seed_002;
pub mod seed_003;
pub mod seed_004;
mod verdict;

use std::io::Write;

use tontine_host::error::Result;

/// A function that runs one reproduction and writes its output. If the flag is set, the run is
/// reduced.
type Reproduce = fn(bool, &mut dyn Write) -> Result<()>;

/// A source: one of the documents on which this project is based.
#[derive(Debug, Clone, Copy)]
pub struct SourceDocument {
    /// The number, such as `000`.
    pub number: &'static str,
    /// The subject.
    pub title: &'static str,
    /// Name of the file.
    pub file: &'static str,
    /// Seconds that a reduced and a whole run take on two processors of a virtual machine.
    pub seconds: [u32; 2],
    run: Reproduce,
}

const SEEDS: &[SourceDocument] = &[
    SourceDocument {
        number: "000",
        title: "When is it signaled?",
        file: "000_e5b594b431d286f3.txt",
        seconds: [45, 7300],
        run: seed_000::reproduce,
    },
    SourceDocument {
        number: "001",
        title: "Parallelizing signal handling and process management in OSF/1",
        file: "001_eea79c693d64053d.txt",
        seconds: [40, 900],
        run: seed_001::reproduce,
    },
    SourceDocument {
        number: "002",
        title: "Monitoring processes",
        file: "002_6bd361610943228c.txt",
        seconds: [3, 35],
        run: seed_002::reproduce,
    },
    SourceDocument {
        number: "003",
        title: "Threads 2: thread safety, signals, allocators",
        file: "003_992cd4313600ddb8.txt",
        seconds: [3, 10],
        run: seed_003::reproduce,
    },
    SourceDocument {
        number: "004",
        title: "Minimal latency of mechanisms between processes",
        file: "004_460f2a7bc619b165.txt",
        seconds: [15, 600],
        run: seed_004::reproduce,
    },
];

/// Returns all sources, by number.
pub fn seeds() -> &'static [SourceDocument] {
    SEEDS
}

/// Returns the source with that number (`000` or `0`) or file name.
pub fn find(name: &str) -> Option<&'static SourceDocument> {
    let number = name.parse::<usize>().ok().filter(|_| name.len() <= 3);
    SEEDS.iter().find(|seed| {
        seed.file == name || number.is_some_and(|number| seed.number.parse() == Ok(number))
    })
}

impl SourceDocument {
    /// Repeats the source's programs and writes their output, next to the published values. If
    /// `quick`, reduces the sizes and says so in the output.
    ///
    /// # Errors
    /// Returns `Skipped` if the machine lacks a requirement, and `Failed` if a program fails or
    /// `out` cannot be written.
    pub fn reproduce(&self, quick: bool, out: &mut dyn Write) -> Result<()> {
        (self.run)(quick, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_found_by_number_and_by_file_name() {
        for seed in seeds() {
            for name in [seed.number, seed.number.trim_start_matches("00"), seed.file] {
                assert_eq!(find(name).map(|found| found.number), Some(seed.number), "{name}");
            }
        }
        for stranger in ["", "5", "0000", "-0", "000_", "e5b594b431d286f3"] {
            assert!(find(stranger).is_none(), "{stranger}");
        }
    }
}
