//! The tables that `measure` prints: one for each metric of each experiment.
//!
//! On a narrow terminal, columns are omitted in the order of [`Column::expendable`]; names and
//! figures are never broken. Remarks on a row are printed below its table.

use std::fmt::Write;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use tontine_bench::schema::Results;
use tontine_report::text::{TextRow, rows};

/// The style of all tables: a single line, below the header.
pub(crate) const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// One column.
struct Column {
    title: &'static str,
    text: fn(&TextRow) -> &str,
    /// `true` if the column contains figures, which are aligned to the right.
    figures: bool,
    /// Order in which columns are omitted for lack of space: the highest first, 0 never.
    expendable: u8,
}

const fn column(
    title: &'static str,
    figures: bool,
    expendable: u8,
    text: fn(&TextRow) -> &str,
) -> Column {
    Column { title, text, figures, expendable }
}

const COLUMNS: [Column; 8] = [
    column("variant", false, 0, |row| &row.name),
    column("where", false, 0, |row| &row.place),
    column("estimate", true, 0, |row| &row.estimate),
    column("95 % interval", true, 0, |row| &row.interval),
    column("floor", true, 3, |row| &row.floor),
    column("p99", true, 4, |row| &row.p99),
    column("published", true, 2, |row| &row.published),
    column("ratio", false, 1, |row| &row.ratio),
];

/// Number of terminal columns around and between the texts of two columns.
const PADDING: usize = 3;

/// Returns the tables of a run, at most as wide as the terminal.
pub(crate) fn render(results: &Results) -> String {
    let rows = rows(results);
    let mut text = String::new();
    for about in &results.experiments {
        let of_it: Vec<&TextRow> = rows.iter().filter(|row| row.experiment == about.name).collect();
        if of_it.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}: {}", about.name, about.question);
        for metric in metrics(&of_it) {
            let of_it: Vec<&TextRow> =
                of_it.iter().copied().filter(|row| row.metric == metric).collect();
            let _ = writeln!(text, "\n{}\n{}", heading(metric), table(&of_it));
            for row in of_it.iter().filter(|row| !row.doubts.is_empty()) {
                let _ = writeln!(text, "   {} {}: {}", row.name, row.place, row.doubts);
            }
        }
    }
    text
}

/// Returns the metrics of the rows, each once, in order of appearance.
fn metrics<'a>(rows: &[&'a TextRow]) -> Vec<&'a str> {
    let mut metrics: Vec<&str> = Vec::new();
    for row in rows {
        if !metrics.contains(&row.metric.as_str()) {
            metrics.push(&row.metric);
        }
    }
    metrics
}

fn heading(metric: &str) -> &str {
    if metric.is_empty() { " not measured" } else { metric }
}

fn table(rows: &[&TextRow]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    let columns = fitting(rows, table.width().map(usize::from));
    table.set_header(columns.iter().map(|column| column.title));
    for row in rows {
        table.add_row(columns.iter().map(|column| (column.text)(row)));
    }
    for (index, column) in columns.iter().enumerate() {
        if let Some(drawn) = table.column_mut(index).filter(|_| column.figures) {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns the columns that have a text in at least one row and fit into `width`, if a width is
/// given.
fn fitting(rows: &[&TextRow], width: Option<usize>) -> Vec<&'static Column> {
    let says = |column: &&Column| rows.iter().any(|row| !(column.text)(row).is_empty());
    let mut columns: Vec<&Column> = COLUMNS.iter().filter(says).collect();
    let needed = |columns: &[&Column]| -> usize {
        let width = |column: &Column| {
            let texts = rows.iter().map(|row| (column.text)(row));
            let widths = texts.chain([column.title]).map(|text| text.chars().count());
            widths.max().unwrap_or(0) + PADDING
        };
        columns.iter().map(|column| width(column)).sum()
    };
    while width.is_some_and(|width| needed(&columns) > width) {
        let dearest = columns.iter().map(|column| column.expendable).max().unwrap_or(0);
        if dearest == 0 {
            break;
        }
        columns.retain(|column| column.expendable != dearest);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> TextRow {
        TextRow {
            experiment: "round-trip".into(),
            metric: "one_way".into(),
            params: String::new(),
            place: "cross-core hot".into(),
            name: "spinlock-ttas-process".into(),
            estimate: "60.5 ns".into(),
            interval: "55.0 – 64.3 ns".into(),
            floor: "47.8 ns".into(),
            p99: "93 ns".into(),
            published: "88.200 ns [004]".into(),
            ratio: "2.22× flag (2.08× – 2.29×)".into(),
            notes: String::new(),
            doubts: String::new(),
        }
    }

    #[test]
    fn narrow_terminal_drops_columns_and_keeps_figures() {
        let row = row();
        let titles = |width| -> Vec<&str> {
            fitting(&[&row], width).iter().map(|column| column.title).collect()
        };
        assert_eq!(titles(None).len(), COLUMNS.len());
        assert_eq!(titles(Some(80)), ["variant", "where", "estimate", "95 % interval"]);
        assert!(titles(Some(110)).contains(&"ratio") && !titles(Some(110)).contains(&"p99"));
    }

    #[test]
    fn empty_column_is_left_out() {
        let row = TextRow { published: String::new(), ..row() };
        assert!(fitting(&[&row], None).iter().all(|column| column.title != "published"));
    }
}
