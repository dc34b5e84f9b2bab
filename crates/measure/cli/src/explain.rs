//! `tontine-measure explain`: describes an experiment to readers new to its topic.
//!
//! The text is that of [`About`](tontine_bench::about::About), which the report also shows. This
//! module finds it by name and wraps it to the width of the terminal.

use std::fmt::Write;
use std::process::ExitCode;

use comfy_table::Table;
use textwrap::Options;
use tontine_bench::about::Topic;
use tontine_bench::engine::plan;
use tontine_bench::suite::Experiment;
use tontine_command::{CommandFailure, WIDTH, print};
use tontine_experiments::SUITE;

use crate::args::Explain;

/// Prints the page of a name, or the overview if no name is given.
pub(crate) fn explain(args: &Explain) -> Result<ExitCode, CommandFailure> {
    let text = match &args.name {
        None => overview(),
        Some(name) => found(name)?,
    };
    print(wrapped(&text, width()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn found(name: &str) -> Result<String, CommandFailure> {
    if let Some(topic) = Topic::ALL.into_iter().find(|topic| topic.name() == name) {
        return Ok(of_topic(topic));
    }
    let whole = [name.to_owned()];
    let known = plan::resolve_all(&SUITE, &whole).map_err(|why| {
        let names = Topic::ALL.map(Topic::name).into_iter();
        match names.max_by(|a, b| alike(name, a).total_cmp(&alike(name, b))) {
            // The plan does not contain topics, and would offer a less similar name.
            Some(topic) if alike(name, topic) > NEAR => CommandFailure::usage(format!(
                "no experiment or topic is named '{name}'; did you mean '{topic}'? \
                     `tontine-measure explain` lists all"
            )),
            _ => CommandFailure::usage(why),
        }
    })?;
    let of = |(name, variant): &(&str, Option<&str>)| {
        let experiment = SUITE.find(name)?;
        let variant = experiment.variants().iter().find(|one| Some(one.name) == *variant);
        let text = experiment.description().text();
        Some(match variant {
            Some(variant) => format!(
                "{name}/{}: {}\n\nThis is a variant of the following experiment.\n\n{text}",
                variant.name, variant.summary
            ),
            None => text,
        })
    };
    Ok(known.iter().filter_map(of).collect())
}

/// Minimum similarity at which a misspelt name counts as a topic.
const NEAR: f64 = 0.88;

fn alike(name: &str, topic: &str) -> f64 {
    strsim::jaro_winkler(name, topic)
}

/// Returns the text on a topic, with one line for each of its experiments.
fn of_topic(topic: Topic) -> String {
    let mut text = format!("{}\n\n{}\n", topic.name(), topic.question());
    for experiment in of(topic) {
        let _ = write!(text, "\n{}: {}\n", experiment.name(), experiment.summary());
    }
    text.push_str("\nDetails of each: tontine-measure explain NAME\n");
    text
}

/// Returns all topics and the names of their experiments.
fn overview() -> String {
    let mut text = String::new();
    for topic in Topic::ALL.into_iter().filter(|topic| of(*topic).next().is_some()) {
        let names: Vec<&str> = of(topic).map(|experiment| experiment.name()).collect();
        let _ = write!(text, "{}: {}\n  {}\n\n", topic.name(), topic.question(), names.join(", "));
    }
    text.push_str("Details of each: tontine-measure explain NAME\n");
    text
}

fn of(topic: Topic) -> impl Iterator<Item = &'static dyn Experiment> {
    SUITE.experiments.iter().copied().filter(move |experiment| experiment.topic() == topic)
}

fn width() -> usize {
    Table::new().width().map_or(WIDTH, |width| usize::from(width).clamp(20, WIDTH))
}

/// Wraps every line to `width`. The continuation of a numbered line is aligned with its text, that
/// of an indented line with its indentation.
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
    use tontine_command::help::banned;

    #[test]
    fn wrapped_lines_fit_and_keep_all_words() {
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

    /// Returns every page: the overview, each topic, each experiment and each variant.
    fn pages() -> Vec<(String, String)> {
        let experiments = SUITE.experiments.iter().flat_map(|experiment| {
            let variants = experiment.variants().iter();
            let variants = variants.map(|one| format!("{}/{}", experiment.name(), one.name));
            [experiment.name().to_owned()].into_iter().chain(variants)
        });
        let topics = Topic::ALL.map(|topic| topic.name().to_owned()).into_iter();
        let names = topics.chain(experiments);
        let found = names.map(|name| {
            let text = found(&name).unwrap_or_else(|refusal| panic!("{refusal}"));
            (name, text)
        });
        [("the overview".to_owned(), overview())].into_iter().chain(found).collect()
    }

    #[test]
    fn pages_fit_80_columns_and_have_no_banned_phrases() {
        let pages = pages();
        assert!(pages.len() > 150, "{}", pages.len());
        for (name, text) in pages {
            let page = wrapped(&text, WIDTH);
            for line in page.lines() {
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
            assert_eq!(banned(&page), [""; 0], "{name}:\n{page}");
        }
    }

    #[test]
    fn numbered_line_wraps_below_its_text() {
        assert_eq!(wrapped("1. one two three", 10), "1. one two\n   three\n");
    }

    #[test]
    fn names_resolve_to_experiment_variant_or_topic() {
        let said = |name: &str| match found(name) {
            Ok(text) => text,
            Err(refusal) => refusal.to_string(),
        };
        assert!(said("round-trip").starts_with("round-trip\n"));
        assert!(said("round-trip/futex").starts_with("round-trip/futex: a futex word"));
        assert!(said("death").contains("liveness-check: "));
        assert!(said("deaht").contains("did you mean 'death'?"), "{}", said("deaht"));
        assert!(said("round-tripp").contains("round-trip"), "{}", said("round-tripp"));
    }
}
