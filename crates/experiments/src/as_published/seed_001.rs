//! Source 001 as published: the four curves by which it compares two kernels, and this machine's
//! curves.
//!
//! The two kernels are modes of the virtual Unix: `master` does all process and signal work on one
//! processor, as OSF/1 did before; `parallel` is the paper's kernel. They run on a model of the
//! paper's ten processors if the experiment has one, otherwise on this machine's processors.
//!
//! The paper's figures have no numbers, so none of their points are reproduced: a description of
//! the paper's curve follows each figure. The measurements are those of the four experiments;
//! `tontine measure` gives their intervals. Each curve here comes from one run, as in the paper.
//! [`section_9`] checks the paper's statements on its locks.

mod section_9;

use std::collections::BTreeMap;
use std::io::Write;

use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{ErrorContext, MeasureError, Result};

use crate::SUITE;

/// Width of the longest bar in characters.
const WIDTH: f64 = 40.0;
/// The levels of a quick run.
const QUICK_LEVELS: [u64; 3] = [1, 2, 4];
/// Number of processors of the paper's machine.
const PAPERS_PROCESSORS: usize = 10;
/// The parameter of a cell that models the processors of the paper's machine.
const PAPERS_MACHINE: (&str, &str) = ("modelled", "10 processors");
/// Placements in which both processes of a pair run at the same time, as in the paper.
const APART: [&str; 2] = ["cross-core", "spread"];

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
        shape: "both curves of similar shape and less regular than the others; the new kernel \
                takes less time by a noticeable factor. (There: logins over a network; here: each \
                on its own terminal; `sessions/login` has the logins)",
    },
];

/// Runs the paper's four measurements and draws their curves. If `quick`, measures fewer levels and
/// says so in the output.
///
/// # Errors
/// Returns `Failed` if `out` cannot be written. If something cannot be measured, a line gives the
/// reason.
pub fn reproduce(quick: bool, out: &mut dyn Write) -> Result<()> {
    let processors = tontine_host::os::pin::allowed()?.len();
    say(
        out,
        format_args!(
            "Linux on {processors} processors; published: two OSF/1 kernels on an Encore Multimax, \
             ten NS32332 of about 1.5 MIPS, 224 MB.{}",
            if quick { " Reduced to a few levels for a quick run." } else { "" }
        ),
    )?;
    for curve in &CURVES {
        draw(curve, quick, processors, out)?;
    }
    section_9::tell(quick, processors, out)?;
    say(
        out,
        format_args!(
            "\nToday: one run per point, as in the paper; the next run differs. For intervals: \
             tontine measure signal-throughput fork-throughput builds sessions. More processes \
             than processors is another regime, marked *. The two kernels run in one process, \
             where a system call is a function call and a fork copies no address space: compare \
             their figures with each other and not with Linux's."
        ),
    )
}

/// A kernel's figures by level, and its notes.
#[derive(Default)]
struct Points {
    values: BTreeMap<u64, Result<f64>>,
    notes: Vec<String>,
}

fn draw(curve: &PublishedCurve, quick: bool, processors: usize, out: &mut dyn Write) -> Result<()> {
    say(out, format_args!("\n{}", curve.title))?;
    let [old, new] = [OLD, NEW].map(|kernel| (kernel, tasks(curve, kernel.variant)));
    let modelled = [&old.1, &new.1].iter().all(|tasks| tasks.values().any(is_papers));
    let (place, seats) = if modelled {
        (format!("modelled with {}", PAPERS_MACHINE.1), PAPERS_PROCESSORS)
    } else {
        (format!("virtual Unix on {processors} processors"), processors)
    };
    let [old, new] =
        [old, new].map(|(kernel, tasks)| (kernel, points(curve, kernel.variant, tasks, quick)));
    let largest = largest(&old.1).max(largest(&new.1));
    for (PublishedKernel { name, variant }, points) in [&old, &new] {
        say(out, format_args!("\n{name} (`{variant}`, {place})"))?;
        bars(curve, points, largest, seats, out)?;
    }
    for note in &new.1.notes {
        say(out, format_args!("({note})"))?;
    }
    ratios(&old.1, &new.1, out)?;
    let here = points(curve, curve.linux, tasks(curve, curve.linux), quick);
    say(out, format_args!("\nLinux, {processors} processors"))?;
    bars(curve, &here, self::largest(&here), processors, out)?;
    say(out, format_args!("\nThe paper: {}.", curve.shape))
}

/// Measures each task. If there are no tasks, the result contains the reason.
fn points(
    curve: &PublishedCurve,
    variant: &str,
    tasks: BTreeMap<u64, InvocationTask>,
    quick: bool,
) -> Points {
    let mut points = Points::default();
    if tasks.is_empty() {
        let what = format!("{} has no such levels of `{variant}` here", curve.experiment);
        points.values.insert(0, Err(MeasureError::skip(what)));
    }
    for (level, task) in tasks {
        if quick && !QUICK_LEVELS.contains(&level) {
            continue;
        }
        let observed = run(&task.experiment, &task.variant, task.params);
        let value = observed.and_then(|observed| {
            let value = mean(&observed, curve.metric);
            points.notes = observed.notes;
            value
        });
        points.values.insert(level, value);
    }
    points
}

fn largest(points: &Points) -> f64 {
    points.values.values().filter_map(|value| value.as_ref().ok()).copied().fold(0.0, f64::max)
}

/// Writes a line per level, with a bar in proportion to the largest value.
fn bars(
    curve: &PublishedCurve,
    points: &Points,
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

/// Writes the new kernel's figures as multiples of the old one's, for the levels at which both
/// kernels have a figure.
fn ratios(old: &Points, new: &Points, out: &mut dyn Write) -> Result<()> {
    let both = old.values.iter().filter_map(|(level, old)| {
        let (old, new) = (old.as_ref().ok()?, new.values.get(level)?.as_ref().ok()?);
        Some(format!("{level}: {}", figure(new / old)))
    });
    let both: Vec<String> = both.collect();
    if both.is_empty() {
        return Ok(());
    }
    say(out, format_args!("\nratio of new kernel to old kernel, by level: {}", both.join("  ")))
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

/// Returns one task for each level of the paper, in ascending order, if the experiment has the
/// variant. The task uses a model of the paper's machine if there is one; otherwise both ends of a
/// pair run on their own processors.
fn tasks(curve: &PublishedCurve, variant: &str) -> BTreeMap<u64, InvocationTask> {
    let experiment = SUITE
        .find(curve.experiment)
        .filter(|experiment| experiment.variants().iter().any(|offered| offered.name == variant));
    let Some(experiment) = experiment else {
        return BTreeMap::new();
    };
    let topology = Topology::of_this_machine();
    let task = |params: Params| InvocationTask {
        experiment: curve.experiment.into(),
        variant: variant.into(),
        params,
        size: Size::Full,
    };
    let params = experiment.params(variant, &topology, Size::Full);
    let mut tasks: Vec<InvocationTask> = params.into_iter().map(task).collect();
    let modelled = tasks.iter().any(is_papers);
    tasks.retain(|task| is_papers(task) == modelled);
    tasks.retain(|task| modelled || !task.params.contains_key(PAPERS_MACHINE.0));
    // Sessions with simultaneous builds are a different load, which section 9 measures.
    tasks.retain(|task| !task.params.contains_key("beside"));
    // If a level has two placements, the last one is kept.
    tasks.sort_by_key(|task| {
        task.params.get("placement").is_none_or(|name| APART.contains(&name.as_str()))
    });
    let of_level = |task: InvocationTask| {
        let level: u64 = task.params.get(curve.level)?.parse().ok()?;
        (level <= curve.most).then_some((level, task))
    };
    let mut tasks: BTreeMap<u64, InvocationTask> = tasks.into_iter().filter_map(of_level).collect();
    // A model's cells cover fewer levels than the paper, but the model can also run at the levels
    // in between.
    if let Some(any) = tasks.values().next().filter(|_| modelled).cloned() {
        for level in 1..=curve.most {
            let mut between = any.clone();
            between.params.insert(curve.level.to_owned(), level.to_string());
            tasks.entry(level).or_insert(between);
        }
    }
    tasks
}

/// Returns `true` if a task runs on a model of the paper's machine.
fn is_papers(task: &InvocationTask) -> bool {
    task.params.get(PAPERS_MACHINE.0).is_some_and(|found| found == PAPERS_MACHINE.1)
}

/// Runs one cell at the size of the source.
fn run(name: &str, variant: &str, params: Params) -> Result<Observed> {
    let found = SUITE
        .find(name)
        .ok_or_else(|| MeasureError::skip(format!("there is no experiment {name}")))?;
    let (experiment, variant) = (name.to_owned(), variant.to_owned());
    found.run(&InvocationTask { experiment, variant, params, size: Size::Full })
}

/// Returns the mean over the processes of one run.
fn mean(observed: &Observed, metric: &str) -> Result<f64> {
    let found = observed.series.iter().find(|series| series.metric == metric);
    let found = found
        .ok_or_else(|| MeasureError::fail(format!("the experiment yielded no series {metric}")))?;
    let mean = found.samples.iter().sum::<f64>() / found.samples.len() as f64;
    if mean.is_finite() {
        Ok(mean)
    } else {
        Err(MeasureError::fail("the experiment yielded no samples"))
    }
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(out, "{line}").during("writing the curves")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn each_linux_curve_has_exactly_the_papers_levels() {
        for curve in &CURVES {
            let levels: Vec<u64> = tasks(curve, curve.linux).into_keys().collect();
            let papers: Vec<u64> = (1..=curve.most).collect();
            assert_eq!(levels, papers, "{}", curve.title);
            for (level, task) in tasks(curve, curve.linux) {
                assert_eq!(task.params[curve.level], level.to_string(), "{}", curve.title);
            }
        }
    }

    #[test]
    fn figure_prints_bar_per_level_and_marks_crowded_levels() {
        in_a_process_of_its_own(|| {
            let mut out = Vec::new();
            draw(&CURVES[1], true, 3, &mut out).map_err(|trouble| trouble.to_string())?;
            let text = String::from_utf8(out).map_err(|error| error.to_string())?;
            let bars = text.lines().filter(|line| line.ends_with('#'));
            let levels: Vec<&str> =
                bars.filter_map(|line| line.split_whitespace().next()).collect();
            // Levels of the old kernel, the new kernel and this machine's kernel.
            let whole = levels.len() == 9
                && (0..3)
                    .all(|level| levels[level].trim_end_matches('*') == ["1", "2", "4"][level])
                && levels[6..] == ["1", "2", "4*"]
                && text.contains("\nold kernel (`master`, ")
                && text.contains("\nnew kernel (`parallel`, ")
                && text.contains("\nratio of new kernel to old kernel, by level: 1: ")
                && text.starts_with("\nFigure 2: Forks Completed per Process per Second\n")
                && text.contains("processes forks/s per process\n")
                && text.lines().last().is_some_and(|line| line.starts_with("The paper: "))
                && !text.contains("failed")
                && !text.contains("skipped");
            if whole { Ok(()) } else { Err(text) }
        });
    }

    #[test]
    fn both_kernels_have_exactly_the_papers_levels() {
        for curve in &CURVES {
            let papers: Vec<u64> = (1..=curve.most).collect();
            for PublishedKernel { variant, .. } in [OLD, NEW] {
                let tasks = tasks(curve, variant);
                let levels: Vec<u64> = tasks.keys().copied().collect();
                assert_eq!(levels, papers, "{}, {variant}", curve.title);
                let modelled = tasks.values().filter(|task| is_papers(task)).count();
                assert_eq!(modelled, tasks.len(), "{}", curve.title);
                let loaded = |task: &InvocationTask| task.params.contains_key("beside");
                assert!(!tasks.values().any(loaded), "{}", curve.title);
            }
        }
    }

    #[test]
    fn unmeasurable_curve_prints_its_reason() {
        let stranger = PublishedCurve { experiment: "pigeons", ..CURVES[0] };
        let mut out = Vec::new();
        draw(&stranger, true, 2, &mut out).expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(
            text.contains("\nskipped: pigeons has no such levels of `master` here\n"),
            "{text}"
        );
        assert!(text.contains("The paper: ") && !text.contains('#'), "{text}");
    }
}
