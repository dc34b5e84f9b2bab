//! The pairs of processors of `core-to-core`: [`pair`], and a CSV file for each variant
//! ([`files`]).
//!
//! A file has no header. Line i, column j has the latency in nanoseconds between the i-th and the
//! j-th processor for j < i, and nothing elsewhere: the form that the notebook of the project
//! core-to-core-latency reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use tontine_bench::schema::Results;
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

/// Returns the names of all files that a run can have.
pub(crate) fn possible_files() -> impl Iterator<Item = String> {
    VARIANTS.into_iter().map(file)
}

fn file(variant: &str) -> String {
    format!("{EXPERIMENT}-{variant}.csv")
}

/// Returns the name and the content of each file.
pub(crate) fn files(results: &Results) -> Vec<(String, Vec<u8>)> {
    VARIANTS
        .into_iter()
        .filter_map(|variant| {
            let cells = results.cells.iter().filter(|cell| {
                cell.experiment == EXPERIMENT && cell.variant == variant && cell.unit == "ns"
            });
            let found = cells.filter_map(|cell| Some((pair(&cell.params)?, cell.estimate?)));
            let table = table(&found.collect())?;
            Some((file(variant), table.into_bytes()))
        })
        .collect()
}

/// Returns the lower triangle of the table; `None` if there is no pair.
fn table(figures: &BTreeMap<(usize, usize), f64>) -> Option<String> {
    let processors: BTreeSet<usize> = figures.keys().flat_map(|pair| [pair.0, pair.1]).collect();
    let mut text = String::new();
    for one in &processors {
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
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::fixture;

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
            cell("mailbox-spin", "0-1", None),
        ];
        let files = files(&results);
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].0, "core-to-core-flag-one-line.csv");
        assert_eq!(String::from_utf8_lossy(&files[0].1), ",,\n31.5,,\n200,,\n");
        assert!(possible_files().any(|name| name == files[0].0));
    }
}
