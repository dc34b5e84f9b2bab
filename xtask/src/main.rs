//! The project's own chores, one subcommand each: `cargo xtask …`.
//!
//! Nothing depends on this package. A chore is a module with a `run` that returns whether what it
//! checks is so; this file only parses the command line.
//!
//! Floors, from the bottom up: `header`, `invocation`, `mutants`; `aa`, `coverage`, `crash`,
//! `ledger`, `model`, `planted`, `speed`, `tidy`, `torment`, `trees`, `twins`.

mod aa;
mod coverage;
mod crash;
mod header;
mod invocation;
mod ledger;
mod model;
mod mutants;
mod planted;
mod speed;
mod tidy;
mod torment;
mod trees;
mod twins;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "The project's own chores. Run them from the top of the repository.")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check what a program can check of STYLE.md
    Tidy,
    /// Write bindings/c/include/tontine.h anew from the sources
    Header {
        /// Write nothing; fail if the file is stale
        #[arg(long)]
        check: bool,
    },
    /// Simulate how often each interval holds the truth, and write docs/coverage.md
    Coverage {
        /// Write nothing; fail if a statement of docs/coverage.md does not hold, or the file is
        /// stale
        #[arg(long)]
        check: bool,
    },
    /// Compare the instrument with itself and count false positives
    Aa {
        /// Comparisons of each cell
        #[arg(long, default_value_t = 50)]
        comparisons: usize,
    },
    /// Compare round trips, checks, signals and new processes with plain C programs that do the
    /// same
    Twins {
        /// Only rows whose names hold one of these
        only: Vec<String>,
    },
    /// Write the seconds of a run of everything into docs/ledger.md
    Ledger {
        /// The run's results.json
        results: PathBuf,
        /// Write nothing; fail where the page and the run disagree
        #[arg(long)]
        check: bool,
    },
    /// Plant delays that `compare` says it can resolve, and count how many it finds
    Planted {
        /// Reruns of each cell
        #[arg(default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
        reruns: u16,
        /// Only this cell
        #[arg(long, value_name = "NAME")]
        cell: Option<String>,
    },
    /// Explore what a kill leaves of the peers, and write the table of docs/survival.md
    Crash {
        /// Kill at every instruction, not once a class
        #[arg(long)]
        full: bool,
        /// Begin nothing at full size that would not be done after so many minutes; its row comes
        /// from one kill a class
        #[arg(long, value_name = "N", requires = "full")]
        minutes: Option<u64>,
        /// Use nothing that an earlier run of the same program has left
        #[arg(long)]
        afresh: bool,
    },
    /// Measure what the virtual Unix promises of its speed, beside its rivals
    Speed {
        /// Pairs of each figure
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(6..))]
        pairs: u16,
        /// Only figures whose names hold one of these
        only: Vec<String>,
    },
    /// Compare the virtual Unix on modelled processors with the same on as many real ones
    Model {
        /// Pairs of each figure
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(6..))]
        pairs: u16,
        /// What steps cost; else that is measured first, or the library's for tables
        #[arg(long, value_name = "FILE")]
        costs: Option<PathBuf>,
        /// Measure nothing: print the model's figures 1 and 2, each of so many seeds
        #[arg(long, value_name = "SEEDS", value_parser = clap::value_parser!(u16).range(1..))]
        tables: Option<u16>,
    },
    /// Take protections out of a copy of the virtual Unix's kernel, and show that tests find each
    Mutants(mutants::MutantsRequest),
    /// Attack the library with random kills and hostile peers
    Torment(torment::Request),
    /// Trace a real build and a real session, for the virtual Unix to do them again
    Trees,
    /// Measure one side of a figure of `speed`
    #[command(name = speed::NAME, hide = true)]
    Side { name: String },
    /// Serve one invocation of an experiment
    #[command(name = invocation::NAME, hide = true)]
    Invocation,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Tidy => Ok(tidy()),
        Chore::Header { check } => header::run(Path::new("."), check),
        Chore::Coverage { check } => coverage::run(check),
        Chore::Aa { comparisons } => aa::run(comparisons),
        Chore::Twins { only } => twins::run(&only),
        Chore::Ledger { results, check } => ledger::run(Path::new("."), &results, check),
        Chore::Planted { reruns, cell } => planted::run(reruns.into(), cell.as_deref()),
        Chore::Crash { full, minutes, afresh } => {
            crash::run(full, minutes.map(|minutes| Duration::from_secs(60 * minutes)), afresh)
        }
        Chore::Speed { pairs, only } => speed::run(pairs.into(), &only),
        Chore::Model { costs, tables: Some(seeds), .. } => {
            model::print_tables(seeds.into(), costs.as_deref())
        }
        Chore::Model { pairs, costs, .. } => model::run(pairs.into(), costs.as_deref()),
        Chore::Trees => trees::run(Path::new(".")),
        Chore::Mutants(request) => mutants::run(Path::new("."), &request),
        Chore::Torment(request) => torment::run(&request),
        Chore::Side { name } => speed::serve(&name),
        Chore::Invocation => {
            tontine_bench::engine::invoked::serve(&tontine_experiments::SUITE).map(|()| true)
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
