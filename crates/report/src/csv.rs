//! A run as one flat table: [`csv()`].
//!
//! One line per cell, in the run's order, with unrounded figures in the row's own unit. Data that
//! does not fit into a flat table (invocations, ratios, tried events) is in `results.json` only.

use std::io;

use tontine_bench::observe::Statistic;
use tontine_bench::schema::{Cell, Estimate, Results, Status};

/// Column names, in order.
const COLUMNS: [&str; 27] = [
    "experiment",
    "variant",
    "params",
    "metric",
    "unit",
    "status",
    "why",
    "statistic",
    "estimate",
    "low",
    "high",
    "achieved",
    "mean",
    "mean_low",
    "mean_high",
    "floor",
    "trimmed_mean",
    "trimmed_mean_low",
    "trimmed_mean_high",
    "p99",
    "p99_low",
    "p99_high",
    "p999",
    "invocations",
    "failures",
    "published",
    "notes",
];

/// Returns the cells of `results` as CSV, with a header line.
///
/// # Errors
/// Returns errors of the encoder only, because writing to memory does not fail.
pub fn csv(results: &Results) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for cell in &results.cells {
        writer.write_record(record(cell))?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

fn record(cell: &Cell) -> [String; COLUMNS.len()] {
    let [mean, mean_low, mean_high] = three(cell.mean);
    let [trimmed, trimmed_low, trimmed_high] = three(cell.trimmed_mean);
    let [p99, p99_low, p99_high] = three(cell.p99);
    [
        cell.experiment.clone(),
        cell.variant.clone(),
        params(cell),
        cell.metric.clone(),
        cell.unit.clone(),
        status(cell.status).into(),
        cell.why.clone().unwrap_or_default(),
        statistic(cell.statistic).into(),
        number(cell.estimate),
        number(cell.low),
        number(cell.high),
        number(cell.achieved),
        mean,
        mean_low,
        mean_high,
        number(cell.floor),
        trimmed,
        trimmed_low,
        trimmed_high,
        p99,
        p99_low,
        p99_high,
        number(cell.p999.map(|p999| p999.value)),
        cell.invocations.len().to_string(),
        cell.failures.len().to_string(),
        published(cell),
        cell.notes.join("; "),
    ]
}

/// Returns `ok`, `skipped` or `failed`, as in `results.json`.
pub(super) fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Skipped => "skipped",
        Status::Failed => "failed",
    }
}

/// Returns `median` or `mean`, as in `results.json`.
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

fn three(estimate: Option<Estimate>) -> [String; 3] {
    [
        number(estimate.map(|e| e.value)),
        number(estimate.map(|e| e.low)),
        number(estimate.map(|e| e.high)),
    ]
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::fixture;

    #[test]
    fn csv_round_trips_cells() {
        let results = fixture::run();
        let bytes = csv(&results).unwrap();
        let mut reader = csv::Reader::from_reader(&bytes[..]);
        assert_eq!(reader.headers().unwrap(), &COLUMNS[..]);
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
