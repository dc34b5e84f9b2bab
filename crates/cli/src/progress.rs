//! Progress of `measure` on standard error: [`RunProgress`].

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use tontine_bench::engine::Progress;
use tontine_bench::engine::invoked::InvocationResult;
use tontine_bench::engine::plan::Plan;
use tontine_bench::task::InvocationTask;

/// Display of progress: a bar on a terminal, one line per cell elsewhere.
pub(crate) struct RunProgress {
    bar: ProgressBar,
    terminal: bool,
    /// Number of remaining invocations of each task.
    left: HashMap<String, usize>,
}

impl RunProgress {
    /// Returns the progress of a run that has not begun.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::no_length();
        let style = "{bar:32} {pos}/{len} invocations, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, terminal: io::stderr().is_terminal(), left: HashMap::new() }
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

impl Progress for RunProgress {
    fn began(&mut self, plan: &Plan) {
        let each: Vec<usize> = (0..plan.tasks.len()).map(|task| plan.invocations(task)).collect();
        self.left = plan.tasks.iter().map(ToString::to_string).zip(each.iter().copied()).collect();
        self.bar.set_length(plan.in_all() as u64);
        let a_cell = match (each.iter().min(), each.iter().max()) {
            (Some(fewest), Some(most)) if fewest < most => format!("{fewest} to {most}"),
            (_, most) => most.copied().unwrap_or(0).to_string(),
        };
        self.say(&format!("{} invocations, {a_cell} per cell", plan.in_all()));
    }

    fn invoking(&mut self, task: &InvocationTask, _block: usize) {
        self.bar.set_message(task.to_string());
    }

    fn invoked(&mut self, task: &InvocationTask, outcome: &InvocationResult, left_out: usize) {
        self.bar.inc(1 + left_out as u64);
        let name = task.to_string();
        let left = self.left.entry(name.clone()).or_default();
        *left = left.saturating_sub(1 + left_out);
        let left = *left;
        match outcome {
            InvocationResult::Skipped(why) => self.say(&format!("{name}: skipped: {why}")),
            InvocationResult::Failed(why) => self.say(&format!("{name}: failed: {why}")),
            InvocationResult::Measured(_) if left == 0 && !self.terminal => {
                self.say(&format!("{name}: measured"));
            }
            InvocationResult::Measured(_) => {}
        }
    }

    fn ended(&mut self) {
        self.bar.finish_and_clear();
    }
}
