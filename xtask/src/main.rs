//! The project's own tasks, one subcommand each: `cargo xtask …`.
//!
//! Nothing depends on this package. A task is a module with a function `run` that returns `true` if
//! its checks pass; this file only parses the command line.
//!
//! Floors, from the bottom up: `header`, `invocation`, `mutants`; `aa`, `claims`, `coverage`,
//! `crash`, `dist`, `ledger`, `model`, `planted`, `python`, `sample`, `speed`, `tidy`, `torment`,
//! `trees`, `twins`, `zenoh`.

mod aa;
mod claims;
mod coverage;
mod crash;
mod dist;
mod header;
mod invocation;
mod ledger;
mod model;
mod mutants;
mod planted;
mod python;
mod sample;
mod speed;
mod tidy;
mod torment;
mod trees;
mod twins;
mod zenoh;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "The project's own tasks. Run them from the root of the repository.")]
struct Arguments {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Debug, Subcommand)]
enum XtaskCommand {
    /// Check the rules of STYLE.md that a program can check
    Tidy,
    /// Generate bindings/c/include/tontine.h from the sources
    Header {
        /// Write nothing; fail if the file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Simulate how often each interval contains the true value, and write
    /// docs/evidence/coverage.md
    Coverage {
        /// Write nothing; fail if a statement of docs/evidence/coverage.md does not hold, or the
        /// file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Compare the instrument with itself and count false positives
    Aa {
        /// Number of comparisons of each cell
        #[arg(long, default_value_t = 50)]
        comparisons: usize,
    },
    /// Compare round trips, checks, signals and new processes with equivalent C programs
    Twins {
        /// Measure only rows whose names contain one of these
        only: Vec<String>,
    },
    /// Write the seconds of a run of all experiments into docs/evidence/ledger.md
    Ledger {
        /// Path of the run's results.json
        results: PathBuf,
        /// Write nothing; fail if the page and the run disagree
        #[arg(long)]
        check: bool,
    },
    /// Write the verdicts of `tontine measure --as-published N` into docs/evidence/claims.md
    Claims {
        /// Folder of the runs' as-published-N.txt
        folder: PathBuf,
        /// Write nothing; fail if the page and the runs have different claims
        #[arg(long)]
        check: bool,
    },
    /// Inject delays that `compare` says it can resolve, and count those that it finds
    Planted {
        /// Number of reruns of each cell
        #[arg(default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
        reruns: u16,
        /// Measure only this cell
        #[arg(long, value_name = "NAME")]
        cell: Option<String>,
    },
    /// Explore the effect of kills on all mechanisms, and write the table of
    /// docs/evidence/survival.md
    Crash {
        /// Kill at every instruction instead of once per class
        #[arg(long)]
        full: bool,
        /// Kill once per class in operations that would not be finished after N minutes at full
        /// size
        #[arg(long, value_name = "N", requires = "full")]
        minutes: Option<u64>,
        /// Use no results of an earlier run of the same program
        #[arg(long)]
        afresh: bool,
    },
    /// Measure the promises on the speed of the virtual Unix, compared with its competitors
    Speed {
        /// Number of pairs of each figure
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(6..))]
        pairs: u16,
        /// Measure only figures whose names contain one of these
        only: Vec<String>,
    },
    /// Compare the virtual Unix on modelled processors with the same number of real ones
    Model {
        /// Number of pairs of each figure
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(6..))]
        pairs: u16,
        /// File with the costs of steps; without it, they are measured, and with --tables those of
        /// the library are used
        #[arg(long, value_name = "FILE")]
        costs: Option<PathBuf>,
        /// Measure nothing; print the model's figures 1 and 2, each with this many seeds
        #[arg(long, value_name = "SEEDS", value_parser = clap::value_parser!(u16).range(1..))]
        tables: Option<u16>,
    },
    /// Remove protections from a copy of the virtual Unix's kernel, and show that tests find each
    Mutants(mutants::MutantsRequest),
    /// Attack the library with random kills and hostile peers
    Torment(torment::TormentRequest),
    /// Print random lines of comments, documentation, test names and pages, to judge their language
    Sample {
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Build the command without symbols, and package it as a tarball and for Debian, below
    /// target/dist
    ///
    /// The command is static if the musl target is installed. It then lacks the measured C++
    /// libraries. The packages contain manual pages and completions. CONTRIBUTING.md has details.
    Dist {
        /// Link with glibc, and include the measured C++ libraries
        #[arg(long)]
        gnu: bool,
    },
    /// Build the Python package's wheels and run its tests on each
    Python(python::PythonRequest),
    /// Check, build and test the carrier over Zenoh, which is outside of the workspace
    Zenoh(zenoh::ZenohRequest),
    /// Trace a real build and a real session, for the virtual Unix to repeat
    Trees,
    /// Measure one side of a figure of `speed`
    #[command(name = speed::NAME, hide = true)]
    Side { name: String },
    /// Serve one invocation of an experiment
    #[command(name = invocation::NAME, hide = true)]
    Invocation,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        XtaskCommand::Tidy => Ok(tidy()),
        XtaskCommand::Header { check } => header::run(Path::new("."), check),
        XtaskCommand::Coverage { check } => coverage::run(check),
        XtaskCommand::Aa { comparisons } => aa::run(comparisons),
        XtaskCommand::Twins { only } => twins::run(&only),
        XtaskCommand::Ledger { results, check } => ledger::run(Path::new("."), &results, check),
        XtaskCommand::Claims { folder, check } => claims::run(Path::new("."), &folder, check),
        XtaskCommand::Planted { reruns, cell } => planted::run(reruns.into(), cell.as_deref()),
        XtaskCommand::Crash { full, minutes, afresh } => {
            crash::run(full, minutes.map(|minutes| Duration::from_secs(60 * minutes)), afresh)
        }
        XtaskCommand::Speed { pairs, only } => speed::run(pairs.into(), &only),
        XtaskCommand::Model { costs, tables: Some(seeds), .. } => {
            model::print_tables(seeds.into(), costs.as_deref())
        }
        XtaskCommand::Model { pairs, costs, .. } => model::run(pairs.into(), costs.as_deref()),
        XtaskCommand::Sample { seed } => {
            sample::run(Path::new("."), seed).map_err(std::io::Error::other)
        }
        XtaskCommand::Dist { gnu } => dist::run(Path::new("."), gnu),
        XtaskCommand::Python(request) => python::run(Path::new("."), &request),
        XtaskCommand::Zenoh(request) => zenoh::run(Path::new("."), &request),
        XtaskCommand::Trees => trees::run(Path::new(".")),
        XtaskCommand::Mutants(request) => mutants::run(Path::new("."), &request),
        XtaskCommand::Torment(request) => torment::run(&request),
        XtaskCommand::Side { name } => speed::serve(&name),
        XtaskCommand::Invocation => {
            let suite = &tontine_experiments::SUITE;
            tontine_bench::engine::invoked::serve(|task| suite.run(task)).map(|()| true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> bool {
    let found = tidy::run(Path::new("."));
    for complaint in &found {
        eprintln!("{complaint}");
    }
    found.is_empty()
}
