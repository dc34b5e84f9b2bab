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
        shape: "new kernel flat up to five pairs on ten processors, then falling with the switches \
                between processes; old kernel in inverse proportion to the pairs",
    },
    Curve {
        title: "Figure 2: Forks Completed per Process per Second",
        experiment: "fork-throughput",
        variant: "linux",
        metric: "forked",
        level: "processes",
        most: 7,
        unit: "forks/s a process",
        shape: "both kernels fall, the new one less; with one process they are alike. Forking \
                depends on the virtual memory, which differed between the two",
    },
    Curve {
        title: "Figure 3: Elapsed Time for Multiple Builds",
        experiment: "builds",
        variant: "linux",
        metric: "build",
        level: "builds",
        most: 8,
        unit: "s a build",
        shape: "the new kernel takes less time throughout; to the right both rise more steeply, \
                the new one by the load on its single disk",
    },
    Curve {
        title: "Figure 4: Elapsed Time for Multiple Pseudo-User Sessions",
        experiment: "sessions",
        variant: "pty",
        metric: "iteration",
        level: "sessions",
        most: 8,
        unit: "s an iteration",
        shape: "both rise, less regularly than the others; the new kernel takes less time by a \
                noticeable factor. (There: logins over a network; here: each on a terminal of its \
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
