//! Tests of the pages as text: sizes, links, figures, hostile names, incomplete runs.

mod browser;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::*;
use crate::fixture;
use crate::verdict;
use tontine_bench::format::FormattedFigure;
use tontine_bench::schema::{Cell, Status};

/// Maximum size of the overview, in bytes.
const MAX_OVERVIEW: usize = 300_000;
/// Maximum size of any other page, in bytes.
const MAX_PAGE: usize = 1_000_000;
/// Maximum size of all pages, in bytes.
const MAX_REPORT: usize = 3_000_000;
/// The files with the data, which are written next to the pages.
const DATA: [&str; 3] = ["results.json", "results.csv", "results.md"];

/// Returns the pages of a run, by name.
fn rendered(results: &Results) -> BTreeMap<String, String> {
    pages(results).into_iter().map(|page| (page.name, page.html)).collect()
}

/// The pages of the invented run.
static PAGES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| rendered(&fixture::run()));

/// Returns all pages of the invented run in one text.
fn whole_text() -> String {
    PAGES.values().map(String::as_str).collect()
}

/// Returns all pages of a run in one text.
fn text(results: &Results) -> String {
    rendered(results).into_values().collect()
}

/// Returns a run of at least `cells` more cells than the fixture, of the same kinds.
fn big(cells: usize) -> Results {
    let mut results = fixture::run();
    let all = results.cells.clone();
    for copy in 0..cells.div_ceil(all.len()) {
        results.cells.extend(all.iter().cloned().map(|mut cell| {
            cell.params.insert("copy".into(), format!("number {copy}"));
            cell.notes.push("every row of this run has the same long remark".repeat(4));
            cell.notes.push(format!("remark {copy} of {}", cell.variant));
            cell
        }));
    }
    results
}

fn assert_within_limits(pages: &BTreeMap<String, String>) {
    let largest = pages.iter().map(|(name, page)| (page.len(), name)).max().unwrap();
    assert!(largest.0 < MAX_PAGE, "{largest:?}");
    let overview = pages[OVERVIEW].len();
    assert!(overview < MAX_OVERVIEW, "{overview}");
    let all: usize = pages.values().map(String::len).sum();
    assert!(all < MAX_REPORT, "{all}");
}

#[test]
fn overview_and_pages_stay_below_their_limits() {
    assert_within_limits(&PAGES);
}

#[test]
#[ignore = "takes long: renders a thousand rows"]
fn overview_and_pages_of_large_run_stay_below_their_limits() {
    assert_within_limits(&rendered(&big(1_000)));
}

#[test]
fn pages_make_no_request_and_links_resolve() {
    let pages = &*PAGES;
    let mut links = 0;
    for (name, page) in pages {
        for request in ["http://", "https://", " src=", "url(", "@import", "<link", "fetch("] {
            assert!(!page.contains(request), "{name}: {request}");
        }
        assert!(!page.contains("<script"), "{name}");
        assert!(page.contains("default-src 'none'") || page.contains("default-src &#39;none&#39;"));
        for once in ["<html", "<h1", "Content-Security-Policy", "</html>"] {
            assert_eq!(page.matches(once).count(), 1, "{name}: {once}");
        }
        let ids: Vec<&str> =
            page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len(), "{name}: an id occurs twice");
        let targets = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for target in targets {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { name } else { file };
            if !DATA.contains(&file) {
                let there = pages.get(file).unwrap_or_else(|| panic!("{name}: {target}"));
                let id = format!(" id=\"{anchor}\"");
                assert!(anchor.is_empty() || there.contains(&id), "{name}: {target}");
            }
            links += 1;
        }
    }
    assert!(links > 60, "{links}");
    let overview = &pages[OVERVIEW];
    for name in pages.keys().map(String::as_str).chain(DATA) {
        assert!(overview.contains(&format!("href=\"{name}\"")), "{name}");
    }
    for name in pages.keys().filter(|name| *name != OVERVIEW) {
        assert!(possible_files().any(|possible| possible == *name), "{name}");
    }
}

#[test]
fn overview_is_last_and_in_order() {
    let files = pages(&fixture::run());
    let overview = files.last().unwrap();
    assert_eq!(overview.name, OVERVIEW);
    let parts = ["ladder", "figures", "decisions", "verdict", "disturbed", "more", "data"];
    let places: Vec<usize> = parts
        .iter()
        .map(|part| {
            overview.html.find(&format!(" id=\"{part}\"")).unwrap_or_else(|| panic!("{part}"))
        })
        .collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn topic_pages_show_questions_and_omit_empty_columns() {
    let mut results = fixture::run();
    let page = whole_text();
    for name in ["round-trip", "liveness-check"] {
        let about = results.about(name).expect("in the fixture");
        assert!(page.contains(&about.question), "{name}");
    }
    assert!(page.contains(">p99</th>") && page.contains(">floor</th>"));
    results.cells.retain(|cell| cell.experiment == "round-trip");
    for cell in &mut results.cells {
        (cell.floor, cell.p99) = (None, None);
    }
    let page = text(&results);
    assert!(!page.contains(">p99</th>") && !page.contains(">floor</th>"));
}

#[test]
fn unknown_experiment_is_listed_under_described_topic() {
    let mut results = fixture::small();
    let mut about = results.about("round-trip").expect("in the fixture").clone();
    about.name = "pigeon-post".into();
    about.question = "How long does a pigeon take?".into();
    about.topic = Topic::Signals;
    results.experiments = vec![about];
    for cell in &mut results.cells {
        cell.experiment = "pigeon-post".into();
    }
    let pages = rendered(&results);
    assert!(pages["report-signals.html"].contains("How long does a pigeon take?"));
    assert_eq!(pages.len(), 3);
    results.experiments.clear();
    let pages = rendered(&results);
    assert!(pages["report-others.html"].contains("experiment-pigeon-post"));
    assert_eq!(pages.len(), 3);
}

#[test]
fn pages_contain_every_figure_and_reason() {
    let results = fixture::run();
    let page = whole_text();
    for cell in &results.cells {
        match cell.status {
            Status::Ok => {
                let shown = FormattedFigure::of_cell(cell).unwrap();
                assert!(page.contains(&shown.value), "{} {shown:?}", cell.variant);
                assert!(page.contains(&shown.interval), "{} {shown:?}", cell.variant);
            }
            _ => assert!(page.contains(cell.why.as_deref().unwrap()), "{}", cell.variant),
        }
        for note in &cell.notes {
            assert!(page.contains(note), "{note}");
        }
    }
    let sentences = verdict::verdict(&results).into_iter();
    let answers = verdict::decisions(&results).into_iter().map(|one| one.answer);
    let headlines = verdict::headlines(&results).into_iter().map(|one| one.phrase);
    let overview = &PAGES[OVERVIEW];
    for part in sentences.chain(answers).chain(headlines).flat_map(|sentence| sentence.parts) {
        let (SentencePart::Words(text)
        | SentencePart::Name(text)
        | SentencePart::Figure(text)
        | SentencePart::Interval(text)) = part;
        assert!(
            overview.contains(&text.replace('\'', "&#39;")) || overview.contains(&text),
            "{text}"
        );
    }
}

/// Returns the values of an attribute, in the order of the page.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    page.split(&start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn figures(page: &str) -> Vec<f64> {
    values(page, "data-v").into_iter().map(|figure| figure.parse().unwrap()).collect()
}

#[test]
fn estimate_is_drawn_once_and_names_are_accessible() {
    let mut drawn = Vec::new();
    for (name, page) in PAGES.iter() {
        if name != OVERVIEW {
            drawn.extend(figures(page));
        }
        for table in page.split("<table").skip(1) {
            assert!(table.contains("<caption>"), "{name}: {table:.80}");
        }
        let labels = values(page, "aria-label");
        assert!(labels.iter().all(|label| label.len() > 5), "{name}: {labels:?}");
        assert_eq!(
            page.matches("role=\"img\" aria-label=").count(),
            page.matches("role=\"img\"").count()
        );
    }
    let results = fixture::run();
    let mut expected: Vec<f64> = results.cells.iter().filter_map(|cell| cell.estimate).collect();
    for all in [&mut drawn, &mut expected] {
        // A sentence may replace figures that are zero.
        all.retain(|figure| *figure != 0.0);
        all.sort_by(f64::total_cmp);
    }
    assert_eq!(drawn, expected);
}

/// On linear axes positions are proportional to figures: pairs horizontally, signals vertically.
#[test]
fn curve_marks_are_proportional_to_figures() {
    let page = &PAGES[&file("signals")];
    let (_, line) = page.split_once("<g class=\"line c0\"").unwrap();
    let line = line.split("</g>").next().unwrap();
    let marks: Vec<&str> = line.split("<svg class=\"mark\"").skip(1).collect();
    let at = |mark: &str, attribute: &str| -> f64 {
        values(mark, attribute)[0].trim_end_matches('%').parse().unwrap()
    };
    let [first, second, .., last] = &marks[..] else { panic!("{line}") };
    let along = |mark| at(mark, "x") - at(first, "x");
    assert!((along(second) / along(last) - 1.0 / 7.0).abs() < 0.01, "pairs 1, 2, 8: {line}");
    let share = |attribute| {
        let from = |mark| at(mark, attribute) - at(first, attribute);
        from(second) / from(last)
    };
    assert!((share("y") - share("data-v")).abs() < 0.01, "{line}");
    // Marks with more signals are higher up.
    assert!(at(first, "data-v") > at(last, "data-v") && at(first, "y") < at(last, "y"), "{line}");
}

#[test]
fn repeated_remark_is_printed_once_per_page() {
    let results = big(200);
    let remark = &results.cells.last().unwrap().notes.iter().rev().nth(1).unwrap()[..];
    for (name, page) in rendered(&results) {
        let expected = usize::from(name != OVERVIEW && name != "report-machine.html");
        assert_eq!(page.matches(remark).count(), expected, "{name}");
    }
}

/// Returns the number of dots of all paths of dots.
fn dots(page: &str) -> usize {
    let paths = page.split("<path class=\"ran\" d=\"").skip(1);
    let all: usize = paths.map(|rest| rest.split('"').next().unwrap().matches("h0").count()).sum();
    // A legend has three.
    all - 3 * page.matches("one invocation, first at the top").count()
}

#[test]
fn every_invocation_has_a_dot_in_chart_or_curve() {
    for name in ["round-trip", "signal-throughput"] {
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == name);
        let invocations: usize = results.cells.iter().map(|cell| cell.invocations.len()).sum();
        assert_eq!(dots(&text(&results)), invocations, "{name}");
    }
}

#[test]
fn chart_of_zeroes_is_a_sentence() {
    let mut results = fixture::run();
    let is_torn = |cell: &Cell| cell.experiment == "survival" && cell.metric == "torn";
    results.cells.retain(is_torn);
    let page = text(&results);
    assert!(page.contains("All zero: "), "{page}");
    assert_eq!(dots(&page), 0);
    let rows = format!("in each of {} rows", results.cells.len());
    assert!(page.contains(&rows), "{rows}");
}

#[test]
fn metric_with_samples_has_cumulative_curves() {
    let pages = &*PAGES;
    for name in ["messages", "death", "signals"] {
        let page = &pages[&file(name)];
        assert!(page.contains("Cumulative distributions of "), "{name}");
    }
    assert!(!pages[OVERVIEW].contains("class=\"cdf\""));
}

#[test]
fn paper_figure_appears_only_for_described_metric() {
    let page = whole_text();
    for figure in 1..=4 {
        assert_eq!(page.matches(&format!("Figure {figure}: ")).count(), 1, "{figure}");
    }
    let (_, after) = page.split_once("Figure 1: ").unwrap();
    let (curve, _) = after.split_once("</figure>").unwrap();
    assert!(curve.contains("linux: at 1 ") && curve.contains("linux, on one core: at 1 "));
    let (_, sent) = page.split_once("received <code>sent_per_signal</code></h3>").unwrap();
    let (curve, _) = sent.split_once("</figure>").unwrap();
    assert!(!curve.contains("In the paper") && !curve.contains("per second"), "{curve}");
}

#[test]
fn hostile_strings_are_escaped() {
    let mut results = fixture::run();
    let hostile = "\"><script>alert(1)</script>";
    for cell in &mut results.cells {
        cell.variant = hostile.into();
        cell.notes = vec![hostile.into(), format!("{hostile}{}", cell.metric)];
        cell.params.insert(hostile.into(), hostile.into());
    }
    results.cells[0].experiment = hostile.into();
    results.cells[1].why = Some(hostile.into());
    results.tried[0].tried.says = hostile.into();
    results.machine = serde_json::json!({
        "advice": [{"topic": hostile, "finding": hostile}, 7],
        "card": [[hostile, [[hostile, hostile], 1]], {}],
    });
    for (name, page) in rendered(&results) {
        assert!(!page.contains("<script"), "{name}");
        assert!(page.contains("&lt;script&gt;"), "{name}");
    }
}

#[test]
fn interrupted_run_is_marked_before_figures() {
    assert!(!whole_text().contains("Incomplete"));
    let mut results = fixture::run();
    results.complete = false;
    results.machine = serde_json::Value::Null;
    let pages = rendered(&results);
    let overview = &pages[OVERVIEW];
    assert!(overview.find("Incomplete").unwrap() < overview.find("id=\"ladder\"").unwrap());
    assert!(pages[&file("messages")].contains("Incomplete"));
}

#[test]
fn empty_run_renders_overview_and_machine() {
    let mut results = fixture::run();
    results.cells.clear();
    results.ratios.clear();
    results.tried.clear();
    let pages = rendered(&results);
    assert_eq!(pages.len(), 2);
    assert!(pages[OVERVIEW].contains("No measured row"));
}

#[test]
fn rows_skipped_for_one_reason_are_one_row() {
    let mut results = fixture::run();
    results.cells.retain(|cell| cell.variant == "container-tcp");
    let mut other = results.cells[0].clone();
    other.params = [("placement".to_owned(), "same-core".to_owned())].into();
    results.cells.push(other);
    let page = text(&results);
    assert_eq!(page.matches("skipped: ").count(), 1, "{page}");
    assert!(page.contains("; on one core</td>"), "{page}");
}
