//! A run as rows of formatted strings: [`rows`].
//!
//! The command line prints them as a table on a terminal, [`super::markdown`] as a Markdown table.
//! Neither formats numbers: [`tontine_bench::format`] does.

use tontine_bench::format::{self, FormattedFigure, NOTHING};
use tontine_bench::schema::{Cell, Results, Status};
use tontine_bench::stats::diagnose::FEWEST_FOR_SHAPE;
use tontine_bench::task::Params;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRow {
    pub experiment: String,
    /// Name of the metric; empty if nothing was measured.
    pub metric: String,
    /// Parameters in words; empty if the cell has none.
    pub params: String,
    pub parameters: Params,
    pub name: String,
    /// The figure with its unit, after the word `model` if it is not measured; `skipped` or
    /// `failed` if the figure is missing.
    pub estimate: String,
    /// `low – high` with the unit.
    pub interval: String,
    /// The smallest sample.
    pub floor: String,
    /// The median, over the invocations, of the 99th percentile.
    pub p99: String,
    /// Figures published by the sources, with the sources' numbers.
    pub published: String,
    /// Ratio to another variant, with its interval.
    pub ratio: String,
    /// All remarks on the figure, or the reason for its absence.
    pub notes: String,
    /// The remarks that a short table cannot omit: the reason for a missing figure, what failed,
    /// and what makes the figure doubtful.
    pub doubts: String,
}

pub fn rows(results: &Results) -> Vec<TextRow> {
    results.cells.iter().map(|cell| row(cell, results)).collect()
}

fn row(cell: &Cell, results: &Results) -> TextRow {
    let shown = FormattedFigure::of_cell(cell);
    let (mut estimate, interval) = match (cell.status, shown) {
        (Status::Ok, Some(shown)) => (shown.value, shown.interval),
        (Status::Ok, None) => (NOTHING.into(), String::new()),
        (Status::Skipped, _) => ("skipped".into(), String::new()),
        (Status::Failed, _) => ("failed".into(), String::new()),
    };
    if cell.status == Status::Ok && is_modelled(cell) {
        estimate.insert_str(0, "model ");
    }
    TextRow {
        experiment: cell.experiment.clone(),
        metric: cell.metric.clone(),
        params: format::params(&cell.params),
        parameters: cell.params.clone(),
        name: cell.variant.clone(),
        estimate,
        interval,
        floor: cell.floor.map_or_else(String::new, |floor| format::single(&cell.unit, floor)),
        p99: cell
            .p99
            .map_or_else(String::new, |p99| FormattedFigure::of_estimate(&cell.unit, p99).value),
        published: published(cell),
        ratio: ratio(cell, results),
        notes: notes(cell),
        doubts: doubts(cell),
    }
}

/// Returns `true` if a model computed the cell's figures.
pub(super) fn is_modelled(cell: &Cell) -> bool {
    cell.params.contains_key("modelled")
}

/// Returns a remark for a figure that shows `cells` if some of them have too few invocations for
/// their distribution to be judged.
pub fn few_for_shape<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<String> {
    let counts = cells.map(|cell| cell.invocations.len()).filter(|&count| count > 0);
    let (least, most) =
        counts.fold((usize::MAX, 0), |(least, most), count| (least.min(count), most.max(count)));
    let rows = match (least, most) {
        _ if least >= FEWEST_FOR_SHAPE => return None,
        (1, 1) => "1 invocation each".to_owned(),
        _ if least == most => format!("{least} invocations each"),
        _ => format!("rows of fewer than {FEWEST_FOR_SHAPE} invocations"),
    };
    Some(format!("{rows}: too few to judge the shape of a distribution (modes, drift)"))
}

/// Formats the ratio, as `3.21× flag-one-line (3.10× – 3.30×)`; empty if the cell has no ratio.
pub(super) fn ratio(cell: &Cell, results: &Results) -> String {
    format::ratio_of(cell, results).filter(|_| cell.status == Status::Ok).map_or_else(
        String::new,
        |ratio| {
            let shown = format::times(ratio.estimate, ratio.low, ratio.high);
            format!("{} {} ({})", shown.value, format::denominator(&ratio.name), shown.interval)
        },
    )
}

/// Formats the published figures with their sources; empty if the cell has none.
pub(super) fn published(cell: &Cell) -> String {
    let each: Vec<String> = cell
        .published
        .iter()
        .map(|published| {
            let shown = FormattedFigure::of_published(&cell.unit, published);
            format!("{} [{}]", shown.value, published.source)
        })
        .collect();
    each.join(", ")
}

pub(super) fn notes(cell: &Cell) -> String {
    let all: Vec<&str> = cell.why.iter().chain(&cell.notes).map(String::as_str).collect();
    all.join("; ")
}

/// Joins the reason for a missing figure and the notes that make the figure doubtful.
fn doubts(cell: &Cell) -> String {
    let doubtful = |note: &&String| {
        ["unstable:", "skipped after", "no interval:", "few invocations:"]
            .iter()
            .any(|start| note.starts_with(start))
            || note.contains("invocations failed")
            || note.contains("only when repeated")
    };
    let notes = cell.notes.iter().filter(doubtful);
    let all: Vec<&str> = cell.why.iter().chain(notes).map(String::as_str).collect();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_cell_has_a_row_and_missing_figures_a_reason() {
        let results = fixture::run();
        let rows = rows(&results);
        assert_eq!(rows.len(), results.cells.len());
        for (row, cell) in rows.iter().zip(&results.cells) {
            match cell.status {
                Status::Ok => assert!(!row.interval.is_empty(), "{row:?}"),
                _ => assert!(row.notes.contains(cell.why.as_deref().unwrap()), "{row:?}"),
            }
        }
    }

    #[test]
    fn modelled_figure_is_marked() {
        let mut results = fixture::small();
        assert_eq!(rows(&results)[0].estimate, "88.0 ns");
        for cell in &mut results.cells {
            cell.params.insert("modelled".into(), "10 processors".into());
        }
        let rows = rows(&results);
        assert_eq!(
            (rows[0].estimate.as_str(), rows[2].estimate.as_str()),
            ("model 88.0 ns", "skipped")
        );
    }

    #[test]
    fn few_invocations_are_noted_for_the_shape() {
        let mut cells = fixture::small().cells;
        assert_eq!(few_for_shape(cells.iter()), None);
        cells[0].invocations.truncate(6);
        let note = few_for_shape(cells.iter()).expect("too few");
        assert!(note.starts_with("rows of fewer than 10 invocations: too few"), "{note}");
        cells[1].invocations.truncate(6);
        let note = few_for_shape(cells.iter()).expect("too few");
        assert!(note.starts_with("6 invocations each: too few"), "{note}");
    }

    #[test]
    fn text_rows_match_snapshot() {
        let lines: Vec<String> = rows(&fixture::small())
            .into_iter()
            .map(|r| {
                [
                    r.experiment,
                    r.metric,
                    r.params,
                    r.name,
                    r.estimate,
                    r.interval,
                    r.floor,
                    r.p99,
                    r.published,
                    r.ratio,
                    r.notes,
                ]
                .join(" | ")
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
