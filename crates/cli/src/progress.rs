//! What `measure` shows on standard error while it works: [`Show`].

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use tontine_measure::engine::Progress;
use tontine_measure::engine::invoked::Outcome;
use tontine_measure::experiment::Task;

/// A bar on a terminal, a line a cell elsewhere.
pub(crate) struct Show {
    bar: ProgressBar,
    terminal: bool,
    /// Invocations of each cell that are still to come.
    left: HashMap<String, usize>,
    blocks: usize,
}

impl Show {
    /// For a run of `blocks` invocations a cell.
    pub(crate) fn new(blocks: usize) -> Self {
        let bar = ProgressBar::no_length();
        let style = "{bar:32} {pos}/{len} invocations, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, terminal: io::stderr().is_terminal(), left: HashMap::new(), blocks }
    }

    fn say(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            // Whoever closed standard error does not want to know.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

impl Progress for Show {
    fn began(&mut self, invocations: usize) {
        self.bar.set_length(invocations as u64);
        self.say(&format!("{invocations} invocations, {} a cell", self.blocks));
    }

    fn invoking(&mut self, task: &Task, _block: usize) {
        self.bar.set_message(task.to_string());
    }

    fn invoked(&mut self, task: &Task, outcome: &Outcome, left_out: usize) {
        self.bar.inc(1 + left_out as u64);
        let name = task.to_string();
        let left = self.left.entry(name.clone()).or_insert(self.blocks);
        *left = left.saturating_sub(1 + left_out);
        let left = *left;
        match outcome {
            Outcome::Skipped(why) => self.say(&format!("{name}: skipped: {why}")),
            Outcome::Failed(why) => self.say(&format!("{name}: failed: {why}")),
            Outcome::Measured(_) if left == 0 && !self.terminal => {
                self.say(&format!("{name}: measured"));
            }
            Outcome::Measured(_) => {}
        }
    }

    fn ended(&mut self) {
        self.bar.finish_and_clear();
    }
}
