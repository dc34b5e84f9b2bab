//! `tontine compare`: compares two runs row by row.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use tontine_bench::compare::again::{self, SecondStageLimits};
use tontine_bench::compare::arm::Arm;
use tontine_bench::compare::junit::junit;
use tontine_bench::compare::listener::CompareListener;
use tontine_bench::compare::read::read;
use tontine_bench::compare::report::{self, ComparisonRow};
use tontine_bench::compare::screen::screen;
use tontine_bench::compare::tasks::{InvocationCost, Tasks};
use tontine_bench::compare::{Comparison, programs};
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::engine::{self, machine_facts};
use tontine_bench::executable::Executable;
use tontine_bench::task::InvocationTask;
use tontine_experiments::SUITE;

use crate::args::{Compare, Document, INVOCATION};
use crate::repetitions::duration;
use crate::{CommandFailure, FAILED, print, stopped_by, table};

/// Runs `compare`. Status 1 is reserved for a regression; every error has status 2.
pub(crate) fn compare(asked: &Compare) -> Result<ExitCode, CommandFailure> {
    let given = asked.again.iter().map(|path| given(path)).collect::<Result<Vec<_>, _>>()?;
    let (base, new) = read(&asked.base, &asked.new).map_err(CommandFailure::usage)?;
    let mut comparison = screen(&base, &new, asked.threshold);
    let stop = StopRequest::on_signals().map_err(|error| {
        CommandFailure::usage(format!("cannot install signal handlers: {error}"))
    })?;
    let programs = match &given[..] {
        _ if asked.screen => Err("as asked; corrected for the number of rows".into()),
        [old, new] => Ok([old.clone(), new.clone()]),
        _ => {
            let facts = machine_facts(&SUITE.machine());
            programs::recorded(&comparison, &facts, &new.results.machine)
        }
    };
    match programs {
        Ok(_) if comparison.flagged().is_empty() => {}
        Ok(programs) => {
            let pace = InvocationCost::of(Tasks::of_this_machine(&SUITE), &base, &new);
            settle(&mut comparison, &programs, &pace, asked, &stop);
        }
        Err(why) => comparison.leave_to_the_screen(why),
    }
    let text = match asked.format {
        Document::Text => text(&comparison),
        Document::Markdown => report::markdown(&comparison),
        Document::Junit => junit(&comparison),
        Document::Json => {
            serde_json::to_string_pretty(&comparison).map_err(CommandFailure::usage)? + "\n"
        }
    };
    print(text.as_bytes()).map_err(CommandFailure::usage)?;
    Ok(match stop.signal() {
        Some(signal) => stopped_by(signal),
        None if comparison.regressions > 0 => ExitCode::from(FAILED),
        None => ExitCode::SUCCESS,
    })
}

fn given(path: &Path) -> Result<PathBuf, CommandFailure> {
    let program = Executable::at(path).map(|program| program.path);
    program.map_err(|error| {
        CommandFailure::usage(format!(
            "--again {}: {error}; expected a `tontine` program that can be executed",
            path.display()
        ))
    })
}

fn settle(
    comparison: &mut Comparison,
    programs: &[PathBuf; 2],
    pace: &InvocationCost,
    asked: &Compare,
    stop: &StopRequest,
) {
    let [base, new] = programs.each_ref().map(|program| Arm::new(program, vec![INVOCATION.into()]));
    let limits = SecondStageLimits {
        most_pairs: asked.pairs.into(),
        order_seed: asked.order_seed.unwrap_or_else(engine::plan::fresh_seed),
    };
    (SUITE.clean_up)();
    again::measure(comparison, [&base, &new], limits, pace, stop, &mut CompareProgress::new());
    (SUITE.clean_up)();
}

/// Progress of the second stage on standard error: a bar on a terminal, otherwise one line per
/// task.
struct CompareProgress {
    bar: ProgressBar,
    terminal: bool,
}

impl CompareProgress {
    fn new() -> Self {
        let bar = ProgressBar::no_length();
        let style = "{bar:32} {pos}/{len} pairs, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, terminal: io::stderr().is_terminal() }
    }

    fn say(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            // If standard error is closed, the line is not needed.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

impl CompareListener for CompareProgress {
    fn began(&mut self, rows: usize, pairs: usize, seconds: Option<f64>) {
        self.bar.set_length(pairs as u64);
        let rows = if rows == 1 { "one row".into() } else { format!("{rows} rows") };
        let time = seconds
            .map_or_else(String::new, |seconds| format!(", about {}", duration(seconds.max(1.0))));
        self.say(&format!("{rows} flagged: at least {pairs} pairs to measure again{time}"));
    }

    fn needs(&mut self, task: &InvocationTask, more: usize) {
        self.bar.inc_length(more as u64);
        if !self.terminal {
            self.say(&format!("{task}: {more} more pairs after the first"));
        }
    }

    fn paired(&mut self, task: &InvocationTask, why: Option<&str>) {
        self.bar.inc(1);
        self.bar.set_message(task.to_string());
        if let Some(why) = why {
            self.say(&format!("{task}: {why}"));
        }
    }

    fn ended(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A column: title, text of a row, `true` if the column contains figures, and the order in which it
/// is omitted on a narrow terminal (the highest first, 0 never).
type ComparisonColumn = (&'static str, fn(&ComparisonRow) -> &str, bool, u8);

const COLUMNS: [ComparisonColumn; 9] = [
    ("variant", |row| &row.name, false, 0),
    ("where", |row| &row.place, false, 0),
    ("A", |row| &row.base, true, 3),
    ("B", |row| &row.new, true, 3),
    ("change", |row| &row.change, true, 0),
    ("interval", |row| &row.interval, true, 2),
    ("could resolve", |row| &row.smallest, true, 0),
    ("verdict", |row| &row.verdict, false, 0),
    ("by", |row| &row.by, false, 4),
];

/// Number of terminal columns around and between the texts of two columns.
const PADDING: usize = 3;

fn text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for line in report::head(comparison) {
        let _ = writeln!(text, "{line}");
    }
    let rows = report::rows(comparison);
    for (group, of_it) in report::groups(&rows) {
        let _ = writeln!(text, "\n{group}\n{}", drawn(&of_it));
        for row in of_it.iter().filter(|row| !row.notes.is_empty()) {
            let name = format!("{} {}", row.name, row.place);
            let _ = writeln!(text, "   {}: {}", name.trim_end(), row.notes);
        }
    }
    text.push('\n');
    for line in report::tail(comparison) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn drawn(rows: &[&ComparisonRow]) -> Table {
    let mut table = Table::new();
    table.load_style(table::STYLE);
    let columns = fitting(rows, table.width().map(usize::from));
    table.set_header(columns.iter().map(|(title, ..)| *title));
    for row in rows {
        table.add_row(columns.iter().map(|(_, text, ..)| text(row)));
    }
    for (index, (.., figures, _)) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(index).filter(|_| *figures) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns the columns that have a text in at least one row and fit into `width`, if a width is
/// given.
fn fitting(rows: &[&ComparisonRow], width: Option<usize>) -> Vec<&'static ComparisonColumn> {
    let says = |column: &&ComparisonColumn| rows.iter().any(|row| !column.1(row).is_empty());
    let mut columns: Vec<&ComparisonColumn> = COLUMNS.iter().filter(says).collect();
    let needed = |columns: &[&ComparisonColumn]| -> usize {
        let widest = |column: &&ComparisonColumn| {
            let texts = rows.iter().map(|row| column.1(row)).chain([column.0]);
            texts.map(|text| text.chars().count()).max().unwrap_or(0) + PADDING
        };
        columns.iter().map(widest).sum()
    };
    while width.is_some_and(|width| needed(&columns) > width) {
        let dearest = columns.iter().map(|column| column.3).max().unwrap_or(0);
        if dearest == 0 {
            break;
        }
        columns.retain(|column| column.3 != dearest);
    }
    columns
}
