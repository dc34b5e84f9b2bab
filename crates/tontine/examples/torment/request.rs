//! The command line of `torment`: [`TormentRequest`] of a run, [`SliceRequest`] of one slice.

use std::path::PathBuf;
use std::str::FromStr;

/// Text for a command line that cannot be parsed.
pub(crate) const USAGE: &str = "\
usage: torment run [--seconds N] [--seed N] [--only PART] [--case N]

  --seconds N  Duration of the run, shared by the parts [default: 120]
  --seed N     Seed of the generated cases; without it, one is taken from the clock
  --only PART  Run only this part:
                 kills      Senders and receivers killed at random
                 senders    Raw hostile senders against an honest receiver
                 receivers  Raw hostile receivers against honest senders
                 crowds     Many honest senders with few descriptors
                 heap       Members of a shared heap killed at random
                 runtimes   Tokio runtimes, dropped futures, forked children
  --case N     First case of each part, as named by a violation [default: 0]";

/// A part of the torment, with its own cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TormentPart {
    Kills,
    Senders,
    Receivers,
    Crowds,
    Heap,
    Runtimes,
}

impl TormentPart {
    /// Every part, in the order of their slices.
    pub(crate) const ALL: [Self; 6] =
        [Self::Kills, Self::Senders, Self::Receivers, Self::Crowds, Self::Heap, Self::Runtimes];

    /// Returns the name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Senders => "senders",
            Self::Receivers => "receivers",
            Self::Crowds => "crowds",
            Self::Heap => "heap",
            Self::Runtimes => "runtimes",
        }
    }
}

impl FromStr for TormentPart {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|part| part.name() == name);
        found.ok_or_else(|| format!("expected a part, found {name:?}"))
    }
}

/// The options of a run.
#[derive(Debug, Clone)]
pub(crate) struct TormentRequest {
    pub(crate) seconds: u64,
    pub(crate) seed: Option<u64>,
    pub(crate) only: Option<TormentPart>,
    /// First case of each part.
    pub(crate) case: u64,
}

impl TormentRequest {
    /// Parses the options, each written `--name value` or `--name=value`.
    pub(crate) fn parse(mut options: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut request = Self { seconds: 120, seed: None, only: None, case: 0 };
        while let Some(option) = options.next() {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option.as_str(), None),
            };
            let mut value = || {
                let value = value.clone().or_else(|| options.next());
                value.ok_or_else(|| format!("expected a value after {name}, found none"))
            };
            match name {
                "--seconds" => request.seconds = parsed(&value()?)?,
                "--seed" => request.seed = Some(parsed(&value()?)?),
                "--only" => request.only = Some(value()?.parse()?),
                "--case" => request.case = parsed(&value()?)?,
                _ => return Err(format!("expected an option, found {option:?}")),
            }
        }
        if request.seconds == 0 {
            return Err("expected --seconds of at least 1, found 0".to_owned());
        }
        Ok(request)
    }
}

/// The arguments of one slice.
#[derive(Debug, Clone)]
pub(crate) struct SliceRequest {
    pub(crate) part: TormentPart,
    pub(crate) seed: u64,
    pub(crate) case: u64,
    pub(crate) milliseconds: u64,
    pub(crate) folder: PathBuf,
}

impl SliceRequest {
    /// Parses the arguments, in the order of the fields.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let [part, seed, case, milliseconds, folder] = arguments else {
            return Err(format!("expected the 5 arguments of a slice, found {}", arguments.len()));
        };
        Ok(Self {
            part: part.parse()?,
            seed: parsed(seed)?,
            case: parsed(case)?,
            milliseconds: parsed(milliseconds)?,
            folder: folder.into(),
        })
    }
}

fn parsed(number: &str) -> Result<u64, String> {
    number.parse().map_err(|error| format!("expected a number, found {number:?}: {error}"))
}
