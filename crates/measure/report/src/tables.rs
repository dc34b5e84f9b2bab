//! The tables of [`super::markdown`], shortened to fit into an issue: [`fitting`].
//!
//! GitHub accepts 65,536 characters in an issue or a comment. If the tables of a run are longer,
//! the longest ones lose their widest columns, and if that is not enough their rows, until all fit.
//! A note before the tables says what was left out, and which file contains it.

use std::fmt::Write;

use tontine_bench::format::escaped;

use super::text::TextRow;

/// A column: its title, its alignment, and its text in a row.
type MarkdownColumn = (&'static str, &'static str, fn(&TextRow) -> &str);

const COLUMNS: [MarkdownColumn; 10] = [
    ("variant", "---", |row| &row.name),
    ("metric", "---", |row| &row.metric),
    ("parameters", "---", |row| &row.params),
    ("estimate", "---:", |row| &row.estimate),
    ("interval", "---", |row| &row.interval),
    ("floor", "---:", |row| &row.floor),
    ("p99", "---:", |row| &row.p99),
    ("published", "---", |row| &row.published),
    ("ratio", "---", |row| &row.ratio),
    ("notes", "---", |row| &row.notes),
];

/// The part of a table that is shown, in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    Whole,
    /// No notes except doubts, no floor, no p99, no published figures.
    Figures,
    /// Only the figure and its interval.
    Estimates,
    /// No rows.
    Nothing,
}

impl Detail {
    fn less(self) -> Self {
        match self {
            Self::Whole => Self::Figures,
            Self::Figures => Self::Estimates,
            Self::Estimates | Self::Nothing => Self::Nothing,
        }
    }

    fn columns(self) -> Vec<MarkdownColumn> {
        let doubts: fn(&TextRow) -> &str = |row| &row.doubts;
        match self {
            Self::Whole => COLUMNS.to_vec(),
            Self::Figures => {
                let mut columns = COLUMNS[..5].to_vec();
                columns.extend([COLUMNS[8], ("notes", "---", doubts)]);
                columns
            }
            Self::Estimates => COLUMNS[..5].to_vec(),
            Self::Nothing => Vec::new(),
        }
    }
}

struct ExperimentTable<'a> {
    experiment: &'a str,
    rows: Vec<&'a TextRow>,
    detail: Detail,
    text: String,
}

impl ExperimentTable<'_> {
    fn render(&mut self, detail: Detail) {
        self.detail = detail;
        self.text = format!("\n## {}\n\n", escaped(self.experiment));
        let columns = detail.columns();
        if columns.is_empty() {
            let rows = self.rows.len();
            let _ = writeln!(self.text, "{rows} rows: see `results.csv` or `report.html`.");
            return;
        }
        record(&mut self.text, columns.iter().map(|(title, ..)| (*title).into()));
        record(&mut self.text, columns.iter().map(|(_, alignment, _)| (*alignment).into()));
        for row in &self.rows {
            record(&mut self.text, columns.iter().map(|(.., text)| escaped(text(row))));
        }
    }

    fn length(&self) -> usize {
        self.text.chars().count()
    }
}

/// Returns one table per experiment, together at most `most` characters if the rows allow it, with
/// a note first if anything was left out.
pub(super) fn fitting(rows: &[TextRow], most: usize) -> String {
    let mut tables: Vec<ExperimentTable> = Vec::new();
    for row in rows {
        match tables.iter_mut().find(|table| table.experiment == row.experiment) {
            Some(table) => table.rows.push(row),
            None => tables.push(ExperimentTable {
                experiment: &row.experiment,
                rows: vec![row],
                detail: Detail::Whole,
                text: String::new(),
            }),
        }
    }
    for table in &mut tables {
        table.render(Detail::Whole);
    }
    shorten(&mut tables, most);
    tables.iter().fold(note(&tables), |out, table| out + &table.text)
}

/// Reduces the longest tables until all fit: first their columns, and their rows only if that is
/// not enough. Then gives the tables, from the first one on, as much detail as still fits.
fn shorten(tables: &mut [ExperimentTable], most: usize) {
    for least in [Detail::Estimates, Detail::Nothing] {
        while length(tables) > most {
            let reducible = tables.iter_mut().filter(|table| table.detail < least);
            let Some(longest) = reducible.max_by_key(|table| table.length()) else { break };
            longest.render(longest.detail.less());
        }
    }
    for index in 0..tables.len() {
        for more in [Detail::Whole, Detail::Figures, Detail::Estimates] {
            let now = tables[index].detail;
            if more < now {
                tables[index].render(more);
                if length(tables) <= most {
                    break;
                }
                tables[index].render(now);
            }
        }
    }
}

/// Returns the number of characters of the note and all tables.
fn length(tables: &[ExperimentTable]) -> usize {
    let lengths = tables.iter().map(ExperimentTable::length);
    note(tables).chars().count() + lengths.sum::<usize>()
}

/// Returns what was left out of which tables. The note is empty if nothing was left out.
fn note(tables: &[ExperimentTable]) -> String {
    let mut out = String::new();
    for (detail, what) in [
        (Detail::Figures, "floor, p99, published figures and most notes"),
        (Detail::Estimates, "floor, p99, published figures, ratios and notes"),
        (Detail::Nothing, "all rows"),
    ] {
        let of_it = tables.iter().filter(|table| table.detail == detail);
        let names: Vec<String> = of_it.map(|table| escaped(table.experiment)).collect();
        if !names.is_empty() {
            let _ = writeln!(out, "- {what} of: {}", names.join(", "));
        }
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "\n**Shortened to fit into an issue.** `results.csv` and `report.html` in the same \
         directory have all. Left out here:\n\n{out}"
    )
}

fn record(out: &mut String, fields: impl Iterator<Item = String>) {
    let _ = writeln!(out, "| {} |", fields.collect::<Vec<_>>().join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::text::rows;

    #[test]
    fn short_tables_are_whole_and_have_no_note() {
        let rows = rows(&fixture::small());
        let text = fitting(&rows, 60_000);
        assert!(text.starts_with("\n## round-trip\n\n| variant | metric |"), "{text}");
    }

    #[test]
    fn longest_tables_lose_columns_then_rows_until_all_fit() {
        let rows = rows(&fixture::run());
        let whole = fitting(&rows, usize::MAX).chars().count();
        for most in [whole, whole - 1, whole * 3 / 4, whole / 2, whole / 4] {
            let text = fitting(&rows, most);
            let length = text.chars().count();
            assert!(length <= most, "{most}: {length}");
            assert_eq!(text.contains("**Shortened"), most < whole, "{most}");
        }
        let least = fitting(&rows, 0);
        assert!(least.contains("- all rows of: round-trip, "), "{least}");
        assert!(least.contains(" rows: see `results.csv`"), "{least}");
    }
}
