//! The sources' programs as published: [`SourceDocument`], found by number or by file name and run
//! by [`SourceDocument::reproduce`].
//!
//! A reproduction keeps its source's protocol, sizes and form of output, prints the published
//! values next to its own, and ends with a verdict on each claim of the source (`claims`). Its
//! points are measured in fresh processes. [`crate`] contains the actual experiments, with
//! intervals; no report includes a reproduction.

mod claims;
mod points;
mod source_000;
mod source_001;
mod source_002;
mod source_003;
mod source_004;

use std::io::{self, Write};

use crate::SUITE;
use crate::prelude::*;
pub use points::{FreshProcesses, MeasurePoint};
use points::{Reproduction, own_experiment};

/// A document on which this project is based.
#[derive(Debug, Clone, Copy)]
pub struct SourceDocument {
    pub number: &'static str,
    pub title: &'static str,
    pub file: &'static str,
    /// Measures all points and writes the output.
    run: fn(&mut Reproduction<'_, '_>),
    /// Measures one of the source's own points, in the calling process.
    own: fn(&InvocationTask) -> Result<Observed>,
    /// Returns the seconds that a point takes on two processors of a virtual machine.
    seconds: fn(&InvocationTask) -> f64,
}

const SOURCES: &[SourceDocument] = &[
    SourceDocument {
        number: "000",
        title: "When is it signaled?",
        file: "000_e5b594b431d286f3.txt",
        run: source_000::reproduce,
        own: source_000::own_point,
        seconds: source_000::seconds,
    },
    SourceDocument {
        number: "001",
        title: "Parallelizing signal handling and process management in OSF/1",
        file: "001_eea79c693d64053d.txt",
        run: source_001::reproduce,
        own: source_001::own_point,
        seconds: source_001::seconds,
    },
    SourceDocument {
        number: "002",
        title: "Monitoring processes",
        file: "002_6bd361610943228c.txt",
        run: source_002::reproduce,
        own: source_002::own_point,
        seconds: source_002::seconds,
    },
    SourceDocument {
        number: "003",
        title: "Threads 2: thread safety, signals, allocators",
        file: "003_992cd4313600ddb8.txt",
        run: source_003::reproduce,
        own: source_003::own_point,
        seconds: |_| 0.05,
    },
    SourceDocument {
        number: "004",
        title: "Minimal latency of mechanisms between processes",
        file: "004_460f2a7bc619b165.txt",
        run: source_004::reproduce,
        own: source_004::own_point,
        seconds: source_004::seconds,
    },
];

pub fn sources() -> &'static [SourceDocument] {
    SOURCES
}

/// Returns the source with that number (`000` or `0`) or file name.
pub fn find(name: &str) -> Option<&'static SourceDocument> {
    let number = name.parse::<usize>().ok().filter(|_| name.len() <= 3);
    SOURCES.iter().find(|source| {
        source.file == name || number.is_some_and(|number| source.number.parse() == Ok(number))
    })
}

impl SourceDocument {
    /// Repeats the source's programs and writes their output, next to the published values. If
    /// `quick`, reduces the sizes and says so in the output. `measure` measures each point. Fails
    /// if `out` cannot be written.
    pub fn reproduce(
        &self,
        quick: bool,
        out: &mut dyn Write,
        measure: &mut MeasurePoint<'_>,
    ) -> Result<()> {
        let mut reproduction = Reproduction::new(self.number, quick, measure, out);
        (self.run)(&mut reproduction);
        reproduction.end()
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
pub fn measure_here(task: &InvocationTask) -> Result<Observed> {
    match SOURCES.iter().find(|source| own_experiment(source.number) == task.experiment) {
        Some(source) => (source.own)(task),
        None => SUITE.run(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_an_expected_duration() {
        for source in sources() {
            for quick in [true, false] {
                let seconds = source.seconds(quick);
                assert!(seconds.len() > 4 && seconds.iter().all(|seconds| *seconds > 0.0));
            }
        }
    }

    #[test]
    fn source_is_found_by_number_and_by_file_name() {
        for source in sources() {
            for name in [source.number, source.number.trim_start_matches("00"), source.file] {
                assert_eq!(find(name).map(|found| found.number), Some(source.number), "{name}");
            }
        }
        for stranger in ["", "5", "0000", "-0", "000_", "e5b594b431d286f3"] {
            assert!(find(stranger).is_none(), "{stranger}");
        }
    }
}
