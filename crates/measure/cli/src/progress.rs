//! Progress of `measure` and of a reproduction on standard error: [`RunProgress`].

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tontine_bench::engine::Progress;
use tontine_bench::engine::invoked::{InvocationFigures, InvocationResult};
use tontine_bench::engine::plan::Plan;
use tontine_bench::format::FormattedFigure;
use tontine_bench::task::InvocationTask;

/// Interval between two lines, if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Shows progress: a bar with the last figure on a terminal, elsewhere the first figure and then
/// one line a minute.
pub(crate) struct RunProgress {
    bar: ProgressBar,
    terminal: bool,
    began: Instant,
    /// Time of the last line; `None` before the first.
    last_line: Option<Instant>,
}

impl RunProgress {
    /// Returns the progress of a run that has not begun.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::no_length();
        let style = "{bar:24} {percent:>3} %  {eta:>4} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, terminal: io::stderr().is_terminal(), began: Instant::now(), last_line: None }
    }

    /// Begins a run of this many units of work.
    pub(crate) fn begin(&mut self, units: u64, line: &str) {
        self.bar.set_length(units);
        self.began = Instant::now();
        self.say(line);
    }

    /// Names the task of the next invocation. After the first invocation the last figure stays
    /// until the next one.
    pub(crate) fn task(&self, task: &InvocationTask) {
        if self.bar.position() == 0 {
            self.bar.set_message(task.to_string());
        }
    }

    /// Adds units of work that are done, and shows the first figure of the invocation that did
    /// them.
    pub(crate) fn add(&mut self, units: u64, task: &InvocationTask, outcome: &InvocationResult) {
        self.bar.inc(units);
        match outcome {
            InvocationResult::Measured(figures) => {
                let figure = figure(task, figures);
                self.bar.set_message(figure.clone());
                self.line(&figure);
            }
            // The last screen groups the reasons of skipped rows.
            InvocationResult::Skipped(_) => {}
            InvocationResult::Failed(why) => self.say(&format!("{task}: failed: {why}")),
        }
    }

    /// Prints something while the bar is hidden.
    pub(crate) fn suspended<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            // If standard error is closed, the line is not needed.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Prints a line, if there is no terminal and the last line is old enough.
    fn line(&mut self, figure: &str) {
        if self.terminal || self.last_line.is_some_and(|last| last.elapsed() < LINE_INTERVAL) {
            return;
        }
        self.last_line = Some(Instant::now());
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        self.say(&line(done, all, self.began.elapsed(), figure));
    }
}

/// Returns a line: the share that is done, the estimated time left, and the last figure.
fn line(done: u64, all: u64, elapsed: Duration, figure: &str) -> String {
    let percent = done * 100 / all.max(1);
    let left = elapsed.as_secs_f64() / done.max(1) as f64 * all.saturating_sub(done) as f64;
    // The first invocations say little about the others.
    let left = if percent == 0 { String::new() } else { format!("  about {left:.0} s left") };
    format!("{percent:3} %{left}  {figure}")
}

/// Returns the first figure of an invocation, with its task; only the task if it has no figure.
fn figure(task: &InvocationTask, figures: &InvocationFigures) -> String {
    let Some(first) = figures.figures.first() else { return task.to_string() };
    let value = first.summary.figure(first.statistic);
    format!("{task}: {}", FormattedFigure::new(&first.unit, value, None).value)
}

impl Progress for RunProgress {
    fn began(&mut self, plan: &Plan) {
        let cells = plan.tasks.len();
        let line = format!("{cells} tasks in {} fresh processes", plan.in_all());
        self.begin(plan.in_all() as u64, &line);
    }

    fn invoking(&mut self, task: &InvocationTask, _block: usize) {
        self.task(task);
    }

    fn invoked(&mut self, task: &InvocationTask, outcome: &InvocationResult, left_out: usize) {
        self.add(1 + left_out as u64, task, outcome);
    }

    fn ended(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_share_and_time_left() {
        let text = line(25, 100, Duration::from_secs(30), "round-trip/pipe: 12 µs");
        assert_eq!(text, " 25 %  about 90 s left  round-trip/pipe: 12 µs");
        assert_eq!(line(0, 0, Duration::ZERO, "x"), "  0 %  x");
    }
}
