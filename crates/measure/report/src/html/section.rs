//! An experiment on the page: [`section`].
//!
//! The section starts with the folded description of the experiment. The cells follow, grouped by
//! metric, then by parameters, best first. Each metric has a curve for each numeric parameter,
//! preceded by the paper's own figure, if any; a chart of the cells that are on no curve; the
//! distributions of its samples; and a folded table with every figure. One table shows the
//! statistics of all locks, with the underlying figures folded. At the end are the maps of a heap,
//! rows that were skipped or failed, events that were tried rather than timed, and the paired
//! ratios.

use std::collections::BTreeSet;

use maud::{Markup, html};
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Estimate, Ratio, Results, Status, TriedRow};
use tontine_bench::sequence::{distinct, grouped};

use super::footnote::{Footnotes, links};
use super::heat::HeatMap;
use super::{cdf, chart, contention, curve, explained, heap, paper, plot, words};
use crate::verdict::CheckVerdict;
use crate::{core_pairs, text};

/// Maximum number of rows of a chart that is shown unfolded.
const MAX_UNFOLDED: usize = 48;

/// Maximum number of ratios that are shown unfolded.
const MAX_RATIOS: usize = 8;

pub(super) fn names(results: &Results) -> Vec<&str> {
    let cells = results.cells.iter().map(|cell| cell.experiment.as_str());
    distinct(cells.chain(results.tried.iter().map(|row| row.experiment.as_str())))
}

pub(super) fn anchor(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("experiment-{}", name.chars().map(safe).collect::<String>())
}

/// Returns the section of one experiment; its rows refer to `footnotes`.
pub(super) fn section(results: &Results, name: &str, footnotes: &Footnotes<'_>) -> Markup {
    let cells: Vec<&Cell> = results.cells.iter().filter(|cell| cell.experiment == name).collect();
    let (measured, without): (Vec<&Cell>, Vec<&Cell>) =
        cells.into_iter().partition(|cell| cell.status == Status::Ok);
    let tried: Vec<&TriedRow> = results.tried.iter().filter(|row| row.experiment == name).collect();
    html! {
        section.experiment aria-labelledby=(anchor(name)) {
            h2 id=(anchor(name)) { (name) }
            @if let Some(about) = results.about(name) {
                p.question { (about.question) }
                (explained::folded(about))
            }
            @for (metric, cells) in by_metric(&measured) {
                @if !contention::is_of_locks(metric) {
                    (of_metric(results, metric, &cells, footnotes))
                }
            }
            (contention::contention(&measured))
            @for (metric, cells) in by_metric(&measured) {
                @if contention::is_of_locks(metric) {
                    details.bars {
                        summary { (title(name, metric)) ": lock by lock" }
                        (of_metric(results, metric, &cells, footnotes))
                    }
                }
            }
            (heap::maps(results, name))
            @if !tried.is_empty() { (matrix(&tried)) }
            @if !without.is_empty() { (without_figure(&without, footnotes)) }
            (ratios(results, name))
        }
    }
}

fn of_metric(
    results: &Results,
    metric: &str,
    cells: &[&Cell],
    footnotes: &Footnotes<'_>,
) -> Markup {
    let unit = cells.first().map_or("", |cell| cell.unit.as_str());
    let experiment = cells.first().map_or("", |cell| cell.experiment.as_str());
    let title = title(experiment, metric);
    let groups = by_params(cells);
    let curves = curve::curves(cells);
    let drawn = paper::drawn(experiment, metric);
    let both = drawn.and_then(|_| paper::both_kernels(&curves));
    // The paper's caption belongs to the curve of both kernels, if that curve exists.
    let caption = drawn.filter(|_| both.is_none());
    // A chart repeats no cell that is on a curve.
    let on_curve = |cell: &Cell| {
        let points = curves.iter().flat_map(|curve| &curve.lines).flat_map(|line| &line.points);
        points.into_iter().any(|(_, point)| std::ptr::eq(*point, cell))
    };
    let aside: Vec<&Cell> = cells.iter().copied().filter(|cell| !on_curve(cell)).collect();
    let bars = chart::chart(title, unit, &by_params(&aside));
    let maps = pair_maps(title, &core_pairs::processors(results, experiment), cells);
    html! {
        h3 { (title) @if !title.eq_ignore_ascii_case(metric) { " " code { (metric) } } }
        @if let Some(both) = &both { (plot::plot(title, both, drawn)) }
        @if !curves.is_empty() {
            div.curve-grid { @for curve in &curves { (plot::plot(title, curve, caption)) } }
            (plot::hint())
        }
        @if let Some(map) = HeatMap::of_placements(title, cells) { (map.table()) }
        @for map in &maps { (map.table()) }
        // Charts of hundreds of pairs of processors would show nothing that the maps do not.
        @if maps.is_empty() || cells.len() <= MAX_UNFOLDED {
            @if aside.len() <= MAX_UNFOLDED {
                (bars)
            } @else {
                details.bars { summary { "Row by row: " (title) } (bars) }
            }
            (cdf::distributions(title, &groups))
        }
        details.figures {
            summary { "All figures: " (title) }
            (table(results, title, &groups, footnotes))
        }
    }
}

/// Returns the title of a metric; its name if it has no title.
fn title<'a>(experiment: &str, metric: &'a str) -> &'a str {
    match (experiment, metric) {
        ("lost-signals", "lost") => return "Signals that were never seen",
        ("thread-local", "lost") => return "Increments that were lost",
        _ => {}
    }
    match metric {
        "one_way" => "One-way latency",
        "one_way_alone" => "One-way latency without the idle senders",
        "one_way_single" => "One-way latency, a stamp in every round",
        "skipped" => "Rounds skipped",
        "check" => "Cost of one check",
        "throughput" => "Throughput",
        "message" => "Time per message in a stream",
        "rate" => "Messages per second",
        "bandwidth" => "Bytes per second",
        "wedged" => "Kills after which the survivor is wedged",
        "torn" => "Kills after which a message was torn",
        "lost" => "Kills that lost a sent message",
        "lost_with_sender" => "Kills that lost a message of the dead sender",
        "notice" => "Time until a death is noticed",
        "parent_after" => "Signals whose kill returned after the child's last stamp",
        "child_after_by" | "child_after_by_cycles" => {
            "Time by which the child outlived kill's \
                                                       return"
        }
        "parent_after_by" | "parent_after_by_cycles" => {
            "Time from the child's last stamp to kill's return"
        }
        "both" => "Time until both counters are done",
        "pair" => "Time of a free and a malloc",
        "remote_free" => "Time of a block that another thread frees",
        "send" => "Time to send",
        "receive" => "Time to receive",
        "received" => "Signals per second received by one process",
        "sent_per_signal" => "Signals sent for each that is received",
        "missed" => "Signals that did not wake their waiting thread",
        "merged" => "Signals merged with one that was still pending",
        "main_thread" => "Signals to the process taken by the main thread",
        "same_thread" => "Signals to the process taken by the same thread as the previous one",
        "own_thread" => "Signals to a thread taken by that thread",
        "corrupted" => "Operations with a wrong result",
        "deadlocked" => "Operations that did not end",
        "operation" => "Time of an operation",
        "create_join" => "Time to create one and wait for its end",
        "increment" => "Time of an increment",
        "build" => "Time of a build",
        "iteration" => "Time of a session's commands",
        "waited" => "Acquisitions of a lock that had to wait",
        "blocked" => "Waits for a lock in which the thread was blocked",
        "forked" => "Forks per second of one process",
        "freed" => "Blocks freed per second",
        "reclaimed" => "Time until the blocks of a killed process are free",
        "given_back" => "Time until the kernel has the memory of a killed process",
        "empty_wait" => "Processor time of a wait that ends by its timeout",
        "per_message" => "Processor time per message, one message per millisecond",
        "busy" => "Share of a processor that the receiver uses, one message per millisecond",
        "spawn" => "Time to create a process, let it end and wait for it",
        other => other,
    }
}

/// Groups cells by metric, with the metrics in the run's order.
fn by_metric<'a>(cells: &[&'a Cell]) -> Vec<(&'a str, Vec<&'a Cell>)> {
    grouped(cells.iter().map(|cell| (cell.metric.as_str(), *cell)))
}

/// Groups cells by parameters, in the run's order; within a group, the lowest cost or the highest
/// rate comes first.
fn by_params<'a>(cells: &[&'a Cell]) -> Vec<(String, Vec<&'a Cell>)> {
    let mut groups = grouped(cells.iter().map(|cell| (words::params(&cell.params), *cell)));
    for (_, group) in &mut groups {
        let key = |cell: &Cell| cell.estimate.unwrap_or(f64::INFINITY);
        group.sort_by(|a, b| key(a).total_cmp(&key(b)));
        if group.iter().any(|cell| cell.unit.ends_with("/s")) {
            group.reverse();
        }
    }
    groups
}

/// The optional columns of a table: a column without entries is omitted.
#[derive(Debug, Clone, Copy)]
struct OptionalColumns {
    floor: bool,
    p99: bool,
    ratio: bool,
    published: bool,
}

impl OptionalColumns {
    fn of<'a>(results: &Results, cells: impl Iterator<Item = &'a Cell> + Clone) -> Self {
        Self {
            floor: cells.clone().any(|cell| cell.floor.is_some()),
            p99: cells.clone().any(|cell| cell.p99.is_some()),
            ratio: cells.clone().any(|cell| format::ratio_of(cell, results).is_some()),
            published: cells.clone().any(|cell| !cell.published.is_empty()),
        }
    }

    fn count(self) -> usize {
        let optional = [self.floor, self.p99, self.ratio, self.published];
        5 + optional.into_iter().filter(|&there| there).count()
    }
}

fn table(
    results: &Results,
    title: &str,
    groups: &[(String, Vec<&Cell>)],
    footnotes: &Footnotes<'_>,
) -> Markup {
    let cells = || groups.iter().flat_map(|(_, cells)| cells.iter().copied());
    let columns = OptionalColumns::of(results, cells());
    let of_all = footnotes.shared(&cells().collect::<Vec<_>>());
    html! {
        div.scroll role="region" tabindex="0" aria-label={ "Table: " (title) } {
            table {
                caption { (title) (links(&of_all)) }
                thead { tr {
                    th scope="col" { "variant" }
                    @for column in ["estimate", "mean", "trimmed mean"] {
                        th.figure scope="col" { (column) }
                    }
                    @if columns.floor { th.figure scope="col" { "floor" } }
                    @if columns.p99 { th.figure scope="col" { "p99" } }
                    @if columns.ratio { th.figure scope="col" { "ratio" } }
                    @if columns.published { th.figure scope="col" { "published" } }
                    th.figure scope="col" { "invocations" }
                } }
                @for (params, cells) in groups {
                    // A group without a header has no place for its remarks.
                    @let of_group = match params.is_empty() {
                        true => of_all.clone(),
                        false => &footnotes.shared(cells) | &of_all,
                    };
                    tbody {
                        @if !params.is_empty() {
                            tr { th.group colspan=(columns.count()) scope="colgroup" {
                                (params) (links(&(&of_group - &of_all)))
                            } }
                        }
                        @for cell in cells {
                            @let numbers = &footnotes.numbers(cell) - &of_group;
                            (table_row(results, cell, columns, &numbers, &footnotes.own(cell)))
                        }
                    }
                }
            }
        }
    }
}

fn table_row(
    results: &Results,
    cell: &Cell,
    columns: OptionalColumns,
    numbers: &BTreeSet<usize>,
    notes: &str,
) -> Markup {
    let estimate =
        |estimate: Option<Estimate>| estimate.map(|e| FormattedFigure::of_estimate(&cell.unit, e));
    let ratio = format::ratio_of(cell, results);
    html! {
        tr class=[(!notes.is_empty()).then_some("noted")] {
            th scope="row" { (cell.variant) (links(numbers)) }
            td.figure.main { (two_lines(FormattedFigure::of_cell(cell))) }
            td.figure { (two_lines(estimate(cell.mean))) }
            td.figure { (two_lines(estimate(cell.trimmed_mean))) }
            @if columns.floor {
                td.figure {
                    @if let Some(floor) = cell.floor { (format::single(&cell.unit, floor)) }
                }
            }
            @if columns.p99 { td.figure { (two_lines(estimate(cell.p99))) } }
            @if columns.ratio {
                td.figure {
                    @if let Some(ratio) = ratio {
                        @let shown = format::times(ratio.estimate, ratio.low, ratio.high);
                        (shown.value) " " (format::denominator(&ratio.name))
                        small { (shown.interval) }
                    }
                }
            }
            @if columns.published { td.figure { (text::published(cell)) } }
            td.figure { (cell.invocations.len()) }
        }
        @if !notes.is_empty() {
            tr.note { td colspan=(columns.count()) { p { (notes) } } }
        }
    }
}

fn two_lines(shown: Option<FormattedFigure>) -> Markup {
    html! {
        @if let Some(shown) = shown {
            (shown.value)
            @if !shown.interval.is_empty() { small { (shown.interval) } }
        }
    }
}

fn without_figure(cells: &[&Cell], footnotes: &Footnotes<'_>) -> Markup {
    html! {
        div.scroll role="region" tabindex="0" aria-label="Table: rows without a figure" {
            table.without {
                caption { "Rows without a figure" }
                thead { tr {
                    th scope="col" { "variant" }
                    th scope="col" { "parameters" }
                    th scope="col" { "why" }
                } }
                tbody { @for alike in alike(cells) { (reason(&alike, footnotes)) } }
            }
        }
    }
}

/// Groups the cells of a variant that have no figure for the same reason.
fn alike<'a>(cells: &[&'a Cell]) -> Vec<Vec<&'a Cell>> {
    let key = |cell: &'a Cell| (&cell.variant, cell.status, &cell.why, &cell.failures, &cell.notes);
    let groups = grouped(cells.iter().copied().map(|cell| (key(cell), cell)));
    groups.into_iter().map(|(_, alike)| alike).collect()
}

fn reason(alike: &[&Cell], footnotes: &Footnotes<'_>) -> Markup {
    let cell = alike[0];
    let params: Vec<String> = alike.iter().map(|cell| words::params(&cell.params)).collect();
    let own = footnotes.own(cell);
    html! {
        tr {
            th scope="row" { (cell.variant) }
            td { (params.join("; ")) }
            td {
                @match cell.status {
                    Status::Failed => b { "failed: " },
                    _ => b { "skipped: " },
                }
                (cell.why.as_deref().unwrap_or_default())
                @if !own.is_empty() { "; " (own) }
                (links(&footnotes.numbers(cell)))
                @for failure in &cell.failures { " · " (failure) }
            }
        }
    }
}

/// Returns the matrix of variants and events, with each answer and the verdict on it.
fn matrix(rows: &[&TriedRow]) -> Markup {
    let events = distinct(rows.iter().map(|row| (&*row.tried.event, &*row.tried.truth)));
    let variants = distinct(rows.iter().map(|row| row.variant.as_str()));
    html! {
        h3 { "Tried: the answer of each after an event" }
        div.scroll role="region" tabindex="0" aria-label="Table: the answer of each after an \
                                                          event" {
            table.tried {
                caption { "✓ right, ✗ wrong, – not tried" }
                thead { tr {
                    th scope="col" { "variant" }
                    @for (event, truth) in &events {
                        th scope="col" { (event) small { "in truth: " (truth) } }
                    }
                } }
                tbody {
                    @for variant in &variants {
                        tr {
                            th scope="row" { (variant) }
                            @for event in &events { td { (said(rows, variant, *event)) } }
                        }
                    }
                }
            }
        }
    }
}

fn said(rows: &[&TriedRow], variant: &str, (event, truth): (&str, &str)) -> Markup {
    let found = rows.iter().filter(|row| {
        row.variant == variant && row.tried.event == event && row.tried.truth == truth
    });
    html! {
        @for row in found {
            @let says = &row.tried.says;
            @match CheckVerdict::of(truth, says) {
                CheckVerdict::Right => span.right { "✓ " (says) },
                CheckVerdict::Wrong => span.wrong { "✗ " (says) },
                CheckVerdict::Untried => span.untried { "– " (says) },
            }
        }
    }
}

/// Returns a map for each variant whose cells are pairs of processors.
fn pair_maps(title: &str, processors: &BTreeSet<usize>, cells: &[&Cell]) -> Vec<HeatMap> {
    let of_variants = grouped(cells.iter().map(|cell| (&cell.variant, *cell)));
    let map = |(variant, cells): (&String, Vec<&Cell>)| {
        let pairs = cells.into_iter().filter_map(core_pairs::of_cell);
        HeatMap::of_pairs(format!("{title} of {variant}"), processors, pairs)
    };
    of_variants.into_iter().filter_map(map).collect()
}

/// Returns the paired ratios of an experiment, with their intervals.
fn ratios(results: &Results, name: &str) -> Markup {
    let ratios: Vec<&Ratio> = results.ratios.iter().filter(|r| r.experiment == name).collect();
    let names: BTreeSet<&str> = ratios.iter().map(|ratio| ratio.name.as_str()).collect();
    let processors = core_pairs::processors(results, name);
    html! {
        @for name in names {
            @let of_one = ratios.iter().filter(|ratio| ratio.name == name);
            @let pairs = of_one.filter_map(|ratio| {
                let shown = format::times(ratio.estimate, ratio.low, ratio.high);
                Some((core_pairs::pair(&ratio.params)?, (ratio.estimate, shown)))
            });
            @if let Some(map) = HeatMap::of_pairs(name.to_owned(), &processors, pairs) {
                (map.table())
            }
        }
        @if !ratios.is_empty() {
            details.figures open[ratios.len() <= MAX_RATIOS] {
            summary { "Ratios (" (ratios.len()) ")" }
            div.scroll role="region" tabindex="0" aria-label={ "Table: paired ratios, " (name) } {
                table {
                    caption { "Paired block by block, with the interval of the sign test" }
                    thead { tr {
                        th scope="col" { "ratio" }
                        th.figure scope="col" { "median of the pairs" }
                        th.figure scope="col" { "interval" }
                        th.figure scope="col" { "pairs" }
                        th scope="col" { "parameters" }
                    } }
                    tbody {
                        @for ratio in ratios {
                            @let shown = format::times(ratio.estimate, ratio.low, ratio.high);
                            tr {
                                th scope="row" { (ratio.name) }
                                td.figure.main { (shown.value) }
                                td.figure { (shown.interval) }
                                td.figure { (ratio.pairs) }
                                td { (words::params(&ratio.params)) }
                            }
                        }
                    }
                }
            }
            }
        }
    }
}
