//! Descriptions in results.json. [`About`] describes an experiment in words; it is built from the
//! experiment's [`Explanation`], `tontine-measure explain` prints it, and the report shows it.
//! [`MechanismFacts`] are the properties of a mechanism, on which the report bases its
//! recommendations.

use serde::{Deserialize, Serialize};

/// The topic of an experiment. Each topic has a page of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// The cost of a message between threads and processes.
    Messages,
    /// The death of a process: which observers notice it, when, and what is left behind.
    Death,
    /// The arrival of signals: when, how many, and what they may interrupt.
    Signals,
    /// The cost of creating and ending threads and processes.
    Processes,
    /// The cost, for threads, of sharing memory.
    Memory,
}

impl Topic {
    /// All topics, in the order of the report.
    pub const ALL: [Self; 5] =
        [Self::Messages, Self::Death, Self::Signals, Self::Processes, Self::Memory];

    /// Returns the name, one lowercase word, which is also the anchor on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Death => "death",
            Self::Signals => "signals",
            Self::Processes => "processes",
            Self::Memory => "memory",
        }
    }

    /// Returns the question that the topic's experiments answer, in one line.
    pub fn question(self) -> &'static str {
        match self {
            Self::Messages => "What does a message cost between threads and processes?",
            Self::Death => "Who notices that a process has died, when, and what is left?",
            Self::Signals => "When do signals arrive, how many, and what may they interrupt?",
            Self::Processes => {
                "What does it cost to create threads and processes, and to run them?"
            }
            Self::Memory => "What do threads pay for the memory that they share?",
        }
    }
}

/// Description of an experiment, in plain text. Every item consists of one or a few whole
/// sentences.
#[derive(Debug, Clone, Copy)]
pub struct Explanation {
    /// Introduction to the topic for new readers, in paragraphs: what the topic is, and why it
    /// matters.
    pub about: &'static [&'static str],
    /// Steps of one invocation.
    pub steps: &'static [&'static str],
    /// Timing: the clock, the timed interval, and what is left out.
    pub timing: &'static str,
    /// Result of the source, with its machine. If the source draws figures without numbers, they
    /// are described. Empty if no source measured the experiment.
    pub found: &'static str,
    /// Advice for reading the figures: which are good, what distorts them, and what they do not
    /// show.
    pub reading: &'static str,
    /// The system calls inside the timed part, by variant or group of variants.
    pub calls: &'static [(&'static str, &'static str)],
}

/// Description of an experiment, as a run records it and the report shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub name: String,
    /// Topic, which determines the page of the report.
    pub topic: Topic,
    /// The question that the experiment answers, in one line.
    pub question: String,
    pub about: Vec<String>,
    pub steps: Vec<String>,
    /// The clock, the interval, and what is left out.
    pub timing: String,
    /// Result of the source. Empty if no source measured the experiment.
    pub found: String,
    pub reading: String,
    /// The system calls inside the timed part, by variant or group of variants.
    pub calls: Vec<(String, String)>,
    pub variants: Vec<(String, String)>,
    /// Variants that make no system call inside the timed part, if this matters to a reader. Empty
    /// in files of older builds.
    #[serde(default)]
    pub without_calls: Vec<String>,
}

/// Properties of a mechanism, independent of the figures of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MechanismFacts {
    pub name: String,
    /// Behaviour of the receiver while it waits for a message.
    pub receiver: Idling,
    pub between_threads: bool,
    /// The row of `survival` that shows the effect of a kill.
    pub kill: KillFacts,
    /// The counterpart with a sleeping receiver, if this mechanism's receiver spins.
    pub sleeping: Option<String>,
    /// The counterpart between processes, if this mechanism is between threads.
    pub between_processes: Option<String>,
}

/// Behaviour of a receiver while it waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idling {
    /// The receiver keeps a processor busy.
    Spins,
    /// The receiver polls for a moment, then sleeps.
    #[serde(rename = "spins-then-sleeps")]
    SpinsThenSleeps,
    /// The receiver sleeps until the kernel or the C library wakes it.
    Sleeps,
    /// The receiver sleeps; a library or a network is between it and the sender.
    Mediated,
}

/// The row of `survival` that shows the effect of a kill of one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum KillFacts {
    /// No row, because both ends are threads of the killed process.
    TakesBoth,
    Row {
        row: String,
    },
    /// A row of `survival` for another mechanism, which represents this one.
    StandsFor {
        row: String,
        /// The reason why this mechanism is not killed, worded so that the other's name follows it.
        why: String,
    },
}

impl About {
    /// Returns the description as plain text, one paragraph per line.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n\n{}\n", self.name, self.question);
        let mut paragraph = |text: &str| {
            out.push('\n');
            out.push_str(text);
            out.push('\n');
        };
        self.about.iter().for_each(|text| paragraph(text));
        paragraph("WHAT IT DOES");
        for (number, step) in (1..).zip(&self.steps) {
            paragraph(&format!("{number}. {step}"));
        }
        for (title, body) in [
            ("HOW IT IS TIMED", &self.timing),
            ("WHAT THE SOURCE FOUND", &self.found),
            ("HOW TO READ IT", &self.reading),
        ] {
            if !body.is_empty() {
                paragraph(title);
                paragraph(body);
            }
        }
        paragraph("SYSTEM CALLS IN THE TIMED PART");
        for (variants, calls) in &self.calls {
            paragraph(&format!("{variants}: {calls}"));
        }
        paragraph("VARIANTS");
        for (name, summary) in &self.variants {
            paragraph(&format!("{name}: {summary}"));
        }
        out
    }
}
