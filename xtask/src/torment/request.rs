//! The command line of `torment`: [`TormentRequest`], shared with the task that builds and starts
//! it.

#![allow(dead_code, reason = "the task passes on what the program reads")]

use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};

/// A part of the torment, with its own cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum TormentPart {
    /// Senders and receivers killed at random
    Kills,
    /// Raw hostile senders against an honest receiver
    Senders,
    /// Raw hostile receivers against honest senders
    Receivers,
    /// Members of a shared heap killed at random
    Heap,
    /// Tokio runtimes, dropped futures, forked children
    Runtimes,
}

impl TormentPart {
    /// Every part, in the order of their slices.
    pub(crate) const ALL: [Self; 5] =
        [Self::Kills, Self::Senders, Self::Receivers, Self::Heap, Self::Runtimes];

    /// Returns the name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Senders => "senders",
            Self::Receivers => "receivers",
            Self::Heap => "heap",
            Self::Runtimes => "runtimes",
        }
    }
}

/// The options of a run.
#[derive(Debug, Clone, Args)]
pub(crate) struct TormentRequest {
    /// Duration of the run, shared by the parts
    #[arg(long, default_value_t = 120, value_parser = value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Seed of the generated cases; without it, one is taken from the clock
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Run only this part
    #[arg(long, value_enum)]
    pub(crate) only: Option<TormentPart>,
    /// First case of each part, as named by a violation
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) case: u64,
    /// Build with AddressSanitizer (needs a nightly toolchain)
    #[arg(long)]
    pub(crate) asan: bool,
}

impl TormentRequest {
    /// Returns the arguments of an equal request.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--seconds={}", self.seconds)];
        arguments.push(format!("--case={}", self.case));
        arguments.extend(self.seed.map(|seed| format!("--seed={seed}")));
        arguments.extend(self.only.map(|part| format!("--only={}", part.name())));
        arguments
    }
}

/// The arguments of one slice.
#[derive(Debug, Clone, Args)]
pub(crate) struct SliceRequest {
    #[arg(value_enum)]
    pub(crate) part: TormentPart,
    pub(crate) seed: u64,
    pub(crate) case: u64,
    pub(crate) milliseconds: u64,
    pub(crate) folder: PathBuf,
}
