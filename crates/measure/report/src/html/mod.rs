//! A run as a folder of HTML pages: [`pages`].
//!
//! [`overview`] renders `report.html`: the latency ladder, six figures, the answers, and links. A
//! page per topic and a page about the machine and the method follow. Every page is self-contained:
//! the style is inline, the charts are drawn here as SVG, and links lead only to the other pages
//! and to the data in the same folder. The pages run no script, and are readable on a narrow
//! screen, dark or light, and on paper.
//!
//! [`ladder`] draws the ladder and [`decision`] renders the answers. [`section`] renders one
//! experiment with its tables, [`explained`] its description, [`footnote`] the remarks that rows
//! share, and [`words`] their parameters. [`curve`] selects the cells of a curve, [`plot`] draws
//! it, [`paper`] describes the sources' figures, and [`contention`] renders the table of locks.
//! [`heap`] draws maps of a heap, [`chart`] intervals and invocations on an [`axis`], [`heat`] a
//! table of placements, [`cdf`] the distribution of the samples. [`machine`] shows the advice and
//! the facts, [`method`] the derivation of a figure. The sentences come from [`super::verdict`],
//! the format of numbers from [`tontine_bench::format`].

mod axis;
mod cdf;
mod chart;
mod contention;
mod curve;
mod decision;
mod explained;
mod footnote;
mod heap;
mod heat;
mod ladder;
mod machine;
mod method;
mod overview;
mod paper;
mod plot;
mod section;
#[cfg(test)]
mod tests;
mod words;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::verdict::{Sentence, SentencePart};
use footnote::Footnotes;
use tontine_bench::about::Topic;
use tontine_bench::schema::Results;

const STYLE: &str = include_str!("style.css");

/// Forbids the page to fetch resources and to run scripts, such as those in a hostile name.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// File of the overview.
pub const OVERVIEW: &str = "report.html";
/// Anchor of the page about the machine and the method.
const MACHINE: &str = "machine";
/// Anchor of the page of experiments that the run does not describe.
const OTHERS: &str = "others";

#[derive(Debug)]
pub struct ReportFile {
    pub name: String,
    pub html: String,
}

/// Returns the pages of a run. The overview is the last one, because it links to all others.
pub fn pages(results: &Results) -> Vec<ReportFile> {
    let topics = topics(results);
    let kills = topics.iter().find(|topic| topic.anchor == Topic::Death.name());
    let kills = kills.or(topics.first()).map(|topic| topic.anchor);
    let mut files: Vec<ReportFile> = topics
        .iter()
        .map(|topic| ReportFile {
            name: file(topic.anchor),
            html: topic_page(results, topic, &topics, kills == Some(topic.anchor)),
        })
        .collect();
    files.push(ReportFile { name: file(MACHINE), html: machine_page(results, &topics) });
    files.push(ReportFile { name: OVERVIEW.into(), html: overview::page(results, &topics) });
    files
}

/// Returns the names of all pages that a run can have, except the overview.
pub fn possible_files() -> impl Iterator<Item = String> {
    Topic::ALL.into_iter().map(Topic::name).chain([OTHERS, MACHINE]).map(file)
}

fn file(anchor: &str) -> String {
    format!("report-{anchor}.html")
}

/// A page of the report: experiments on the same topic.
struct ReportPage<'a> {
    anchor: &'static str,
    title: &'static str,
    question: &'static str,
    experiments: Vec<&'a str>,
}

/// Returns the pages for which the run has experiments, in the order of the topics; experiments
/// that the run does not describe come last.
fn topics(results: &Results) -> Vec<ReportPage<'_>> {
    let names = section::names(results);
    let of = |topic: Option<Topic>| -> Vec<&str> {
        let topic_of = |name: &str| results.about(name).map(|about| about.topic);
        names.iter().copied().filter(|name| topic_of(name) == topic).collect()
    };
    let known = Topic::ALL.map(|topic| ReportPage {
        anchor: topic.name(),
        title: title(topic),
        question: topic.question(),
        experiments: of(Some(topic)),
    });
    let others = ReportPage {
        anchor: OTHERS,
        title: "Others",
        question: "Experiments that the run does not describe",
        experiments: of(None),
    };
    known.into_iter().chain([others]).filter(|page| !page.experiments.is_empty()).collect()
}

fn title(topic: Topic) -> &'static str {
    match topic {
        Topic::Messages => "Messages",
        Topic::Death => "Death",
        Topic::Signals => "Signals",
        Topic::Processes => "Processes",
        Topic::Memory => "Memory",
    }
}

fn document(title: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
    .into_string()
}

/// Returns the links to all pages; `here` is the anchor of the page that contains them, or empty on
/// the overview.
fn contents(topics: &[ReportPage<'_>], here: &str) -> Markup {
    let link = |anchor: &str, name: String, words: &str| {
        html! {
            a href=(name) aria-current=[(anchor == here).then_some("page")] { (words) } " "
        }
    };
    html! {
        nav aria-label="Contents" {
            (link("", OVERVIEW.into(), "overview"))
            @for topic in topics {
                (link(topic.anchor, file(topic.anchor), &topic.title.to_lowercase()))
            }
            (link(MACHINE, file(MACHINE), "machine and method"))
        }
    }
}

fn topic_page(
    results: &Results,
    topic: &ReportPage<'_>,
    topics: &[ReportPage<'_>],
    kills: bool,
) -> String {
    let cells = results.cells.iter();
    let footnotes =
        Footnotes::of(cells.filter(|cell| topic.experiments.contains(&cell.experiment.as_str())));
    let body = html! {
        header {
            p.brand { "Tontine · measure" }
            h1 #top { (topic.title) }
            p.lead { (topic.question) }
            @if !results.complete { (incomplete()) }
        }
        (contents(topics, topic.anchor))
        main {
            ul.experiments {
                @for name in &topic.experiments {
                    li { a href={ "#" (section::anchor(name)) } { (name) } }
                }
            }
            @if kills { (decision::survivors(results)) }
            @for name in &topic.experiments { (section::section(results, name, &footnotes)) }
            (footnotes.list())
        }
    };
    document(&format!("{}: what mechanisms cost here", topic.title), &body)
}

fn machine_page(results: &Results, topics: &[ReportPage<'_>]) -> String {
    let body = html! {
        header {
            p.brand { "Tontine · measure" }
            h1 #top { "Machine and method" }
            p.lead { "Where the figures were measured, and how they are computed" }
        }
        (contents(topics, MACHINE))
        main {
            section aria-labelledby="machine" {
                h2 #machine { "The machine" }
                (machine::advice(&results.machine))
                (machine::card(&results.machine))
            }
            (method::method())
        }
    };
    document("Machine and method", &body)
}

fn incomplete() -> Markup {
    html! {
        p.incomplete role="status" {
            strong { "Incomplete. " }
            "The run was interrupted: all figures are from the invocations that had ended by "
            "then, and cells with too few have no interval."
        }
    }
}

fn marked(sentence: &Sentence) -> Markup {
    html! {
        @for part in &sentence.parts {
            @match part {
                SentencePart::Words(text) => (text),
                SentencePart::Name(text) => code { (text) },
                SentencePart::Figure(text) => strong { (text) },
                SentencePart::Interval(text) => span.whole { (text) },
            }
        }
    }
}
