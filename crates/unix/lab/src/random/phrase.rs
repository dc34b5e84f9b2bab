//! The elements of random scenarios: [`Phrase`]s, read from `phrases.txt`, and [`Feature`]s. Each
//! scenario uses some of the features.
//!
//! | word | replaced by |
//! | --- | --- |
//! | `$a`, `$b` | two different signals of the scenario's few, the same in the whole phrase |
//! | `$sig`, `$set` | one of the scenario's few signals; a set of some of them |
//! | `$quiet`, `$stop` | a signal that is ignored by default; one that stops |
//! | `$mine` | a variable of this phrase only |
//! | `$soft`, `$last` | a signal that the adopter of orphans blocks; one that cannot be caught |
//! | `$who`, `$kid` | a process; a child of the caller |
//! | `$whom`, `$opts` | the target and the options of `wait` |
//! | `$flags`, `$calm`, `$child` | flags of a handler; of one that may signal itself; for SIGCHLD |
//! | `$new`, `$new-pid` | a process made for the phrase; the variable that holds it |
//! | `$program` | a process made for the phrase, which is started by exec |
//! | `$thread`, `$thread-block` | a variable; a thread |
//! | `$key`, `$modes`, `$n` | a key that generates a signal; modes for `tcsetattr`; a number |
//! | `$ttou`, `$ttin` | a statement about this signal, or none |
//! | `$more`, `$fork` | a phrase; the fork of one more process |

use std::sync::OnceLock;

/// Defines the enumeration of features.
macro_rules! features {
    ($($Feature:ident $name:literal,)*) => {
        /// A feature that scenarios can use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Feature {
            $($Feature,)*
        }

        impl Feature {
            pub(super) const ALL: &'static [Self] = &[$(Self::$Feature,)*];

            fn of(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$Feature),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    Sending "sending",
    Masks "masks",
    Handlers "handlers",
    RealTime "real-time",
    Taking "taking",
    Suspension "suspension",
    Stops "stops",
    Waits "waits",
    Groups "groups",
    Sessions "sessions",
    Orphans "orphans",
    Threads "threads",
    Pipes "pipes",
    Terminals "terminals",
    Timers "timers",
    Faults "faults",
    Limits "limits",
    Stacks "stacks",
    Tracing "tracing",
    Executing "executing",
}

/// A few statements that belong together.
#[derive(Debug)]
pub(super) struct Phrase {
    pub(super) feature: Feature,
    /// The weight with which the phrase is chosen.
    pub(super) weight: usize,
    /// The statements of the process.
    pub(super) here: Vec<&'static str>,
    /// The statements of the child that the process creates for this phrase.
    pub(super) there: Vec<&'static str>,
    /// The statements of the program for which one of the two processes calls exec.
    pub(super) program: Vec<&'static str>,
}

/// Returns all phrases.
pub(super) fn phrases() -> &'static [Phrase] {
    static PHRASES: OnceLock<Vec<Phrase>> = OnceLock::new();
    PHRASES.get_or_init(|| read(include_str!("phrases.txt")))
}

/// The process to which the lines being read belong.
enum PhrasePart {
    Here,
    There,
    Program,
}

fn read(text: &'static str) -> Vec<Phrase> {
    let mut all: Vec<Phrase> = Vec::new();
    let mut part = PhrasePart::Here;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        if let Some(statement) = line.strip_prefix("  ") {
            let phrase = all.last_mut().expect("a phrase has a head");
            match part {
                PhrasePart::Here => phrase.here.push(statement),
                PhrasePart::There => phrase.there.push(statement),
                PhrasePart::Program => phrase.program.push(statement),
            }
        } else if line == "child" {
            part = PhrasePart::There;
        } else if line == "program" {
            part = PhrasePart::Program;
        } else {
            let (feature, weight) = line.split_once(' ').expect("a feature and a weight");
            let feature = Feature::of(feature).expect("a feature");
            let weight = weight.parse().expect("a weight");
            let (here, there, program) = (Vec::new(), Vec::new(), Vec::new());
            all.push(Phrase { feature, weight, here, there, program });
            part = PhrasePart::Here;
        }
    }
    all
}
