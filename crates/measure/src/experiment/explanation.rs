//! What an experiment is, told to somebody who meets the topic for the first time:
//! [`Explanation`]. `tontine explain` prints it, the report shows it.

use super::Experiment;

/// Where an experiment belongs: a page of the report each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// What a message costs between threads and processes.
    Messages,
    /// Who is dead, who tells, and what a death leaves.
    Death,
    /// When signals arrive, how many, and what they may interrupt.
    Signals,
    /// What it costs to make and to end threads and processes.
    Processes,
    /// What threads pay for the memory that they share.
    Memory,
}

impl Topic {
    /// All, in the order of the report.
    pub const ALL: [Self; 5] =
        [Self::Messages, Self::Death, Self::Signals, Self::Processes, Self::Memory];

    /// One word, in lower case: also the anchor on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Death => "death",
            Self::Signals => "signals",
            Self::Processes => "processes",
            Self::Memory => "memory",
        }
    }

    /// One line: what its experiments ask.
    pub fn question(self) -> &'static str {
        match self {
            Self::Messages => "What does a message cost between threads and processes?",
            Self::Death => "Who notices that a process has died, when, and what is left?",
            Self::Signals => "When do signals arrive, how many, and what may they interrupt?",
            Self::Processes => "What do threads and processes cost to make, and together?",
            Self::Memory => "What do threads pay for the memory that they share?",
        }
    }
}

/// An experiment in words. Plain text; every item is one or a few whole sentences.
#[derive(Debug, Clone, Copy)]
pub struct Explanation {
    /// The topic from the start: what the thing is, and why anybody asks. Paragraphs.
    pub about: &'static [&'static str],
    /// What one invocation does, step by step.
    pub steps: &'static [&'static str],
    /// How it is timed: which clock, from when to when, what is left out.
    pub timing: &'static str,
    /// What the source found, on which machine; figures named without numbers in the source are
    /// described. Empty where no source measured it.
    pub found: &'static str,
    /// How to read the figures: what is good, what spoils them, what they do not say.
    pub reading: &'static str,
    /// The system calls inside what is timed, by variant or group of variants.
    pub calls: &'static [(&'static str, &'static str)],
}

/// The explanation of an experiment as text, wrapped by nobody: one paragraph a line.
pub fn text(experiment: &dyn Experiment) -> String {
    let explained = experiment.explanation();
    let mut out = format!("{}\n\n{}\n", experiment.name(), experiment.summary());
    let mut paragraph = |text: &str| {
        out.push('\n');
        out.push_str(text);
        out.push('\n');
    };
    explained.about.iter().for_each(|text| paragraph(text));
    paragraph("WHAT IT DOES");
    for (number, step) in (1..).zip(explained.steps) {
        paragraph(&format!("{number}. {step}"));
    }
    for (title, body) in [
        ("HOW IT IS TIMED", explained.timing),
        ("WHAT THE SOURCE FOUND", explained.found),
        ("HOW TO READ IT", explained.reading),
    ] {
        if !body.is_empty() {
            paragraph(title);
            paragraph(body);
        }
    }
    paragraph("SYSTEM CALLS WITHIN WHAT IS TIMED");
    for (variants, calls) in explained.calls {
        paragraph(&format!("{variants}: {calls}"));
    }
    paragraph("VARIANTS");
    for variant in experiment.variants() {
        paragraph(&format!("{}: {}", variant.name, variant.summary));
    }
    out
}

#[cfg(test)]
mod tests {
    /// Whether a line of the system calls is about a variant: by its name, or for all or the rest.
    fn covers(variants: &str, name: &str) -> bool {
        ["all", "others"].contains(&variants) || variants.split(", ").any(|one| one == name)
    }

    #[test]
    fn every_experiment_is_explained_from_the_start_to_the_last_call() {
        for experiment in crate::experiment::all() {
            let (name, explained) = (experiment.name(), experiment.explanation());
            assert!(!explained.about.is_empty() && explained.steps.len() >= 2, "{name}");
            let texts = [explained.timing, explained.reading].into_iter();
            let texts = texts.chain(explained.about.iter().copied());
            for text in texts.chain(explained.steps.iter().copied()) {
                assert!(
                    text.len() > 20 && text.ends_with(['.', '?']),
                    "{name}: no sentence: {text}"
                );
            }
            for variant in experiment.variants() {
                let told = explained.calls.iter().any(|(of, _)| covers(of, variant.name));
                assert!(told, "{name}: which system calls does {} make?", variant.name);
            }
            assert!(explained.calls.iter().all(|(_, calls)| !calls.is_empty()), "{name}");
        }
    }

    /// What a source found is said where a figure of it stands beside ours.
    #[test]
    fn a_published_figure_is_explained() {
        for experiment in crate::experiment::all() {
            let published = experiment.variants().iter().any(|variant| {
                let params = crate::experiment::Params::new();
                let metrics = ["one_way", "check"];
                let of = |metric: &&str| {
                    crate::published::published(experiment.name(), variant.name, metric, &params)
                };
                metrics.iter().any(|metric| !of(metric).is_empty())
            });
            assert!(!published || !experiment.explanation().found.is_empty());
        }
    }
}
