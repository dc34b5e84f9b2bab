//! The pairs of processors of `core-to-core`: [`pair`], [`processors`], and a CSV file for each
//! variant ([`files`]).
//!
//! A file has no header. Line i, column j has the latency in nanoseconds between the i-th and the
//! j-th processor for j < i, and nothing elsewhere: the form that the notebook of the project
//! core-to-core-latency reads. All files of a run number the same processors: those of every pair,
//! measured or not. A quick run has only a sample of the machine's processors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use tontine_bench::format::FormattedFigure;
use tontine_bench::schema::{Cell, Results};
use tontine_bench::task::Params;

/// The experiment whose cells are pairs of processors.
const EXPERIMENT: &str = "core-to-core";
/// The variants of which a run may have a file.
const VARIANTS: [&str; 3] = ["flag-one-line", "flag-two-lines", "mailbox-spin"];

/// Returns the two processors that the parameters name, the lower number first.
pub(crate) fn pair(params: &Params) -> Option<(usize, usize)> {
    let (one, other) = params.get("pair")?.split_once('-')?;
    let (one, other) = (one.parse().ok()?, other.parse().ok()?);
    Some(if one < other { (one, other) } else { (other, one) })
}

/// Returns the pair of a cell and its figure; `None` if the cell is not a pair or has no figure.
pub(crate) fn of_cell(cell: &Cell) -> Option<((usize, usize), (f64, FormattedFigure))> {
    Some((pair(&cell.params)?, (cell.estimate?, FormattedFigure::of_cell(cell)?)))
}

/// Returns the processors of an experiment's pairs, with or without a figure.
pub(crate) fn processors(results: &Results, experiment: &str) -> BTreeSet<usize> {
    let cells = results.cells.iter().filter(|cell| cell.experiment == experiment);
    cells.filter_map(|cell| pair(&cell.params)).flat_map(<[usize; 2]>::from).collect()
}

/// Returns the names of all files that a run can have.
pub(crate) fn possible_files() -> impl Iterator<Item = String> {
    VARIANTS.into_iter().map(file)
}

fn file(variant: &str) -> String {
    format!("{EXPERIMENT}-{variant}.csv")
}

/// Returns the name and the content of each file.
pub(crate) fn files(results: &Results) -> Vec<(String, Vec<u8>)> {
    let processors = processors(results, EXPERIMENT);
    VARIANTS
        .into_iter()
        .filter_map(|variant| {
            let cells = results.cells.iter().filter(|cell| {
                cell.experiment == EXPERIMENT && cell.variant == variant && cell.unit == "ns"
            });
            let found = cells.filter_map(|cell| Some((pair(&cell.params)?, cell.estimate?)));
            let table = table(&processors, &found.collect())?;
            Some((file(variant), table.into_bytes()))
        })
        .collect()
}

/// Returns the lower triangle of the table; `None` if there is no figure.
fn table(processors: &BTreeSet<usize>, figures: &BTreeMap<(usize, usize), f64>) -> Option<String> {
    if figures.is_empty() {
        return None;
    }
    let mut text = String::new();
    for one in processors {
        for (at, other) in processors.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            if let Some(figure) = figures.get(&(*other, *one)) {
                let _ = write!(text, "{figure}");
            }
        }
        text.push('\n');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn file_has_lower_triangle_of_all_pairs() {
        let mut results = fixture::small();
        let model = results.cells.remove(0);
        let cell = |variant: &str, pair: &str, estimate| {
            let mut cell = model.clone();
            (cell.experiment, cell.variant) = (EXPERIMENT.into(), variant.into());
            (cell.unit, cell.estimate) = ("ns".into(), estimate);
            cell.params = [("pair".to_owned(), pair.to_owned())].into();
            cell
        };
        results.cells = vec![
            cell("flag-one-line", "0-2", Some(31.5)),
            cell("flag-one-line", "0-10", Some(200.0)),
            cell("flag-one-line", "2-10", None),
            cell("flag-two-lines", "2-10", Some(45.0)),
            cell("mailbox-spin", "0-1", None),
        ];
        let files = files(&results);
        // Processor 1 has no figure, but a line in each file.
        let expected = [
            ("core-to-core-flag-one-line.csv", ",,,\n,,,\n31.5,,,\n200,,,\n"),
            ("core-to-core-flag-two-lines.csv", ",,,\n,,,\n,,,\n,,45,\n"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        assert_eq!(files, expected);
        assert!(possible_files().any(|name| name == files[0].0));
    }
}
