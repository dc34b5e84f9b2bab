//! `tontine-measure compare`: compares two runs row by row.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
use tontine_command::{CommandFailure, FAILED, print, stopped_by};
use tontine_experiments::SUITE;

use crate::args::{Compare, Document, INVOCATION};
use crate::repetitions::duration;
use crate::table::{Column, column, drawn};

/// Runs `compare`. Status 1 is reserved for a regression; every error has status 2.
pub(crate) fn compare(args: &Compare) -> Result<ExitCode, CommandFailure> {
    let given = args.again.iter().map(|path| given(path)).collect::<Result<Vec<_>, _>>()?;
    let (base, new) = read(&args.base, &args.new).map_err(CommandFailure::usage)?;
    let mut comparison = screen(&base, &new, args.threshold);
    let stop = StopRequest::on_signals().map_err(|error| {
        CommandFailure::usage(format!("cannot install signal handlers: {error}"))
    })?;
    let programs = match &given[..] {
        _ if args.screen => Err("as requested; corrected for the number of rows".into()),
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
            settle(&mut comparison, &programs, &pace, args, &stop);
        }
        Err(why) => comparison.leave_to_the_screen(why),
    }
    let text = match args.format {
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
    args: &Compare,
    stop: &StopRequest,
) {
    let [base, new] = programs.each_ref().map(|program| Arm::new(program, vec![INVOCATION.into()]));
    let limits = SecondStageLimits {
        most_pairs: args.pairs.into(),
        order_seed: args.order_seed.unwrap_or_else(engine::plan::fresh_seed),
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

fn columns() -> Vec<Column<ComparisonRow>> {
    let all = report::COLUMNS.iter();
    all.map(|of| column(of.title, of.is_figure, of.leave_out, |row| (of.text)(row).to_owned()))
        .collect()
}

fn text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for line in report::head(comparison) {
        let _ = writeln!(text, "{line}");
    }
    let rows = report::rows(comparison);
    for (group, of_it) in report::groups(&rows) {
        let _ = writeln!(text, "\n{group}\n{}", drawn(&of_it, columns()));
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
