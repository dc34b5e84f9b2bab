//! Seed 001 as it was: the four curves by which it compares two kernels, on this machine's one.
//!
//! The paper draws its figures without numbers, so no point of them stands here: each curve is
//! followed by the paper's shape in words. The measuring is that of the four experiments; their
//! intervals come from `tontine measure`, these curves are one run each, as the paper's were.

use std::collections::BTreeMap;
use std::io::Write;

use crate::experiment::{self, Params, Task};
use crate::machine::topology::Topology;
use crate::size::Size;
use crate::trouble::{During, Result, Trouble};

/// Width of the longest bar.
const WIDTH: f64 = 40.0;
/// Levels of a quick look.
const QUICK_LEVELS: [u64; 3] = [1, 2, 4];
/// The kernels that the paper compares, and where they come from here.
const KERNELS: &str = "the old kernel (unix-master) and the new one (unix-parallel): skipped: they \
                       come with the user-space Unix (`tontine unix`)";

/// One figure of the paper.
#[derive(Clone, Copy)]
struct Curve {
    /// Its caption.
    title: &'static str,
    experiment: &'static str,
    variant: &'static str,
    metric: &'static str,
    /// The parameter along the horizontal axis.
    level: &'static str,
    /// How far the paper's axis goes.
    most: u64,
    /// What is along the vertical axis.
    unit: &'static str,
    /// What the paper's curves look like.
    shape: &'static str,
}

const CURVES: [Curve; 4] = [
    Curve {
        title: "Figure 1: Signal Deliveries per Process per Second",
        experiment: "signal-throughput",
        variant: "linux",
        metric: "received",
        level: "pairs",
        most: 10,
        unit: "signals/s a process",
        shape: "old kernel in inverse proportion to the pairs; new kernel falling off beyond five \
                pairs on ten processors, probably by the switches between processes",
    },
    Curve {
        title: "Figure 2: Forks Completed per Process per Second",
        experiment: "fork-throughput",
        variant: "linux",
        metric: "forked",
        level: "processes",
        most: 7,
        unit: "forks/s a process",
        shape: "new kernel faster, by less than for signals: a fork leans on the virtual memory, \
                which was another one in each, so that these figures say least; one process alone \
                shows that the new locks cost it nothing",
    },
    Curve {
        title: "Figure 3: Elapsed Time for Multiple Builds",
        experiment: "builds",
        variant: "linux",
        metric: "build",
        level: "builds",
        most: 8,
        unit: "s a build",
        shape: "new kernel faster, by little, since most of the time is not what was changed; to \
                the right it degrades more sharply, blamed on the load of the one disk rather \
                than on the kernel's locks",
    },
    Curve {
        title: "Figure 4: Elapsed Time for Multiple Pseudo-User Sessions",
        experiment: "sessions",
        variant: "pty",
        metric: "iteration",
        level: "sessions",
        most: 8,
        unit: "s an iteration",
        shape: "of similar shape and less regular than the others; the new kernel takes less time \
                by a noticeable factor. (There: logins over a network; here: each on a terminal \
                of its \
                own, `sessions/login` has the logins)",
    },
];

/// Runs the paper's four measurements and draws their curves; `quick` measures fewer levels and
/// says so.
///
/// # Errors
/// Failed, where `out` cannot be written. What cannot be measured gets its reason as a line.
pub fn reproduce(quick: bool, out: &mut dyn Write) -> Result<()> {
    let processors = crate::os::pin::allowed()?.len();
    say(
        out,
        format_args!(
            "Linux on {processors} processors; published: two OSF/1 kernels on an Encore Multimax, \
             ten NS32332 of about 1.5 MIPS, 224 MB.{}",
            if quick { " Reduced to a few levels for a quick look." } else { "" }
        ),
    )?;
    for curve in &CURVES {
        draw(curve, quick, processors, out)?;
    }
    say(
        out,
        format_args!(
            "\n{KERNELS}.\nToday: one run a point, as the paper's; the next run differs. For \
             intervals: tontine measure signal-throughput fork-throughput builds sessions. More \
             processes than processors is another regime, marked *."
        ),
    )
}

fn draw(curve: &Curve, quick: bool, processors: usize, out: &mut dyn Write) -> Result<()> {
    say(out, format_args!("\n{}\n", curve.title))?;
    say(out, format_args!("{:>9} {:>12}", curve.level, curve.unit))?;
    let measured: Vec<(u64, Result<f64>)> = tasks(curve)
        .into_iter()
        .filter(|(level, _)| !quick || QUICK_LEVELS.contains(level))
        .map(|(level, task)| (level, measure(curve, &task)))
        .collect();
    if measured.is_empty() {
        say(out, format_args!("skipped: {} has no such levels here", curve.experiment))?;
    }
    let values = measured.iter().filter_map(|(_, value)| value.as_ref().ok());
    let largest = values.copied().fold(0.0, f64::max);
    for (level, value) in &measured {
        match value {
            Ok(value) => {
                let bar = "#".repeat((value / largest * WIDTH).ceil() as usize);
                let crowded = if processes(curve, *level) > processors { "*" } else { " " };
                say(out, format_args!("{level:>8}{crowded} {:>12} {bar}", figure(*value)))?;
            }
            Err(trouble) => say(out, format_args!("{level:>8}  {trouble}"))?,
        }
    }
    say(out, format_args!("The paper: {}.", curve.shape))
}

/// Four digits are more than one run is good for.
fn figure(value: f64) -> String {
    if value < 100.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}

/// Processes that want a processor at once.
fn processes(curve: &Curve, level: u64) -> usize {
    let each = if curve.level == "pairs" { 2 } else { 1 };
    level as usize * each
}

/// One task for each level that the paper has, in ascending order; two ends on one processor are
/// no arrangement of the paper's.
fn tasks(curve: &Curve) -> BTreeMap<u64, Task> {
    let Some(experiment) = experiment::find(curve.experiment) else {
        return BTreeMap::new();
    };
    let topology = Topology::of_this_machine();
    let mut params = experiment.params(curve.variant, &topology, Size::Full);
    let apart = |params: &Params| params.get("placement").is_none_or(|name| name != "same-core");
    // Of two arrangements of one level the last one stays.
    params.sort_by_key(apart);
    params
        .into_iter()
        .filter_map(|params| {
            let level = params.get(curve.level)?.parse().ok()?;
            let task = Task {
                experiment: curve.experiment.into(),
                variant: curve.variant.into(),
                params,
                size: Size::Full,
            };
            (level <= curve.most).then_some((level, task))
        })
        .collect()
}

/// The mean over the processes of one run.
fn measure(curve: &Curve, task: &Task) -> Result<f64> {
    let experiment = experiment::find(curve.experiment)
        .ok_or_else(|| Trouble::skip(format!("there is no experiment {}", curve.experiment)))?;
    let observed = experiment.run(task)?;
    let mut series = observed.series.iter();
    let found = series.find(|series| series.metric == curve.metric).ok_or_else(|| {
        Trouble::fail(format!("{} yielded no series {}", curve.experiment, curve.metric))
    })?;
    let mean = found.samples.iter().sum::<f64>() / found.samples.len() as f64;
    if mean.is_finite() { Ok(mean) } else { Err(Trouble::fail("it yielded no samples")) }
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(out, "{line}").during("writing the curves")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::peer::in_a_process_of_its_own;

    #[test]
    fn each_curve_has_the_papers_levels_and_no_other() {
        for curve in &CURVES {
            let levels: Vec<u64> = tasks(curve).into_keys().collect();
            let papers: Vec<u64> = (1..=curve.most).collect();
            assert_eq!(levels, papers, "{}", curve.title);
            for (level, task) in tasks(curve) {
                assert_eq!(task.params[curve.level], level.to_string(), "{}", curve.title);
            }
        }
    }

    #[test]
    fn a_figure_has_a_bar_for_each_level_of_a_quick_look_and_marks_what_is_crowded() {
        in_a_process_of_its_own(|| {
            let mut out = Vec::new();
            draw(&CURVES[1], true, 3, &mut out).map_err(|trouble| trouble.to_string())?;
            let text = String::from_utf8(out).map_err(|error| error.to_string())?;
            let bars = text.lines().filter(|line| line.ends_with('#'));
            let levels: Vec<&str> =
                bars.filter_map(|line| line.split_whitespace().next()).collect();
            let whole = levels == ["1", "2", "4*"]
                && text.starts_with("\nFigure 2: Forks Completed per Process per Second\n")
                && text.contains("processes forks/s a process\n")
                && text.lines().last().is_some_and(|line| line.starts_with("The paper: "))
                && !text.contains("failed")
                && !text.contains("skipped");
            if whole { Ok(()) } else { Err(text) }
        });
    }

    #[test]
    fn what_cannot_be_measured_gets_its_reason_as_a_line() {
        let stranger = Curve { experiment: "pigeons", ..CURVES[0] };
        let mut out = Vec::new();
        draw(&stranger, true, 2, &mut out).expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains("\nskipped: pigeons has no such levels here\n"), "{text}");
        assert!(text.contains("The paper: ") && !text.contains('#'), "{text}");
    }
}
