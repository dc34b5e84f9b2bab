//! The sources' programs as published: [`SourceDocument`], found by number or by file name and run
//! by [`SourceDocument::reproduce`].
//!
//! A reproduction keeps its source's protocol, sizes and form of output, prints the published
//! values next to its own, and ends with a verdict on each claim of the source. Its points are
//! measured in fresh processes. [`crate`] contains the actual experiments, with intervals; no
//! report includes a reproduction.

mod points;
mod seed_000;
mod seed_001;
mod seed_002;
mod seed_003;
mod seed_004;
pub(crate) mod verdict;

use std::io::{self, Write};

use tontine_bench::observe::Observed;
use tontine_bench::task::InvocationTask;
use tontine_host::error::{MeasureError, Result};

use crate::SUITE;
pub use points::{FreshProcesses, MeasurePoint};
use points::{SourcePoints, own_experiment};

/// A source: one of the documents on which this project is based.
#[derive(Debug, Clone, Copy)]
pub struct SourceDocument {
    /// The number, such as `000`.
    pub number: &'static str,
    /// The subject.
    pub title: &'static str,
    /// Name of the file.
    pub file: &'static str,
    /// Measures all points and writes the output.
    run: fn(&mut SourcePoints<'_, '_>, &mut dyn Write) -> Result<()>,
    /// Measures one of the source's own points, in the calling process.
    own: fn(&InvocationTask) -> Result<Observed>,
    /// Returns the seconds that a point takes on two processors of a virtual machine.
    seconds: fn(&InvocationTask) -> f64,
}

const SEEDS: &[SourceDocument] = &[
    SourceDocument {
        number: "000",
        title: "When is it signaled?",
        file: "000_e5b594b431d286f3.txt",
        run: seed_000::reproduce,
        own: seed_000::own_point,
        seconds: seed_000::seconds,
    },
    SourceDocument {
        number: "001",
        title: "Parallelizing signal handling and process management in OSF/1",
        file: "001_eea79c693d64053d.txt",
        run: seed_001::reproduce,
        own: seed_001::own_point,
        seconds: seed_001::seconds,
    },
    SourceDocument {
        number: "002",
        title: "Monitoring processes",
        file: "002_6bd361610943228c.txt",
        run: seed_002::reproduce,
        own: seed_002::own_point,
        seconds: seed_002::seconds,
    },
    SourceDocument {
        number: "003",
        title: "Threads 2: thread safety, signals, allocators",
        file: "003_992cd4313600ddb8.txt",
        run: seed_003::reproduce,
        own: seed_003::own_point,
        seconds: seed_003::seconds,
    },
    SourceDocument {
        number: "004",
        title: "Minimal latency of mechanisms between processes",
        file: "004_460f2a7bc619b165.txt",
        run: seed_004::reproduce,
        own: seed_004::own_point,
        seconds: seed_004::seconds,
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
    /// `quick`, reduces the sizes and says so in the output. `measure` measures each point.
    ///
    /// # Errors
    /// Returns `Skipped` if the machine lacks a requirement, and `Failed` if a program fails or
    /// `out` cannot be written.
    pub fn reproduce(
        &self,
        quick: bool,
        out: &mut dyn Write,
        measure: &mut MeasurePoint<'_>,
    ) -> Result<()> {
        (self.run)(&mut SourcePoints { source: self.number, quick, measure }, out)
    }

    /// Returns the seconds that each point of a reproduction takes on two processors of a virtual
    /// machine, in the order in which the points are measured.
    pub fn seconds(&self, quick: bool) -> Vec<f64> {
        let mut seconds = Vec::new();
        // The programs also print if they have no figures.
        let _ = self.reproduce(quick, &mut io::sink(), &mut |task| {
            seconds.push((self.seconds)(task));
            Err(MeasureError::fail("not measured"))
        });
        seconds
    }
}

/// Measures a point of a reproduction, or a cell of an experiment, in the calling process.
///
/// # Errors
/// Returns a [`MeasureError`]: skipped or failed, with the reason.
pub fn measure_here(task: &InvocationTask) -> Result<Observed> {
    match SEEDS.iter().find(|seed| own_experiment(seed.number) == task.experiment) {
        Some(seed) => (seed.own)(task),
        None => SUITE.run(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_an_expected_duration() {
        for seed in seeds() {
            for quick in [true, false] {
                let seconds = seed.seconds(quick);
                assert!(seconds.len() > 4 && seconds.iter().all(|seconds| *seconds > 0.0));
            }
        }
    }

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
