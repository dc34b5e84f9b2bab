//! Writes docs/coverage.md: [`render`].

use std::fmt::Write as _;

use tontine_bench::stats::simulate::Model;

use super::claims::{Expected, LIMIT, WIDEST, expected};
use super::trial::{Alternative, Method, RUNS, SAMPLES, TRUTH_INVOCATIONS, Trial};

/// The whole page.
pub(super) fn render(trials: &[Trial], tried: &[Alternative], broken: &[String]) -> String {
    let mut page = introduction();
    page.push_str(
        "| model | invocations | truth: median, mean, trimmed | median | mean | trimmed mean | \
         A/A ratio | naive | flagged |\n|---|--:|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for trial in trials {
        let truth = trial.truth;
        let _ = write!(
            page,
            "| {} | {} | {:.2}, {:.2}, {:.2} |",
            trial.model.name(),
            trial.invocations,
            truth.median,
            truth.mean,
            truth.trimmed,
        );
        for method in Method::ALL {
            let _ = write!(page, " {} |", cell(trial, method));
        }
        let _ = writeln!(page, " {:.1} |", trial.flagged as f64 * 100.0 / RUNS as f64);
    }
    page.push_str(NOTES);
    widths(&mut page, trials);
    alternatives(&mut page, tried);
    if !broken.is_empty() {
        page.push_str("\n## Statements that do not hold\n\n");
        for claim in broken {
            let _ = writeln!(page, "- {claim}");
        }
    }
    page
}

fn introduction() -> String {
    format!(
        "# How often the intervals hold the truth\n\n\
         Written by `cargo xtask coverage`; `cargo xtask coverage --check` fails if a statement \
         here does not hold.\n\n\
         Each row draws {RUNS} runs with fixed seeds, {SAMPLES} consecutive samples an \
         invocation, and counts in per cent how often a 95 % interval held the truth. The truth \
         is that of the statistic which stands for an invocation: in closed form or by \
         symmetry, and where there is neither (medians and trimmed means of spikes, modes and \
         ticks) from {TRUTH_INVOCATIONS} invocations.\n\n\
         - **median**: exact order statistics over the invocations' medians.\n\
         - **mean**, **trimmed mean**: Kalibera and Jones over the invocations' means.\n\
         - **A/A ratio**: sign test over paired ratios of two equal arms; the truth is 1, so \
         what is missing from 100 are false positives.\n\
         - **naive**: mean ± 1.96·s/√n over all consecutive samples, as seed 004 has it: the \
         control that should fail.\n\
         - **flagged**: runs that the diagnosis between invocations marks *unstable*.\n\n\
         Plain figures: the assumptions hold, and at least {:.1} % is promised. *Italics*: they \
         do not, nothing is promised. **Bold**: they are broken, and it shows.\n\n",
        LIMIT * 100.0,
    )
}

fn cell(trial: &Trial, method: Method) -> String {
    let percent = trial.share(method) * 100.0;
    match expected(trial.model, method) {
        Expected::Holds => format!("{percent:.1}"),
        Expected::Unpromised => format!("*{percent:.1}*"),
        Expected::Fails => format!("**{percent:.1}**"),
    }
}

const NOTES: &str = "
Where the assumptions do not hold:

- **Drift.** The truth is the level at the end of the run, which the next run will meet. No interval
  over the run holds it; only ratios of pairs taken next to each other are untouched.
- **Two modes between few invocations.** The mean's interval assumes nearly normal means. With few
  invocations the rarer mode is often not seen at all, and then the interval is short and wrong. The
  median's interval needs no shape and holds, but it spans both modes: look at the dots.
- **Spikes.** A spike in a thousand, 50 times as large, decides the mean of the invocation that has
  it. Means are skewed then and their interval is not to be trusted; median and trimmed mean are.
- **Two modes within, trimmed mean.** The rarer mode has 30 % of the samples. In a few invocations
  in a hundred it gets less than a quarter, the interquartile range shrinks to the other mode's, and
  trimming takes the rarer mode away whole. So the trimmed mean has two modes *between* invocations.
  This was found here, not foreseen: the row was first expected to hold.
- **Ticks.** Medians that fall on the same few ticks make intervals that hold more often than
  promised, and with few invocations the diagnosis takes two neighbouring ticks for two modes too
  often.
- **Period 2.** Neighbours are opposed, and the naive interval is too *wide* for once.
";

fn widths(page: &mut String, trials: &[Trial]) {
    let _ = write!(
        page,
        "\n## Width\n\n\
         Median width of the median's interval ÷ that of Student's on the same medians, \
         independent normal samples. Wanted: at most {WIDEST} × Student's at 95 %.\n\n\
         | invocations | ÷ Student's at 95 % | ÷ Student's at the same confidence | wanted |\n\
         |--:|--:|--:|---|\n",
    );
    for trial in trials.iter().filter(|trial| trial.model == Model::Normal) {
        let reached = if trial.width <= WIDEST { "reached" } else { "**missed**" };
        let _ = writeln!(
            page,
            "| {} | {:.2} | {:.2} | {reached} |",
            trial.invocations, trial.width, trial.width_alike
        );
    }
    page.push_str(
        "\nWith 10 invocations the target is missed: the next inner pair, [x₃, x₈], has 89.1 %, \
        so the narrowest exact pair with 95 % has 97.9 %, and pays for it in width.\n",
    );
}

fn alternatives(page: &mut String, tried: &[Alternative]) {
    page.push_str(
        "\n## What was tried instead\n\n\
         [Decision 2](decisions/0002-intervals.md) says why the exact interval stays.\n\n\
         | interval for the median | model | invocations | held the truth, % \
         | ÷ Student's at 95 % |\n\
         |---|---|--:|--:|--:|\n",
    );
    for row in tried {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {:.1} | {:.2} |",
            row.name,
            row.model.name(),
            row.invocations,
            row.share * 100.0,
            row.width
        );
    }
}
