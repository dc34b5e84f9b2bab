//! Writes docs/evidence/coverage.md: [`render`].

use std::fmt::Write as _;

use tontine_bench::stats::simulate::SampleModel;

use super::SimulatedTrials;
use super::claims::{CoverageClaim, LIMIT, WIDEST, expected};
use super::few::FewTrial;
use super::resampled::{CompareTrials, EQUAL, PLANTED};
use super::shares::{self, METHODS, ShareTrial, VARIATIONS};
use super::trial::{
    Alternative, CoverageTrial, INVOCATIONS, Method, RUNS, SAMPLES, TRUTH_INVOCATIONS,
};

/// Returns the whole page.
pub(super) fn render(simulated: &SimulatedTrials, broken: &[String]) -> String {
    let SimulatedTrials { trials, widths: tried, shares, few, compared } = simulated;
    let mut page = introduction();
    page.push_str(
        "| model | invocations | true median, mean, trimmed mean | median | mean | trimmed mean | \
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
    of_shares(&mut page, shares);
    of_few(&mut page, few);
    widths(&mut page, trials);
    alternatives(&mut page, tried);
    comparisons(&mut page, compared);
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
        "# How often the intervals contain the true value\n\n\
         Written by `cargo xtask coverage`; `cargo xtask coverage --check` fails if a statement on \
         this page does not hold.\n\n\
         Each row draws {RUNS} runs with fixed seeds and {SAMPLES} consecutive samples per \
         invocation, and counts in per cent how often a 95 % interval contained the true value. \
         The true value is the population value of the statistic that represents an invocation. It \
         is computed in closed form or by symmetry. If neither exists (medians and trimmed means \
         of spikes, modes and ticks), it is computed from {TRUTH_INVOCATIONS} invocations.\n\n\
         - **median**: exact order statistics over the invocations' medians.\n\
         - **mean**, **trimmed mean**: Kalibera and Jones over the invocations' means.\n\
         - **A/A ratio**: sign test over paired ratios of two equal arms; the true value is 1, so \
         the difference from 100 is the rate of false positives.\n\
         - **naive**: mean ± 1.96·s/√n over all consecutive samples, as source 004 computes it: \
         the control that should fail.\n\
         - **flagged**: runs that the diagnosis between invocations marks *unstable*.\n\n\
         Plain figures: the assumptions hold, and at least {:.1} % is promised. *Italics*: the \
         assumptions do not hold, and nothing is promised. **Bold**: the assumptions are violated \
         such that the interval must fail.\n\n",
        LIMIT * 100.0,
    )
}

fn cell(trial: &CoverageTrial, method: Method) -> String {
    let percent = trial.share(method) * 100.0;
    match expected(trial.model, method) {
        CoverageClaim::Holds => format!("{percent:.1}"),
        CoverageClaim::Unpromised => format!("*{percent:.1}*"),
        CoverageClaim::Fails => format!("**{percent:.1}**"),
    }
}

const NOTES: &str = "
The assumptions do not hold in these cases:

- **Drift.** The true value is the level at the end of the run, from which the next run starts. No
  interval over the run contains it; only ratios of adjacent pairs are unaffected.
- **Two modes between few invocations.** The mean's interval assumes nearly normal means. With few
  invocations the rarer mode often does not occur at all, and then the interval is short and wrong.
  The median's interval assumes no shape and holds, but it spans both modes: inspect the dots.
- **Spikes.** A spike in a thousand, 50 times as large, dominates the mean of the invocation that
  contains it. The means are then skewed, and their interval is unreliable. The intervals of the
  median and of the trimmed mean are reliable.
- **Two modes within, trimmed mean.** The rarer mode has 30 % of the samples. In a few invocations
  in a hundred it has less than a quarter. The interquartile range then shrinks to that of the
  other mode, and trimming removes the rarer mode entirely. Therefore the trimmed mean has two modes
  *between* invocations. This result was unexpected: the row was first listed as holding.
- **Ticks.** If medians fall on the same few ticks, intervals hold more often than promised. With
  few invocations, the diagnosis too often mistakes two neighbouring ticks for two modes.
- **Period 2.** Neighbouring samples deviate in opposite directions, so the naive interval is too
  *wide*.
";

fn of_shares(page: &mut String, trials: &[ShareTrial]) {
    let variations: Vec<String> =
        VARIATIONS.iter().map(|(name, variation)| format!("{name} ({variation})")).collect();
    let [six, ten, twenty] = INVOCATIONS;
    let _ = write!(
        page,
        "\n## Shares\n\n\
         The share of all tries, with Korn and Graubard's interval. An invocation's own share is \
         beta-distributed around the true share; the *variation* is its standard deviation \
         relative to the rarer outcome: {}. In four recorded runs, two thirds of the shares vary \
         by at most 0.4, and four fifths by at most 0.7. At least {:.1} % is promised for every \
         row, and nothing for a stronger variation. The columns give, for each variation, the \
         coverage with {six}, {ten} and {twenty} invocations.\n\n\
         | true share | tries per invocation | {} |\n|--:|--:|{}\n",
        variations.join(", "),
        LIMIT * 100.0,
        VARIATIONS.map(|(name, _)| name).join(" | "),
        "---|".repeat(VARIATIONS.len())
    );
    for row in trials.chunks(VARIATIONS.len() * INVOCATIONS.len()) {
        let _ = write!(page, "| {} | {} |", row[0].share, row[0].tries);
        for variation in row.chunks(INVOCATIONS.len()) {
            let held = variation.iter().map(|trial| format!("{:.1}", 100.0 * trial.held[0]));
            let _ = write!(page, " {} |", held.collect::<Vec<_>>().join(", "));
        }
        page.push('\n');
    }
    page.push_str(
        "\nThe methods that were tried, over all rows with a share between 0 and 1. \
         [Decision 2](../decisions/0002-intervals.md) explains the choice.\n\n\
         | interval | smallest coverage, % | rows below the limit, % | width ÷ that in use |\n\
         |---|--:|--:|--:|\n",
    );
    for ((name, _), (least, below, width)) in METHODS.iter().zip(shares::compared(trials)) {
        let (least, below) = (100.0 * least, 100.0 * below);
        let _ = writeln!(page, "| {name} | {least:.1} | {below:.0} | {width:.2} |");
    }
}

fn of_few(page: &mut String, trials: &[FewTrial]) {
    let _ = write!(
        page,
        "\n## Fewer than six invocations\n\n\
         Student's interval for the mean of the invocations' figures, cut at zero, compared with \
         the same interval of their logarithms. The figures are lognormal; the *spread* is the \
         standard deviation of their logarithms, and the true value is their median. At least \
         {:.1} % is promised for Student's. To cut an interval at a limit that no figure exceeds \
         does not change how often it contains the true value.\n\n\
         | spread | invocations | Student's | of the logarithms | below zero without the cut, % \
         | upper end ÷ true value: Student's | of the logarithms |\n\
         |--:|--:|--:|--:|--:|--:|--:|\n",
        LIMIT * 100.0,
    );
    for trial in trials {
        let ([held, held_logs], [upper, upper_logs]) = (trial.held, trial.upper);
        let _ = writeln!(
            page,
            "| {} | {} | {:.1} | {:.1} | {:.1} | {upper:.2} | {upper_logs:.2} |",
            trial.spread,
            trial.invocations,
            100.0 * held,
            100.0 * held_logs,
            100.0 * trial.below_zero,
        );
    }
}

fn widths(page: &mut String, trials: &[CoverageTrial]) {
    let _ = write!(
        page,
        "\n## Width\n\n\
         Median width of the median's interval ÷ width of Student's interval on the same medians, \
         for independent normal samples. Target: at most {WIDEST} × Student's at 95 %.\n\n\
         | invocations | ÷ Student's at 95 % | ÷ Student's at the same confidence | target |\n\
         |--:|--:|--:|---|\n",
    );
    for trial in trials.iter().filter(|trial| trial.model == SampleModel::Normal) {
        let reached = if trial.width <= WIDEST { "reached" } else { "**missed**" };
        let _ = writeln!(
            page,
            "| {} | {:.2} | {:.2} | {reached} |",
            trial.invocations, trial.width, trial.width_alike
        );
    }
    page.push_str(
        "\nWith 10 invocations the target is missed: the next inner pair, [x₃, x₈], has 89.1 %, \
        so the narrowest exact pair with at least 95 % has 97.9 % and is therefore wider.\n",
    );
}

fn alternatives(page: &mut String, tried: &[Alternative]) {
    page.push_str(
        "\n## Alternatives\n\n\
         [Decision 2](../decisions/0002-intervals.md) explains why the exact interval was kept.\n\n\
         | interval for the median | model | invocations | contained the true value, % \
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

fn comparisons(page: &mut String, trials: &CompareTrials) {
    let _ = write!(
        page,
        "\n## Comparisons\n\n\
         `tontine compare` with both stages, on runs of {} rows that are resampled from a \
         recorded default run (`crates/bench/examples/coverage/recorded.txt`, a virtual machine \
         with two shared processors): an invocation is a recorded invocation of its task, drawn \
         with replacement, and the second stage draws further ones in pairs. Two equal runs \
         therefore differ only by chance, with the modes and outliers of an actual machine, but \
         without its drift from one run to the next. A *false alarm* is a comparison that reports \
         a regression, which is exit status 1. At most 5 % are allowed.\n\n\
         | length of the runs | invocations per row | comparisons | false alarms | with any change \
         |\n|---|--:|--:|--:|--:|\n",
        trials.rows,
    );
    for one in &trials.equal {
        let (least, most) = one.invocations;
        let _ = writeln!(
            page,
            "| {} | {least} to {most} | {EQUAL} | {} | {} |",
            one.name, one.alarms, one.changes
        );
    }
    page.push_str(
        "\nTimes of B that are 10 % longer, at the default length. A change in every time is found \
         if the comparison reports a regression, and a change in one time if that row is `WORSE`. \
         At least 95 of 100 must be found in rows whose comparisons of equal runs state that they \
         could resolve 10 % (*could resolve*); the others vary more from one invocation to the \
         next, and nothing is promised.\n\n\
         | longer | comparisons | found | promised |\n|---|--:|--:|---|\n",
    );
    for one in &trials.planted {
        let promised = if one.is_promised { "95" } else { "–" };
        let _ = writeln!(page, "| {} | {PLANTED} | {} | {promised} |", one.name, one.found);
    }
}
