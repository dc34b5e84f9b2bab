//! Source 001 as published: the four curves by which it compares two kernels, and this machine's
//! curves.
//!
//! The two kernels are modes of the virtual Unix: `master` does all process and signal work on one
//! processor, as OSF/1 did before; `parallel` is the paper's kernel. They run on a model of the
//! paper's ten processors. In the paper's old kernel a thread moves to the master processor for
//! each call and no process belongs there; in the model, processes stay on their processors. So no
//! process of the old kernel has its place on the master's ([`PublishedCurve::old_placement`]),
//! except in figure 2, in which a single process is to show the cost of locks alone.
//!
//! The builds and sessions are traces of real ones, whose forks and exits took a real kernel's
//! time. The model's own are three hundred times shorter, so figures 3 and 4 charge what this
//! machine's kernel takes ([`RealForks`]). Each curve comes from one run, as in the paper.

mod claims;
mod section_9;

use std::collections::BTreeMap;

use tontine_unix_sim::{CostKind, CostModel};

use super::claims::print;
use super::points::{Reproduction, metric_of};
use crate::modes::COSTS;
use crate::prelude::*;
use crate::trees::OFF_MASTER;
use claims::{CLAIMS, CurveFindings, Figure};
pub(super) use section_9::own_point;

const WIDTH: f64 = 40.0;
/// The levels of this machine's curves in a quick run.
const QUICK_LEVELS: [u64; 3] = [1, 2, 4];
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

const OLD: PublishedKernel = PublishedKernel { name: "old kernel", variant: "master" };
const NEW: PublishedKernel = PublishedKernel { name: "new kernel", variant: "parallel" };

#[derive(Clone, Copy)]
struct PublishedCurve {
    title: &'static str,
    experiment: &'static str,
    /// This machine's kernel, as a variant.
    linux: &'static str,
    metric: &'static str,
    /// The parameter along the horizontal axis.
    level: &'static str,
    /// The last level on the paper's axis.
    last_level: u64,
    unit: &'static str,
    /// The placement of the new kernel's processes in the model.
    placement: Option<&'static str>,
    /// The placement of the old kernel's.
    old_placement: Option<&'static str>,
    /// `true` if the model's forks and exits take as long as this machine's.
    real_forks: bool,
    shape: &'static str,
}

const CURVES: [PublishedCurve; 4] = [
    PublishedCurve {
        title: "Figure 1: Signal Deliveries per Process per Second",
        experiment: "signal-throughput",
        linux: "linux",
        metric: "received",
        level: "pairs",
        last_level: 10,
        unit: "signals/s per process",
        placement: Some("spread"),
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
        last_level: 7,
        unit: "forks/s per process",
        placement: None,
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
        last_level: 8,
        unit: "s per build",
        placement: None,
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
        last_level: 8,
        unit: "s per iteration",
        placement: None,
        old_placement: Some(OFF_MASTER),
        real_forks: true,
        shape: "both curves of similar shape and less regular than the others; the new kernel \
                takes less time by a noticeable factor. (There: logins over a network; here: each \
                on its own terminal; `sessions/login` has the logins)",
    },
];

/// Runs the paper's four measurements, draws their curves and writes the verdicts on its claims. A
/// quick run measures fewer levels and says so in the output.
pub(super) fn reproduce(points: &mut Reproduction<'_, '_>) {
    let processors = match tontine_bench::os::pin::allowed() {
        Ok(allowed) => allowed.len(),
        Err(error) => return points.say(format_args!("{error}")),
    };
    let reduced = if points.quick { " Reduced for a quick run." } else { "" };
    points.wrap(&format!(
        "Linux on {processors} processors; published: two OSF/1 kernels on an Encore Multimax, ten \
         NS32332 of about 1.5 MIPS, 224 MB.{reduced}"
    ));
    let [signals, forks, builds, sessions] = &CURVES;
    let signals = draw(signals, None, processors, points);
    let unswitched = [FITTING_PAIRS, signals.last_level].map(|level| switchless(level, points));
    let forks = draw(forks, None, processors, points);
    let real = RealForks::of_this_machine(points);
    let builds = draw(builds, real.as_ref().ok(), processors, points);
    let sessions = draw(sessions, real.as_ref().ok(), processors, points);
    if let Err(error) = &real {
        points.wrap(&format!("\nThis machine's forks could not be timed: {error}"));
    }
    let locks = section_9::measure(processors, points);
    points.wrap(
        "\nOne run per point, as in the paper; the next run differs. For intervals: \
         tontine-measure signal-throughput fork-throughput builds sessions. More processes than \
         processors is another regime, marked *. The two kernels run in one process, where a \
         system call is a function call and a fork copies no address space: compare their figures \
         with each other and not with Linux's.",
    );
    let figures = [signals, forks, builds, sessions];
    let found = CurveFindings { figures, unswitched, real: real.ok(), locks };
    points.say(format_args!("{}", print(&CLAIMS, &found).trim_end()));
}

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
        ("thread-vs-process", ..) => 0.5,
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
    fn of_this_machine(points: &mut Reproduction<'_, '_>) -> Result<Self> {
        let mut median = |experiment: &str, variant: &str, params: Params, metric: &str| {
            let task = InvocationTask::new(experiment, variant, params, Size::Full);
            // Other programs lengthen some forks.
            points.metric(&task, metric).map(|found| found.summary.median)
        };
        let rate = median("fork-throughput", "linux", params([("processes", "1")]), "forked");
        let small = params([("parent", "small"), ("placement", "same-core")]);
        let whole = median("thread-vs-process", "fork", small, "create_join");
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

#[derive(Default)]
struct CurvePoints {
    values: BTreeMap<u64, Result<f64>>,
    notes: Vec<String>,
}

impl CurvePoints {
    fn measure(
        curve: &PublishedCurve,
        tasks: BTreeMap<u64, InvocationTask>,
        points: &mut Reproduction<'_, '_>,
    ) -> Self {
        let mut measured = Self::default();
        for (level, task) in tasks {
            let value = points.cell(&task).and_then(|mut figures| {
                measured.notes = std::mem::take(&mut figures.notes);
                Ok(metric_of(figures, curve.metric)?.summary.mean)
            });
            measured.values.insert(level, value);
        }
        measured
    }

    fn curve(&self) -> BTreeMap<u64, f64> {
        let there = self.values.iter();
        there.filter_map(|(level, value)| Some((*level, *value.as_ref().ok()?))).collect()
    }

    fn largest(&self) -> f64 {
        self.curve().into_values().fold(0.0, f64::max)
    }
}

/// Returns one task for each level of the paper. The paper's kernels run on a model of its machine;
/// on this machine both ends of a pair run on processors of their own.
fn tasks(curve: &PublishedCurve, variant: &str) -> BTreeMap<u64, InvocationTask> {
    let of_level = |level: u64| {
        let mut params = params([(curve.level, &level.to_string())]);
        let placement = if variant == curve.linux {
            let of_pair = if level == 1 { "cross-core" } else { "spread" };
            (curve.level == "pairs").then_some(of_pair)
        } else {
            params.extend([PAPERS_MACHINE].map(|(name, value)| (name.into(), value.into())));
            if variant == OLD.variant { curve.old_placement } else { curve.placement }
        };
        params.extend(placement.map(|name| ("placement".to_owned(), name.to_owned())));
        (level, InvocationTask::new(curve.experiment, variant, params, Size::Full))
    };
    (1..=curve.last_level).map(of_level).collect()
}

fn draw(
    curve: &PublishedCurve,
    real: Option<&RealForks>,
    processors: usize,
    points: &mut Reproduction<'_, '_>,
) -> Figure {
    points.say(format_args!("\n{}", curve.title));
    let kernels = [OLD, NEW].map(|kernel| tasks(curve, kernel.variant));
    // The model's own forks and exits are modelled too, for comparison.
    let own = curve
        .real_forks
        .then(|| kernels.clone().map(|tasks| CurvePoints::measure(curve, tasks, points).curve()));
    let real = real.filter(|_| own.is_some());
    let [old, new] = kernels.map(|mut tasks| {
        if let Some(real) = real {
            for task in tasks.values_mut() {
                task.params.insert(COSTS.to_owned(), real.costs());
            }
        }
        CurvePoints::measure(curve, tasks, points)
    });
    let largest = old.largest().max(new.largest());
    for (PublishedKernel { name, variant }, measured) in [(OLD, &old), (NEW, &new)] {
        points.say(format_args!("\n{name} (`{variant}`, modelled with {})", PAPERS_MACHINE.1));
        bars(curve, measured, largest, PAPERS_PROCESSORS, points);
    }
    for note in &new.notes {
        points.wrap(&format!("({note})"));
    }
    if curve.old_placement.is_some() {
        points.wrap("(no process of the old kernel has its place on the master processor)");
    }
    let ratios = ratios(&old.curve(), &new.curve());
    if let (Some(real), Some([old, new])) = (real, &own) {
        let [here, model] = real.micros();
        let own = self::ratios(old, new);
        points.wrap(&format!(
            "(a fork, an exit and a wait take {here:.0} µs, as on this machine's Linux; the traced \
             ones computed for that much less)\n\nnew kernel / old kernel, by level: {ratios}\nif \
             the three take {model:.2} µs, as in the model: {own}"
        ));
    } else if !ratios.is_empty() {
        points.wrap(&format!("\nnew kernel / old kernel, by level: {ratios}"));
    }
    let mut here = tasks(curve, curve.linux);
    here.retain(|level, _| !points.quick || QUICK_LEVELS.contains(level));
    let here = CurvePoints::measure(curve, here, points);
    points.say(format_args!("\nLinux, {processors} processors"));
    bars(curve, &here, here.largest(), processors, points);
    points.wrap(&format!("\nThe paper: {}.", curve.shape));
    let [old, new, linux] = [old, new, here].map(|measured| measured.curve());
    Figure { last_level: curve.last_level, old, new, linux, own }
}

/// Models the new kernel's figure 1 at a level with switches that take no time.
fn switchless(level: u64, points: &mut Reproduction<'_, '_>) -> Option<f64> {
    let mut task = tasks(&CURVES[0], NEW.variant).remove(&level)?;
    task.params.insert(COSTS.to_owned(), format!("{}=0", CostKind::Switch.name()));
    points.metric(&task, CURVES[0].metric).map(|found| found.summary.mean).ok()
}

/// Writes a line per level, with a bar in proportion to the largest value.
fn bars(
    curve: &PublishedCurve,
    measured: &CurvePoints,
    largest: f64,
    processors: usize,
    points: &mut Reproduction<'_, '_>,
) {
    if measured.values.values().any(Result::is_ok) {
        points.say(format_args!("{:>9} {:>12}", curve.level, curve.unit));
    }
    for (level, value) in &measured.values {
        match value {
            Ok(value) => {
                let bar = "#".repeat((value / largest * WIDTH).ceil() as usize);
                let crowded = if processes(curve, *level) > processors { "*" } else { " " };
                points.say(format_args!("{level:>8}{crowded} {:>12} {bar}", figure(*value)));
            }
            Err(error) => points.say(format_args!("{level:>8}  {error}")),
        }
    }
}

/// Returns the new kernel's figures as multiples of the old one's, for the levels at which both
/// kernels have a figure.
fn ratios(old: &BTreeMap<u64, f64>, new: &BTreeMap<u64, f64>) -> String {
    let both = old
        .iter()
        .filter_map(|(level, old)| Some(format!("{level}: {}", figure(new.get(level)? / old))));
    both.collect::<Vec<_>>().join("  ")
}

fn figure(value: f64) -> String {
    if value < 100.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}

/// Returns the number of processes that need a processor at the same time.
fn processes(curve: &PublishedCurve, level: u64) -> usize {
    let each = if curve.level == "pairs" { 2 } else { 1 };
    level as usize * each
}

#[cfg(test)]
mod tests;
