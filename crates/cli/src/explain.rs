//! `tontine explain`: what an experiment is, for somebody who meets the topic for the first time.
//!
//! The words are those of [`About`](tontine_bench::about::About), the same that the report shows;
//! here they are found by name and broken to the terminal's width.

use std::fmt::Write;
use std::process::ExitCode;

use comfy_table::Table;
use textwrap::Options;
use tontine_bench::about::Topic;
use tontine_bench::engine::plan;
use tontine_bench::suite::Experiment;
use tontine_experiments::SUITE;

use crate::args::Explain;
use crate::{Refusal, print};

/// Broken here where there is no terminal.
const WIDTH: usize = 80;

/// Lines longer than this are no longer read with ease.
const WIDEST: usize = 100;

/// Prints what was asked for; what there is, where nothing was named.
pub(crate) fn explain(asked: &Explain) -> Result<ExitCode, Refusal> {
    let text = match &asked.name {
        None => overview(),
        Some(name) => found(name)?,
    };
    print(wrapped(&text, width()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn found(name: &str) -> Result<String, Refusal> {
    if let Some(topic) = Topic::ALL.into_iter().find(|topic| topic.name() == name) {
        return Ok(of_topic(topic));
    }
    let whole = [name.to_owned()];
    let known = plan::resolve_all(&SUITE, &whole).map_err(|why| {
        let names = Topic::ALL.map(Topic::name).into_iter();
        match names.max_by(|a, b| alike(name, a).total_cmp(&alike(name, b))) {
            // The plan knows no topics, and would name something further away.
            Some(topic) if alike(name, topic) > NEAR => {
                Refusal::usage(format!("there is no {name}; did you mean {topic}?"))
            }
            _ => Refusal::usage(why),
        }
    })?;
    let of = |(name, variant): &(&str, Option<&str>)| {
        let experiment = SUITE.find(name)?;
        let variant = experiment.variants().iter().find(|one| Some(one.name) == *variant);
        let text = experiment.description().text();
        Some(match variant {
            Some(variant) => format!(
                "{name}/{}: {}\n\nIt is one variant of this experiment:\n\n{text}",
                variant.name, variant.summary
            ),
            None => text,
        })
    };
    Ok(known.iter().filter_map(of).collect())
}

/// From here on a misspelt name is taken for a topic.
const NEAR: f64 = 0.88;

fn alike(name: &str, topic: &str) -> f64 {
    strsim::jaro_winkler(name, topic)
}

/// A topic and its experiments, a line each.
fn of_topic(topic: Topic) -> String {
    let mut text = format!("{}\n\n{}\n", topic.name(), topic.question());
    for experiment in of(topic) {
        let _ = write!(text, "\n{}: {}\n", experiment.name(), experiment.summary());
    }
    text.push_str("\nMore on each: tontine explain NAME\n");
    text
}

/// All topics and the names in them.
fn overview() -> String {
    let mut text = String::new();
    for topic in Topic::ALL.into_iter().filter(|topic| of(*topic).next().is_some()) {
        let names: Vec<&str> = of(topic).map(|experiment| experiment.name()).collect();
        let _ = write!(text, "{}: {}\n  {}\n\n", topic.name(), topic.question(), names.join(", "));
    }
    text.push_str("More on each: tontine explain NAME\n");
    text
}

fn of(topic: Topic) -> impl Iterator<Item = &'static dyn Experiment> {
    SUITE.experiments.iter().copied().filter(move |experiment| experiment.topic() == topic)
}

fn width() -> usize {
    Table::new().width().map_or(WIDTH, |width| usize::from(width).clamp(20, WIDEST))
}

/// Breaks every line to `width`; a numbered one hangs behind its number, an indented one keeps its
/// indent.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let body = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - body.len());
        let number = body.find(". ").filter(|end| body[..*end].bytes().all(|b| b.is_ascii_digit()));
        let hang = format!("{indent}{}", " ".repeat(number.map_or(0, |end| end + 2)));
        let how = Options::new(width).initial_indent(&indent).subsequent_indent(&hang);
        let _ = writeln!(out, "{}", textwrap::fill(body, how.break_words(false)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_fits_and_no_word_is_lost() {
        for experiment in SUITE.experiments {
            let text = experiment.description().text();
            for width in [40, 80] {
                let wrapped = wrapped(&text, width);
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
                let (before, after): (Vec<String>, Vec<String>) = (words(&text), words(&wrapped));
                assert_eq!(before.concat(), after.concat());
                for line in wrapped.lines() {
                    assert!(line.chars().count() <= width || !line.trim().contains(' '), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_step_hangs_behind_its_number() {
        assert_eq!(wrapped("1. one two three", 10), "1. one two\n   three\n");
    }

    #[test]
    fn a_name_is_an_experiment_a_variant_or_a_topic() {
        let said = |name: &str| match found(name) {
            Ok(text) => text,
            Err(refusal) => refusal.why,
        };
        assert!(said("round-trip").starts_with("round-trip\n"));
        assert!(said("round-trip/futex").starts_with("round-trip/futex: a futex word"));
        assert!(said("death").contains("liveness-check: "));
        assert!(said("deaht").contains("did you mean death?"), "{}", said("deaht"));
        assert!(said("round-tripp").contains("round-trip"), "{}", said("round-tripp"));
    }
}
