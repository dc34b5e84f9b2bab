//! Measurement of the user's own commands, one or a pair of them: [`measure`].
//!
//! Each start is a fresh process ([`start`]). The starts of a pair follow directly after one
//! another, in random order, so that a disturbance that lasts longer than a pair affects both. The
//! first start of each command is not counted, because it reads files that later starts find in
//! memory. [`OwnRun::summary`] computes the intervals with the formulas of [`crate::stats`].
//!
//! The module does not parse the command line and prints nothing.

pub mod start;
mod summary;

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::engine::stop::StopRequest;
use start::{OwnCommand, StartFailure, Started};

pub use summary::{CommandFigure, OwnSummary, PairedFigure};

/// A plan: the commands, and the number of pairs.
#[derive(Debug, Clone)]
pub struct OwnPlan {
    /// A command, or two that are compared.
    pub commands: Vec<OwnCommand>,
    /// Number of pairs, or of starts if there is one command.
    pub pairs: usize,
    pub order_seed: u64,
    /// The descriptor by which the commands announce that they are ready. The measured time then
    /// ends with the announcement.
    pub ready: Option<i32>,
    /// Timeout of the announcement.
    pub ready_timeout: Duration,
}

/// The quantity that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The time from before the start until the process has ended.
    WallTime,
    /// The time from before the start until the process announced that it is ready.
    UntilReady,
    /// The figure that the command printed.
    OwnFigure,
}

impl Basis {
    pub fn name(self) -> &'static str {
        match self {
            Self::WallTime => "wall-time",
            Self::UntilReady => "until-ready",
            Self::OwnFigure => "own-figure",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnRunEnd {
    Complete,
    Stopped,
    Failed {
        why: String,
        /// `true` if the command could not be started at all.
        unstartable: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct OwnRun {
    pub basis: Basis,
    /// Unit of the figures: `ns` for times, otherwise the unit that the commands printed.
    pub unit: String,
    /// The figures of each command, in the order of the pairs. All commands have equally many.
    pub figures: Vec<Vec<f64>>,
    pub end: OwnRunEnd,
}

/// Measures the commands of `plan` until all pairs are made, `stop` is requested or a command
/// fails. Calls `paired` after each pair with the number of pairs so far.
pub fn measure(plan: &OwnPlan, stop: &StopRequest, mut paired: impl FnMut(usize)) -> OwnRun {
    let figures = vec![Vec::new(); plan.commands.len()];
    let mut run =
        OwnRun { basis: Basis::WallTime, unit: "ns".into(), figures, end: OwnRunEnd::Complete };
    if let Err(end) = collect(plan, stop, &mut run, &mut paired) {
        run.end = end;
    }
    run
}

fn collect(
    plan: &OwnPlan,
    stop: &StopRequest,
    run: &mut OwnRun,
    paired: &mut impl FnMut(usize),
) -> Result<(), OwnRunEnd> {
    let once = |command: usize| {
        let own = &plan.commands[command];
        own.start(plan.ready, plan.ready_timeout, stop).map_err(|failure| match failure {
            StartFailure::Stopped => OwnRunEnd::Stopped,
            StartFailure::Unstartable(why) => {
                OwnRunEnd::Failed { why: format!("{own}: {why}"), unstartable: true }
            }
            StartFailure::Failed(why) => {
                OwnRunEnd::Failed { why: format!("{own}: {why}"), unstartable: false }
            }
        })
    };
    // These starts are not counted, but show what the commands measure.
    for command in 0..plan.commands.len() {
        let started = once(command)?;
        let (basis, unit) = started.kind(plan.ready.is_some());
        if command == 0 {
            (run.basis, run.unit) = (basis, unit.to_owned());
        }
        started.figure(run, &plan.commands[command])?;
    }
    let mut random = ChaCha8Rng::seed_from_u64(plan.order_seed);
    for pair in 1..=plan.pairs {
        let mut order: Vec<usize> = (0..plan.commands.len()).collect();
        if random.random() {
            order.reverse();
        }
        let mut figures = vec![0.0; order.len()];
        for command in order {
            figures[command] = once(command)?.figure(run, &plan.commands[command])?;
        }
        for (all, figure) in run.figures.iter_mut().zip(figures) {
            all.push(figure);
        }
        paired(pair);
    }
    Ok(())
}

impl Started {
    fn kind(&self, awaits_ready: bool) -> (Basis, &str) {
        match &self.printed {
            _ if awaits_ready => (Basis::UntilReady, "ns"),
            Some((_, unit)) => (Basis::OwnFigure, unit),
            None => (Basis::WallTime, "ns"),
        }
    }

    /// Returns the figure of this start, or a failure if it is of another kind than the first one.
    fn figure(&self, run: &OwnRun, command: &OwnCommand) -> Result<f64, OwnRunEnd> {
        let (basis, unit) = self.kind(run.basis == Basis::UntilReady);
        if (basis, unit) != (run.basis, run.unit.as_str()) {
            let what = |basis, unit: &str| match basis {
                Basis::OwnFigure => format!("a figure in {unit}"),
                _ => "no figure".to_owned(),
            };
            let (printed, expected) = (what(basis, unit), what(run.basis, &run.unit));
            let why = format!(
                "{command}: printed {printed} (`tontine: NUMBER UNIT`), the first start \
                 {expected}; all starts must print the same kind"
            );
            return Err(OwnRunEnd::Failed { why, unstartable: false });
        }
        Ok(match (&self.printed, basis) {
            (Some((figure, _)), Basis::OwnFigure) => *figure,
            _ => self.time.as_nanos() as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> OwnCommand {
        OwnCommand { words: ["sh", "-c", script].map(Into::into).to_vec() }
    }

    fn plan(scripts: &[&str], pairs: usize) -> OwnPlan {
        OwnPlan {
            commands: scripts.iter().map(|script| shell(script)).collect(),
            pairs,
            order_seed: 7,
            ready: None,
            ready_timeout: Duration::from_secs(60),
        }
    }

    fn run(plan: &OwnPlan) -> OwnRun {
        measure(plan, &StopRequest::never().unwrap(), |_| {})
    }

    fn failure(run: OwnRun) -> String {
        match run.end {
            OwnRunEnd::Failed { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn figures_of_different_units_are_refused() {
        let why = failure(run(&plan(&["echo 'tontine: 1 ms'", "echo 'tontine: 1 MB/s'"], 3)));
        assert!(why.contains("a figure in MB/s") && why.contains("a figure in ns"), "{why}");
        let why = failure(run(&plan(&["echo 'tontine: 1 ms'", "true"], 3)));
        assert!(why.contains("printed no figure"), "{why}");
        let why = failure(run(&plan(&["echo 'tontine: fast'"], 3)));
        assert!(why.contains("`tontine: fast`") && why.contains("NUMBER UNIT"), "{why}");
    }

    #[test]
    fn failure_keeps_pairs_measured_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let script = format!("echo >> {0}; test $(wc -l < {0}) -lt 4", count.display());
        let run = run(&plan(&["true", &script], 10));
        assert_eq!(run.figures.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        assert!(failure(run).contains("exit status: 1"));
    }

    #[test]
    fn measured_time_ends_when_the_command_is_ready() {
        let mut plan = plan(&["sleep 0.05; echo >&7; sleep 99"], 2);
        plan.ready = Some(7);
        let run = run(&plan);
        assert_eq!((run.basis, run.end), (Basis::UntilReady, OwnRunEnd::Complete));
        for figure in &run.figures[0] {
            assert!((5e7..9e10).contains(figure), "{figure}");
        }
    }

    #[test]
    fn command_that_never_is_ready_fails() {
        let mut plan = plan(&["echo ready too soon >&2"], 2);
        plan.ready = Some(3);
        let why = failure(run(&plan));
        assert!(why.contains("ended without writing to the descriptor of --ready"), "{why}");
        assert!(why.contains("ready too soon"), "{why}");
        plan.commands = vec![shell("exec 3>&-; sleep 9")];
        plan.ready_timeout = Duration::from_millis(50);
        let why = failure(run(&plan));
        assert!(why.contains("wrote nothing to the descriptor of --ready within"), "{why}");
    }

    /// Regression: the error pipe of the standard library may have the number of the descriptor.
    #[test]
    fn missing_program_is_reported_with_any_descriptor() {
        for ready in [None].into_iter().chain((3..24).map(Some)) {
            let mut plan = plan(&[], 2);
            plan.commands = vec![OwnCommand { words: vec!["/nowhere/at/all".into()] }];
            plan.ready = ready;
            match run(&plan).end {
                OwnRunEnd::Failed { why, unstartable: true } => {
                    assert!(why.contains("/nowhere/at/all") && why.contains("No such"), "{why}");
                }
                other => panic!("{ready:?}: {other:?}"),
            }
        }
    }
}
