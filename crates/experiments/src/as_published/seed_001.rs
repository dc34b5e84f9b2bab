//! Source 001 as published: the four curves by which it compares two kernels, and this machine's
//! curves.
//!
//! The two kernels are modes of the virtual Unix: `master` does all process and signal work on one
//! processor, as OSF/1 did before; `parallel` is the paper's kernel. They run on a model of the
//! paper's ten processors if the experiment has one, otherwise on this machine's processors.
//!
//! In the paper's old kernel no process belongs to the master processor: a thread moves there for
//! each call. In the model, processes stay on their processors. So no process of the old kernel has
//! its place on the master's ([`PublishedCurve::old_placement`]), except in figure 2, in which a
//! single process is to show the cost of locks alone.
//!
//! The builds and sessions are traces of real ones, whose forks and exits took a real kernel's
//! time. The model's own are three hundred times shorter, so figures 3 and 4 charge what this
//! machine's kernel takes ([`RealForks`]).
//!
//! The paper's figures have no numbers. [`claims`] compares the shapes of the curves with what the
//! paper says about them. The measurements are those of the four experiments; `tontine measure`
//! gives their intervals. Each curve here comes from one run, as in the paper. [`section_9`] checks
//! the paper's statements on its locks.

mod claims;
mod section_9;
mod tasks;

use std::collections::BTreeMap;
use std::io::Write;

use tontine_bench::engine::invoked::InvocationFigures;
use tontine_bench::size::Size;
use tontine_bench::stats::summary::Summary;
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_unix_sim::{CostKind, CostModel};

use super::points::SourcePoints;
use super::verdict;
use crate::modes::COSTS;
use crate::trees::OFF_MASTER;
use claims::{CurveFindings, Figure};
pub(super) use section_9::own_point;
use tasks::{is_papers, tasks};

/// Width of the longest bar in characters.
const WIDTH: f64 = 40.0;
/// Width of a line of text.
const COLUMNS: usize = 80;
/// The levels of this machine's curves in a quick run.
const QUICK_LEVELS: [u64; 3] = [1, 2, 4];
/// Number of processors of the paper's machine.
const PAPERS_PROCESSORS: usize = 10;
/// The parameter of a cell that models the processors of the paper's machine.
const PAPERS_MACHINE: (&str, &str) = ("modelled", "10 processors");
/// The last number of pairs that does not need more processors than the paper's machine has.
const FITTING_PAIRS: u64 = 5;

/// A kernel that has a curve in a figure.
#[derive(Clone, Copy)]
struct PublishedKernel {
    name: &'static str,
    variant: &'static str,
}

/// The kernels that the paper compares.
const OLD: PublishedKernel = PublishedKernel { name: "old kernel", variant: "master" };
const NEW: PublishedKernel = PublishedKernel { name: "new kernel", variant: "parallel" };

/// One figure of the paper.
#[derive(Clone, Copy)]
struct PublishedCurve {
    /// The caption.
    title: &'static str,
    experiment: &'static str,
    /// This machine's kernel, as a variant.
    linux: &'static str,
    metric: &'static str,
    /// The parameter along the horizontal axis.
    level: &'static str,
    /// The last level on the paper's axis.
    most: u64,
    /// Label of the vertical axis.
    unit: &'static str,
    /// The placement of the old kernel's processes in the model, if it is not the new kernel's.
    old_placement: Option<&'static str>,
    /// `true` if the model's forks and exits take as long as this machine's.
    real_forks: bool,
    /// Description of the paper's curves.
    shape: &'static str,
}

const CURVES: [PublishedCurve; 4] = [
    PublishedCurve {
        title: "Figure 1: Signal Deliveries per Process per Second",
        experiment: "signal-throughput",
        linux: "linux",
        metric: "received",
        level: "pairs",
        most: 10,
        unit: "signals/s per process",
        old_placement: Some("spread-off-master"),
        real_forks: false,
        shape: "old kernel inversely proportional to the pairs; new kernel falling beyond five \
                pairs on ten processors, probably because of the switches between processes",
    },
    PublishedCurve {
        title: "Figure 2: Forks Completed per Process per Second",
        experiment: "fork-throughput",
        linux: "linux",
        metric: "forked",
        level: "processes",
        most: 7,
        unit: "forks/s per process",
        old_placement: None,
        real_forks: false,
        shape: "new kernel faster, by less than for signals: a fork depends on the virtual memory \
                system, which differed between the kernels, so that these figures tell least; a \
                single process shows that the new locks cost it nothing",
    },
    PublishedCurve {
        title: "Figure 3: Elapsed Time for Multiple Builds",
        experiment: "builds",
        linux: "linux",
        metric: "build",
        level: "builds",
        most: 8,
        unit: "s per build",
        old_placement: Some(OFF_MASTER),
        real_forks: true,
        shape: "new kernel a little faster, because most of the time is not spent in what was \
                changed; to the right it degrades more sharply, which the paper attributes to the \
                load of the one disk rather than to the kernel's locks",
    },
    PublishedCurve {
        title: "Figure 4: Elapsed Time for Multiple Pseudo-User Sessions",
        experiment: "sessions",
        linux: "pty",
        metric: "iteration",
        level: "sessions",
        most: 8,
        unit: "s per iteration",
        old_placement: Some(OFF_MASTER),
        real_forks: true,
        shape: "both curves of similar shape and less regular than the others; the new kernel \
                takes less time by a noticeable factor. (There: logins over a network; here: each \
                on its own terminal; `sessions/login` has the logins)",
    },
];

/// Runs the paper's four measurements, draws their curves and writes the verdicts on its claims. A
/// quick run measures fewer levels and says so in the output.
///
/// # Errors
/// Returns `Failed` if `out` cannot be written. If something cannot be measured, a line gives the
/// reason.
pub(super) fn reproduce(points: &mut SourcePoints<'_, '_>, out: &mut dyn Write) -> Result<()> {
    let processors = tontine_host::os::pin::allowed()?.len();
    let reduced = if points.quick() { " Reduced for a quick run." } else { "" };
    tell(
        out,
        &format!(
            "Linux on {processors} processors; published: two OSF/1 kernels on an Encore Multimax, \
             ten NS32332 of about 1.5 MIPS, 224 MB.{reduced}"
        ),
    )?;
    let [signals, forks, builds, sessions] = &CURVES;
    let signals = draw(signals, None, processors, points, out)?;
    let unswitched = [FITTING_PAIRS, signals.most].map(|level| switchless(level, points));
    let forks = draw(forks, None, processors, points, out)?;
    let real = RealForks::of_this_machine(points);
    let builds = draw(builds, real.as_ref().ok(), processors, points, out)?;
    let sessions = draw(sessions, real.as_ref().ok(), processors, points, out)?;
    if let Err(trouble) = &real {
        tell(out, &format!("\nThis machine's forks could not be timed: {trouble}"))?;
    }
    let locks = section_9::tell_all(processors, points, out)?;
    tell(
        out,
        "\nOne run per point, as in the paper; the next run differs. For intervals: tontine \
         measure signal-throughput fork-throughput builds sessions. More processes than processors \
         is another regime, marked *. The two kernels run in one process, where a system call is a \
         function call and a fork copies no address space: compare their figures with each other \
         and not with Linux's.",
    )?;
    let findings = CurveFindings {
        figures: [signals, forks, builds, sessions],
        unswitched,
        real: real.ok(),
        locks,
    };
    verdict::print(out, &claims::verdicts(&findings))
}

/// Returns the seconds that a point takes on two processors of a virtual machine.
pub(super) fn seconds(task: &InvocationTask) -> f64 {
    let number = |name: &str| {
        let number = task.params.get(name).and_then(|words| words.split(' ').next()?.parse().ok());
        number.unwrap_or(0.0)
    };
    let processors = number(PAPERS_MACHINE.0);
    let level = ["pairs", "processes", "builds", "sessions", "beside"].map(number).iter().sum();
    match (task.experiment.as_str(), level, task.size) {
        ("signal-throughput" | "fork-throughput", ..) if processors > 0.0 => 0.008 * processors,
        ("signal-throughput", level, _) => 0.4 * level,
        ("fork-throughput", level, _) => 0.15 * level,
        ("spawn", ..) => 0.5,
        // The paper's load.
        (_, 0.0, _) if processors > 0.0 => 0.2,
        (_, level, _) if processors > 0.0 => 0.03 + 0.012 * level,
        ("builds", level, _) => 1.0 + level,
        ("sessions", level, _) => 1.8 + 0.3 * level,
        (_, _, Size::Quick) => 0.5,
        _ => 5.0,
    }
}

/// The time that this machine's kernel takes for a fork, and for an exit with its wait, in
/// nanoseconds.
#[derive(Debug, Clone, Copy)]
struct RealForks {
    fork: f64,
    end: f64,
}

impl RealForks {
    /// The part of an exit and its wait that the exit takes, as in
    /// [`tontine_unix_sim::CostModel::measure`].
    const EXIT: f64 = 0.6;

    /// Measures a fork, and a fork with its exit and wait.
    ///
    /// # Errors
    /// Returns an error if one of them could not be measured.
    fn of_this_machine(points: &mut SourcePoints<'_, '_>) -> Result<Self> {
        let mut median = |experiment: &str, variant: &str, param: [&str; 2], metric: &str| {
            let task = InvocationTask {
                experiment: experiment.into(),
                variant: variant.into(),
                params: Params::from([param.map(str::to_owned).into()]),
                size: Size::Full,
            };
            let figures = points.cell(&task)?;
            // Other programs lengthen some forks.
            Ok::<_, MeasureError>(summary(&figures, metric)?.median)
        };
        let rate = median("fork-throughput", "linux", ["processes", "1"], "forked");
        let whole = median("spawn", "fork", ["placement", "same-core"], "spawn");
        let fork = 1e9 / rate?;
        Ok(Self { fork, end: (whole? - fork).max(0.0) })
    }

    /// Returns the steps of a model with their costs.
    fn costs(self) -> String {
        let steps = [
            (CostKind::Fork, self.fork),
            (CostKind::Exit, Self::EXIT * self.end),
            (CostKind::Reap, (1.0 - Self::EXIT) * self.end),
        ];
        steps.map(|(step, ns)| format!("{}={ns:.0}", step.name())).join(" ")
    }

    /// Returns the time of a fork, an exit and a wait in µs, here and in the model.
    fn micros(self) -> [f64; 2] {
        let model = CostModel::published();
        let own = [CostKind::Fork, CostKind::Exit, CostKind::Reap].map(|step| model.ns(step));
        [(self.fork + self.end) / 1e3, own.iter().sum::<f64>() / 1e3]
    }
}

/// A kernel's figures by level, and its notes.
#[derive(Default)]
struct CurvePoints {
    values: BTreeMap<u64, Result<f64>>,
    notes: Vec<String>,
}

impl CurvePoints {
    /// Measures each task. If there are no tasks, the result contains the reason.
    fn measure(
        curve: &PublishedCurve,
        variant: &str,
        tasks: BTreeMap<u64, InvocationTask>,
        points: &mut SourcePoints<'_, '_>,
    ) -> Self {
        let mut measured = Self::default();
        if tasks.is_empty() {
            let what = format!("{} has no such levels of `{variant}` here", curve.experiment);
            measured.values.insert(0, Err(MeasureError::skip(what)));
        }
        for (level, task) in tasks {
            let value = points.cell(&task).and_then(|figures| {
                let value = mean(&figures, curve.metric);
                measured.notes = figures.notes;
                value
            });
            measured.values.insert(level, value);
        }
        measured
    }

    /// Returns the levels that have a figure.
    fn curve(&self) -> BTreeMap<u64, f64> {
        let there = self.values.iter();
        there.filter_map(|(level, value)| Some((*level, *value.as_ref().ok()?))).collect()
    }

    fn largest(&self) -> f64 {
        self.curve().into_values().fold(0.0, f64::max)
    }
}

fn draw(
    curve: &PublishedCurve,
    real: Option<&RealForks>,
    processors: usize,
    points: &mut SourcePoints<'_, '_>,
    out: &mut dyn Write,
) -> Result<Figure> {
    say(out, format_args!("\n{}", curve.title))?;
    let kernels = [OLD, NEW].map(|kernel| (kernel, tasks(curve, kernel.variant)));
    let modelled = kernels.iter().all(|(_, tasks)| tasks.values().any(is_papers));
    let (place, seats) = if modelled {
        (format!("modelled with {}", PAPERS_MACHINE.1), PAPERS_PROCESSORS)
    } else {
        (format!("virtual Unix on {processors} processors"), processors)
    };
    // The model's own forks and exits are modelled too, for comparison.
    let own = (curve.real_forks && modelled).then(|| {
        kernels.clone().map(|(kernel, tasks)| {
            CurvePoints::measure(curve, kernel.variant, tasks, points).curve()
        })
    });
    let real = real.filter(|_| own.is_some());
    let [old, new] = kernels.map(|(kernel, mut tasks)| {
        if let Some(real) = real {
            for task in tasks.values_mut() {
                task.params.insert(COSTS.to_owned(), real.costs());
            }
        }
        (kernel, CurvePoints::measure(curve, kernel.variant, tasks, points))
    });
    let largest = old.1.largest().max(new.1.largest());
    for (PublishedKernel { name, variant }, points) in [&old, &new] {
        say(out, format_args!("\n{name} (`{variant}`, {place})"))?;
        bars(curve, points, largest, seats, out)?;
    }
    for note in &new.1.notes {
        tell(out, &format!("({note})"))?;
    }
    if curve.old_placement.is_some() && modelled {
        tell(out, "(no process of the old kernel has its place on the master processor)")?;
    }
    let ratios = ratios(&old.1.curve(), &new.1.curve());
    if let (Some(real), Some([old, new])) = (real, &own) {
        let [here, model] = real.micros();
        tell(
            out,
            &format!(
                "(a fork, an exit and a wait take {here:.0} µs, as on this machine's Linux; the \
                 traced ones computed for that much less)\n\nnew kernel / old kernel, by level: \
                 {ratios}\nif the three take {model:.2} µs, as in the model: {}",
                self::ratios(old, new)
            ),
        )?;
    } else if !ratios.is_empty() {
        tell(out, &format!("\nnew kernel / old kernel, by level: {ratios}"))?;
    }
    let mut here = tasks(curve, curve.linux);
    here.retain(|level, _| !points.quick() || QUICK_LEVELS.contains(level));
    let here = CurvePoints::measure(curve, curve.linux, here, points);
    say(out, format_args!("\nLinux, {processors} processors"))?;
    bars(curve, &here, here.largest(), processors, out)?;
    tell(out, &format!("\nThe paper: {}.", curve.shape))?;
    let [old, new, linux] = [old.1, new.1, here].map(|points| points.curve());
    Ok(Figure { most: curve.most, old, new, linux, own })
}

/// Models the new kernel's figure 1 at a level with switches that take no time.
fn switchless(level: u64, points: &mut SourcePoints<'_, '_>) -> Option<f64> {
    let mut task = tasks(&CURVES[0], NEW.variant).remove(&level)?;
    task.params.insert(COSTS.to_owned(), format!("{}=0", CostKind::Switch.name()));
    points.cell(&task).and_then(|figures| mean(&figures, CURVES[0].metric)).ok()
}

/// Writes a line per level, with a bar in proportion to the largest value.
fn bars(
    curve: &PublishedCurve,
    points: &CurvePoints,
    largest: f64,
    processors: usize,
    out: &mut dyn Write,
) -> Result<()> {
    if points.values.values().any(Result::is_ok) {
        say(out, format_args!("{:>9} {:>12}", curve.level, curve.unit))?;
    }
    for (level, value) in &points.values {
        match value {
            Ok(value) => {
                let bar = "#".repeat((value / largest * WIDTH).ceil() as usize);
                let crowded = if processes(curve, *level) > processors { "*" } else { " " };
                say(out, format_args!("{level:>8}{crowded} {:>12} {bar}", figure(*value)))?;
            }
            Err(trouble) if *level == 0 => say(out, format_args!("{trouble}"))?,
            Err(trouble) => say(out, format_args!("{level:>8}  {trouble}"))?,
        }
    }
    Ok(())
}

/// Returns the new kernel's figures as multiples of the old one's, for the levels at which both
/// kernels have a figure.
fn ratios(old: &BTreeMap<u64, f64>, new: &BTreeMap<u64, f64>) -> String {
    let both = old
        .iter()
        .filter_map(|(level, old)| Some(format!("{level}: {}", figure(new.get(level)? / old))));
    both.collect::<Vec<_>>().join("  ")
}

/// Formats a figure: one run supports no more than three or four digits.
fn figure(value: f64) -> String {
    if value < 100.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}

/// Returns the number of processes that need a processor at the same time.
fn processes(curve: &PublishedCurve, level: u64) -> usize {
    let each = if curve.level == "pairs" { 2 } else { 1 };
    level as usize * each
}

/// Returns the mean of a metric over the processes of one run.
fn mean(figures: &InvocationFigures, metric: &str) -> Result<f64> {
    summary(figures, metric).map(|summary| summary.mean)
}

fn summary<'a>(figures: &'a InvocationFigures, metric: &str) -> Result<&'a Summary> {
    let found = figures.figures.iter().find(|figure| figure.metric == metric);
    let lack = || MeasureError::fail(format!("the experiment yielded no series {metric}"));
    Ok(&found.ok_or_else(lack)?.summary)
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(out, "{line}").during("writing the curves")
}

/// Writes text, wrapped.
fn tell(out: &mut dyn Write, text: &str) -> Result<()> {
    say(out, format_args!("{}", textwrap::fill(text, COLUMNS)))
}

#[cfg(test)]
mod tests;
