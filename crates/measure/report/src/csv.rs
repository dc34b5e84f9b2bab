//! A run as one flat table: [`csv()`].
//!
//! One line per cell, in the run's order, with unrounded figures in the row's own unit. Data that
//! does not fit into a flat table (invocations, ratios, tried events) is in `results.json` only.

use std::io;

use tontine_bench::observe::Statistic;
use tontine_bench::schema::{Cell, Estimate, Results, Status};

/// A column: its title, and its text for a cell.
type CsvColumn = (&'static str, fn(&Cell) -> String);

/// The columns, in order.
const COLUMNS: [CsvColumn; 27] = [
    ("experiment", |cell| cell.experiment.clone()),
    ("variant", |cell| cell.variant.clone()),
    ("params", params),
    ("metric", |cell| cell.metric.clone()),
    ("unit", |cell| cell.unit.clone()),
    ("status", |cell| status(cell.status).into()),
    ("why", |cell| cell.why.clone().unwrap_or_default()),
    ("statistic", |cell| statistic(cell.statistic).into()),
    ("estimate", |cell| number(cell.estimate)),
    ("low", |cell| number(cell.low)),
    ("high", |cell| number(cell.high)),
    ("achieved", |cell| number(cell.achieved)),
    ("mean", |cell| value(cell.mean)),
    ("mean_low", |cell| low(cell.mean)),
    ("mean_high", |cell| high(cell.mean)),
    ("floor", |cell| number(cell.floor)),
    ("trimmed_mean", |cell| value(cell.trimmed_mean)),
    ("trimmed_mean_low", |cell| low(cell.trimmed_mean)),
    ("trimmed_mean_high", |cell| high(cell.trimmed_mean)),
    ("p99", |cell| value(cell.p99)),
    ("p99_low", |cell| low(cell.p99)),
    ("p99_high", |cell| high(cell.p99)),
    ("p999", |cell| value(cell.p999)),
    ("invocations", |cell| cell.invocations.len().to_string()),
    ("failures", |cell| cell.failures.len().to_string()),
    ("published", published),
    ("notes", |cell| cell.notes.join("; ")),
];

pub fn csv(results: &Results) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS.map(|(name, _)| name))?;
    for cell in &results.cells {
        writer.write_record(COLUMNS.map(|(_, text)| text(cell)))?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

pub(super) fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Skipped => "skipped",
        Status::Failed => "failed",
    }
}

pub(super) fn statistic(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Median => "median",
        Statistic::Mean => "mean",
    }
}

/// Returns the parameters in one machine-readable field: `pacing=hot;placement=cross-core`.
fn params(cell: &Cell) -> String {
    let pairs: Vec<String> =
        cell.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(";")
}

fn published(cell: &Cell) -> String {
    let values: Vec<String> = cell.published.iter().map(|p| p.value.to_string()).collect();
    values.join(";")
}

fn value(estimate: Option<Estimate>) -> String {
    number(estimate.map(|e| e.value))
}

fn low(estimate: Option<Estimate>) -> String {
    number(estimate.map(|e| e.low))
}

fn high(estimate: Option<Estimate>) -> String {
    number(estimate.map(|e| e.high))
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn csv_round_trips_cells() {
        let results = fixture::run();
        let bytes = csv(&results).unwrap();
        let mut reader = csv::Reader::from_reader(&bytes[..]);
        assert_eq!(reader.headers().unwrap(), &COLUMNS.map(|(name, _)| name)[..]);
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(records.len(), results.cells.len());
        for (record, cell) in records.iter().zip(&results.cells) {
            assert_eq!(&record[1], cell.variant);
            assert_eq!(record[8].parse().ok(), cell.estimate);
            assert_eq!(record[10].parse().ok(), cell.high);
            assert_eq!(&record[6], cell.why.as_deref().unwrap_or(""));
        }
    }

    #[test]
    fn csv_table_matches_snapshot() {
        let text = String::from_utf8(csv(&fixture::small()).unwrap()).unwrap();
        insta::assert_snapshot!(text);
    }
}
