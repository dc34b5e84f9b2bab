//! A report as text: a table, and below it an example of each verdict with its reproducer.

use std::fmt::Write;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use super::{CrashReport, Finding, OperationReport};
use crate::mode::KillMode;
use crate::verdict::KillVerdict;

/// A table style with a line below the header and no other lines, because tables are read by row.
pub(super) const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

const COLUMNS: [&str; 9] =
    ["target", "operation", "points", "classes", "explored", "passed", "wedged", "torn", "lost"];

/// Number of text columns; the other columns hold right-aligned figures.
const WORDS: usize = 2;

pub fn render(report: &CrashReport) -> String {
    let mut text = format!("{}\n\n", legend(report.mode));
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(COLUMNS);
    let mut notes = String::new();
    let mut total = [0; COLUMNS.len() - WORDS];
    for subject in &report.subjects {
        if let Some(trouble) = &subject.trouble {
            let _ = writeln!(notes, "{}: {trouble}", subject.name);
        }
        for operation in &subject.operations {
            let figures = figures(operation);
            table.add_row(row(&subject.name, operation.operation.name(), figures));
            total.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
            note(&mut notes, &subject.name, operation);
        }
        let notable = subject.operations.iter().any(|one| one.explored > one.passed);
        if notable && !subject.caveat.is_empty() {
            let _ = writeln!(notes, "{}: {}", subject.name, subject.caveat);
        }
    }
    table.add_row(row("in total", "", total));
    for column in WORDS..COLUMNS.len() {
        if let Some(drawn) = table.column_mut(column) {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(text, "{table}");
    if !notes.is_empty() {
        let _ = write!(text, "\n{notes}");
    }
    if !report.complete {
        text.push_str("\nstopped early: the table shows what was explored until then\n");
    }
    text
}

/// Returns the meaning of the figures in this mode.
pub(super) fn legend(mode: KillMode) -> &'static str {
    match mode {
        KillMode::Fast => {
            "one kill for each class of points that other processes cannot distinguish"
        }
        KillMode::Pairs => {
            "one kill per class, then one kill of its successor per class of the successor"
        }
        KillMode::Full => "one kill at every instruction and around every system call",
    }
}

/// Returns the figures in the row of one operation.
pub(super) fn figures(one: &OperationReport) -> [usize; COLUMNS.len() - WORDS] {
    [one.points, one.classes, one.explored, one.passed, one.wedged, one.torn, one.lost]
}

fn row(subject: &str, operation: &str, figures: [usize; COLUMNS.len() - WORDS]) -> Vec<String> {
    let words = [subject.to_owned(), operation.to_owned()];
    words.into_iter().chain(figures.map(|figure| figure.to_string())).collect()
}

/// Adds the notes on one operation.
fn note(notes: &mut String, subject: &str, one: &OperationReport) {
    let name = format!("{subject} {}", one.operation.name());
    if let Some(trouble) = &one.trouble {
        let _ = writeln!(notes, "{name}: {trouble}");
    }
    if !one.stepped {
        let _ = writeln!(notes, "{name}: too long to step: killed only around its system calls");
    }
    if let Some(sampled) = sampled(one) {
        let _ = writeln!(notes, "{name}: {sampled}");
    }
    if let Some(why) = &one.diverged {
        let _ = writeln!(notes, "{name}: not explored: {} (first: {why})", one.not_explored);
    }
    for finding in one.examples() {
        let _ = writeln!(notes, "{name}: {}", sentence(finding));
        let _ = writeln!(notes, "    {}", finding.reproducer);
    }
}

/// Returns a note on the sample's size, if only a sample of the kills was requested.
pub(super) fn sampled(one: &OperationReport) -> Option<String> {
    (one.tried < one.kills).then(|| format!("a sample: {} of {} kills", one.tried, one.kills))
}

pub(super) fn sentence(finding: &Finding) -> String {
    let then = finding.then.map_or_else(String::new, |then| format!("+{then}"));
    format!(
        "{} at point {}{then}, {} ({} system calls made): {}",
        word(finding.verdict),
        finding.point,
        finding.code,
        finding.calls,
        finding.detail
    )
}

pub(super) fn word(verdict: KillVerdict) -> &'static str {
    match verdict {
        KillVerdict::Passed => "passed",
        KillVerdict::Wedged => "wedged",
        KillVerdict::Torn => "torn",
        KillVerdict::Lost => "lost",
    }
}
