//! The tables that `measure` prints for named experiments: [`render`].
//!
//! Each metric of an experiment has a table. Parameters that all rows share are in its title; each
//! other parameter has a column. An experiment has at most [`MOST_LINES`] lines, and the files of
//! the run have the rest. On a narrow terminal, columns are left out in the order of
//! [`Column::expendable`]; names and figures are never broken. Remarks are footnotes.

use std::fmt::Write;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use tontine_bench::format;
use tontine_bench::schema::Results;
use tontine_bench::task::Params;
use tontine_report::text::{TextRow, few_for_shape, rows};

/// The style of all tables: one line, below the header.
pub(crate) const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Maximum number of lines of an experiment.
const MOST_LINES: usize = 40;

/// Number of lines of a table besides its rows: an empty line, the title, the header and its rule.
const FRAME: usize = 4;

/// Minimum number of rows of a table.
const FEWEST_ROWS: usize = 3;

/// Maximum number of footnotes of a table.
const MOST_NOTES: usize = 3;

/// A column of a table with rows of this type.
pub(crate) struct Column<R> {
    title: String,
    text: Box<dyn Fn(&R) -> String>,
    /// `true` if the column holds figures, which are aligned to the right.
    figures: bool,
    /// Order in which columns are left out for lack of space: the highest first; 0 never.
    expendable: u8,
}

pub(crate) fn column<R>(
    title: &str,
    figures: bool,
    expendable: u8,
    text: impl Fn(&R) -> String + 'static,
) -> Column<R> {
    Column { title: title.into(), text: Box::new(text), figures, expendable }
}

/// Returns the columns of a table, with one for each of `varying` parameters.
fn columns(varying: &[String], notes: &[String]) -> Vec<Column<TextRow>> {
    let mut all = vec![column("variant", false, 0, |row: &TextRow| row.name.clone())];
    for title in varying {
        let name = title.clone();
        all.push(column(title, false, 0, move |row: &TextRow| {
            row.parameters.get(&name).cloned().unwrap_or_default()
        }));
    }
    let notes = notes.to_vec();
    all.extend([
        column("estimate", true, 0, |row: &TextRow| row.estimate.clone()),
        column("95 % interval", true, 0, |row: &TextRow| row.interval.clone()),
        column("floor", true, 3, |row: &TextRow| row.floor.clone()),
        column("p99", true, 4, |row: &TextRow| row.p99.clone()),
        column("published", true, 2, |row: &TextRow| row.published.clone()),
        column("ratio", false, 1, |row: &TextRow| row.ratio.clone()),
        column("note", false, 0, move |row: &TextRow| {
            let number = notes.iter().position(|note| *note == row.doubts);
            number.map_or_else(String::new, |number| format!("[{}]", number + 1))
        }),
    ]);
    all
}

/// Columns of the terminal around and between the texts of two columns.
const PADDING: usize = 3;

/// Returns the tables of a run, at most as wide as the terminal.
pub(crate) fn render(results: &Results) -> String {
    let measured = |row: &TextRow| !row.metric.is_empty();
    let rows: Vec<TextRow> = rows(results).into_iter().filter(measured).collect();
    let mut text = String::new();
    for about in &results.experiments {
        let of_it: Vec<&TextRow> = rows.iter().filter(|row| row.experiment == about.name).collect();
        if of_it.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}: {}", about.name, about.question);
        let cells = results.cells.iter().filter(|cell| cell.experiment == about.name);
        let few = few_for_shape(cells);
        if let Some(line) = &few {
            let _ = writeln!(text, "{line}");
        }
        let metrics = metrics(&of_it);
        // The first metric is the main one, and gets the lines that the others leave.
        let others = (metrics.len() - 1) * (FRAME + FEWEST_ROWS + 1);
        let above = 1 + usize::from(few.is_some());
        let first = (MOST_LINES - above).saturating_sub(others + FRAME + MOST_NOTES + 2);
        let mut tables = String::new();
        for (at, metric) in metrics.into_iter().enumerate() {
            let most = if at == 0 { first.max(FEWEST_ROWS) } else { FEWEST_ROWS };
            let of_it: Vec<&TextRow> =
                of_it.iter().copied().filter(|row| row.metric == metric).collect();
            tables.push_str(&table(metric, &of_it, most));
        }
        text.push_str(&first_lines(&tables, MOST_LINES - above));
    }
    text
}

/// Returns the first `most` lines, and says where the rest is if there is one.
fn first_lines(text: &str, most: usize) -> String {
    if text.lines().count() <= most {
        return text.into();
    }
    let kept: Vec<&str> = text.lines().take(most - 1).collect();
    format!("{}\n… results.csv has the other rows\n", kept.join("\n"))
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

/// Returns one table with its title, at most `most` of its rows, and its footnotes.
fn table(metric: &str, rows: &[&TextRow], most: usize) -> String {
    let (shared, varying) = parameters(rows);
    let shown = &rows[..rows.len().min(most)];
    let notes = footnotes(shown);
    let mut text = format!("\n{metric}");
    if !shared.is_empty() {
        let _ = write!(text, " ({})", format::params(&shared));
    }
    let _ = writeln!(text, "\n{}", drawn(shown, columns(&varying, &notes)));
    for (number, note) in (1..).zip(notes.iter().take(MOST_NOTES)) {
        let _ = writeln!(text, "  [{number}] {note}");
    }
    if notes.len() > MOST_NOTES {
        let _ = writeln!(text, "  … results.csv has the other notes");
    }
    if rows.len() > shown.len() {
        let more = rows.len() - shown.len();
        let rows = if more == 1 { "row" } else { "rows" };
        let _ = writeln!(text, "  … {more} more {rows} in results.csv");
    }
    text
}

/// Returns the parameters that all rows have in common, and the names of the others.
fn parameters(rows: &[&TextRow]) -> (Params, Vec<String>) {
    let (mut shared, mut varying) = (Params::new(), Vec::new());
    for (name, value) in rows.iter().flat_map(|row| &row.parameters) {
        if rows.iter().all(|row| row.parameters.get(name) == Some(value)) {
            shared.insert(name.clone(), value.clone());
        } else if !varying.contains(name) {
            varying.push(name.clone());
        }
    }
    (shared, varying)
}

/// Returns the remarks on the rows, each once.
fn footnotes(rows: &[&TextRow]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| !row.doubts.is_empty()) {
        if !notes.contains(&row.doubts) {
            notes.push(row.doubts.clone());
        }
    }
    notes
}

/// Draws the columns that have a text in some row and fit onto the terminal.
pub(crate) fn drawn<R>(rows: &[&R], columns: Vec<Column<R>>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    let columns = fitting(rows, columns, table.width().map(usize::from));
    table.set_header(columns.iter().map(|column| &column.title));
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

/// Returns the columns that have a text in some row and fit into `width`, if there is a width.
fn fitting<R>(rows: &[&R], mut columns: Vec<Column<R>>, width: Option<usize>) -> Vec<Column<R>> {
    columns.retain(|column| rows.iter().any(|row| !(column.text)(row).is_empty()));
    let needed = |columns: &[Column<R>]| -> usize {
        let width = |column: &Column<R>| {
            let texts = rows.iter().map(|row| (column.text)(row).chars().count());
            texts.chain([column.title.chars().count()]).max().unwrap_or(0) + PADDING
        };
        columns.iter().map(width).sum()
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
    use crate::fixture;

    fn row(name: &str, placement: &str) -> TextRow {
        let parameters = [("placement", placement), ("pacing", "hot")];
        TextRow {
            experiment: "round-trip".into(),
            metric: "one_way".into(),
            params: String::new(),
            parameters: parameters.map(|(name, value)| (name.into(), value.into())).into(),
            name: name.into(),
            estimate: "60.5 ns".into(),
            interval: "55.0 – 64.3 ns".into(),
            floor: "47.8 ns".into(),
            p99: "93 ns".into(),
            published: "88.200 ns [004]".into(),
            ratio: "2.22× flag-one-line (2.08× – 2.29×)".into(),
            notes: String::new(),
            doubts: String::new(),
        }
    }

    #[test]
    fn tables_mark_modelled_figures_and_few_invocations() {
        let mut results = fixture::run();
        let before = render(&results);
        assert!(!before.contains("model ") && !before.contains("too few to judge"), "{before}");
        for cell in results.cells.iter_mut().filter(|cell| cell.experiment == "builds") {
            cell.params.insert("modelled".into(), "10 processors".into());
            cell.invocations.truncate(6);
        }
        let after = render(&results);
        let builds = after.split("\nbuilds: ").nth(1).expect("its tables");
        let builds: Vec<&str> = builds.lines().take(5).collect();
        assert!(builds[1].starts_with("6 invocations each: too few to judge"), "{builds:?}");
        let modelled = after.matches("model ").count();
        let rows = results.cells.iter().filter(|cell| cell.params.contains_key("modelled"));
        assert_eq!(modelled, rows.count(), "{after}");
    }

    #[test]
    fn narrow_terminal_drops_columns_and_keeps_figures() {
        let row = row("spinlock-ttas-process", "cross-core");
        let titles = |width| -> Vec<String> {
            let columns = columns(&["placement".into()], &[]);
            fitting(&[&row], columns, width).into_iter().map(|column| column.title).collect()
        };
        assert_eq!(titles(None).len(), 8);
        assert_eq!(titles(Some(80)), ["variant", "placement", "estimate", "95 % interval"]);
        assert!(titles(Some(120)).contains(&"ratio".into()));
        assert!(!titles(Some(120)).contains(&"p99".into()));
    }

    #[test]
    fn empty_column_is_left_out() {
        let row = TextRow { published: String::new(), ..row("flag-one-line", "cross-core") };
        let left = fitting(&[&row], columns(&[], &[]), None);
        assert!(left.iter().all(|column| column.title != "published"));
    }

    #[test]
    fn shared_parameter_is_in_title_and_varying_one_in_column() {
        let (one, other) = (row("flag-one-line", "cross-core"), row("flag-one-line", "same-core"));
        let text = table("one_way", &[&one, &other], 10);
        let mut lines = text.lines().skip(1);
        assert_eq!(lines.next(), Some("one_way (pacing hot)"), "{text}");
        assert!(lines.next().is_some_and(|header| header.contains("placement")), "{text}");
    }

    #[test]
    fn repeated_remark_is_one_footnote() {
        let doubtful =
            TextRow { doubts: "unstable: drift".into(), ..row("flag-one-line", "cross-core") };
        let other = TextRow { name: "pipe".into(), ..doubtful.clone() };
        let text = table("one_way", &[&doubtful, &other], 10);
        assert_eq!(text.matches("unstable: drift").count(), 1, "{text}");
        assert_eq!(text.matches("[1]").count(), 3, "two rows and the note: {text}");
    }

    #[test]
    fn long_table_names_file_with_rest() {
        let row = row("flag-one-line", "cross-core");
        let text = table("one_way", &[&row; 30], 10);
        assert!(text.contains("20 more rows in results.csv"), "{text}");
    }
}
