//! The first stage, which compares every row of two files using only their data: [`screen()`].
//!
//! The unit is an invocation, as everywhere. Runs of one machine are compared by Mann and Whitney's
//! test, and runs of two machines by the hierarchical bootstrap of the quotient. A row is flagged
//! if its 95 % interval excludes "no change". The interval is uncorrected, because a flag only
//! requests a second measurement.

use hdrhistogram::Histogram;

use super::direction::direction;
use super::judge::FALSE_DISCOVERIES;
use super::machines;
use super::read::RunFiles;
use super::{
    Change, ChangeScale, ComparedRow, ComparedRun, Comparison, EventAnswer, NotCompared,
    RowVerdict, SCHEMA, Screen, SecondStage, named,
};
use crate::observe::Statistic;
use crate::schema::{Cell, Invocation, Results, Status};
use crate::stats::bootstrap::{self, quotient};
use crate::stats::interval::{CONFIDENCE, Interval};
use crate::stats::shift::shift;
use crate::stats::{many, order, resolution};

/// Compares all rows. The verdicts are those of the screen alone until a second stage calls
/// [`judge`](Comparison::judge).
pub fn screen(base: &RunFiles, new: &RunFiles, threshold_percent: f64) -> Comparison {
    let machines = machines::differences(&base.results.machine, &new.results.machine);
    let builds = machines::builds(&base.results.machine, &new.results.machine);
    let (rows, not_compared) = rows(&base.results, &new.results, machines.is_empty());
    let rows = corrected(rows);
    let mut comparison = Comparison {
        comparison: SCHEMA,
        base: about(base),
        new: about(new),
        warnings: warnings(base, new),
        machines,
        builds,
        threshold_percent,
        again: SecondStage::NotNeeded,
        complete: true,
        regressions: 0,
        rows,
        not_compared,
        answers: answers(&base.results, &new.results),
    };
    if comparison.rows.iter().any(|row| row.screen.flagged) {
        comparison.again = SecondStage::NotMade { why: "not requested".into() };
    }
    comparison.judge();
    comparison
}

fn about(side: &RunFiles) -> ComparedRun {
    let summary = side.results.machine.get("summary").and_then(|text| text.as_str());
    ComparedRun {
        path: side.path.display().to_string(),
        started: side.results.started.clone(),
        size: side.results.size,
        complete: side.results.complete,
        machine: summary.unwrap_or("a machine that its file does not name").into(),
        executable: side.results.executable.clone(),
    }
}

fn warnings(base: &RunFiles, new: &RunFiles) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, side) in [("A", base), ("B", new)] {
        if !side.results.complete {
            warnings.push(format!(
                "{name} is incomplete: its run was interrupted, and its rows have fewer invocations"
            ));
        }
        if side.results.machine.pointer("/build/debug") == Some(&true.into()) {
            warnings.push(format!("{name} was made by a debug build; build with --release"));
        }
    }
    let (base, new) = (base.results.size, new.results.size);
    if base != new {
        warnings.push(format!(
            "the sizes differ, {} and {}: their invocations measure different numbers of \
             operations, which alone can move a figure",
            base.name(),
            new.name()
        ));
    }
    warnings
}

/// Adds the values that depend on all rows: p corrected for their number, and the difference that
/// each row's comparison could have resolved, with and without a second stage.
fn corrected(rows: Vec<(ComparedRow, ScaledFigures)>) -> Vec<ComparedRow> {
    let p: Vec<f64> = rows.iter().map(|(row, _)| row.screen.p).collect();
    let adjusted = many::false_discovery(&p);
    let passes = |value: f64| value <= FALSE_DISCOVERIES;
    let passing = adjusted.iter().filter(|&&value| passes(value)).count();
    let all = rows.len();
    let finish = |((mut row, groups), adjusted): ((ComparedRow, ScaledFigures), f64)| {
        row.screen.p_corrected = adjusted;
        row.screen.smallest = groups.smallest(row.scale, CONFIDENCE);
        // The threshold counts this row among those that pass. If the row does not pass, it is one
        // more.
        let rank = if passes(adjusted) { passing } else { passing + 1 };
        let confidence = 1.0 - FALSE_DISCOVERIES * rank as f64 / all as f64;
        row.screen.smallest_alone = groups.smallest(row.scale, confidence);
        row
    };
    rows.into_iter().zip(adjusted).map(finish).collect()
}

fn rows(
    base: &Results,
    new: &Results,
    same_machine: bool,
) -> (Vec<(ComparedRow, ScaledFigures)>, Vec<NotCompared>) {
    let (mut rows, mut not_compared) = (Vec::new(), Vec::new());
    let mut leave_out = |cell: &Cell, why: String, regression: bool| {
        let name = named(&cell.experiment, &cell.variant, &cell.params, &cell.metric);
        not_compared.push(NotCompared { name, why, regression });
    };
    for cell in &base.cells {
        // If A measured a row and B's program failed to, the row is worse than any figure.
        let lost = |other: &Cell| cell.status == Status::Ok && other.status == Status::Failed;
        let Some(other) = counterpart(cell, new) else {
            match unmeasured_task(cell, new) {
                Some(other) => {
                    leave_out(cell, format!("in B {}", unmeasured(other)), lost(other));
                }
                None => leave_out(cell, "only in A".into(), false),
            }
            continue;
        };
        match (cell.status, other.status) {
            (Status::Ok, Status::Ok) => match row(cell, other, same_machine) {
                Ok(row) => rows.push(row),
                Err(why) => leave_out(cell, why, false),
            },
            (Status::Ok, _) => {
                leave_out(cell, format!("in B {}", unmeasured(other)), lost(other));
            }
            (_, Status::Ok) => leave_out(cell, format!("in A {}", unmeasured(cell)), false),
            _ => leave_out(cell, format!("in both: {}", unmeasured(other)), false),
        }
    }
    for cell in new.cells.iter().filter(|cell| counterpart(cell, base).is_none()) {
        match unmeasured_task(cell, base) {
            Some(other) => leave_out(cell, format!("in A {}", unmeasured(other)), false),
            // The row is already listed above, with B's reason.
            None if base.cells.iter().any(|other| stands_for(cell, other)) => {}
            None => leave_out(cell, "only in B".into(), false),
        }
    }
    (rows, not_compared)
}

fn counterpart<'a>(cell: &'a Cell, run: &'a Results) -> Option<&'a Cell> {
    run.cells.iter().find(|other| {
        (&other.experiment, &other.variant, &other.params, &other.metric)
            == (&cell.experiment, &cell.variant, &cell.params, &cell.metric)
    })
}

/// Returns the row of `run` that contains the reason why the task of `cell` has no figures there.
fn unmeasured_task<'a>(cell: &'a Cell, run: &'a Results) -> Option<&'a Cell> {
    run.cells.iter().find(|other| stands_for(other, cell))
}

/// Returns `true` if `empty` represents the whole task of `cell`. Such a row lacks the parameters
/// that its samples would have added.
fn stands_for(empty: &Cell, cell: &Cell) -> bool {
    empty.status != Status::Ok
        && (&empty.experiment, &empty.variant) == (&cell.experiment, &cell.variant)
        && empty.params.iter().all(|(key, value)| cell.params.get(key) == Some(value))
}

fn unmeasured(cell: &Cell) -> String {
    let what = if cell.status == Status::Failed { "failed" } else { "skipped" };
    format!("{what}: {}", cell.why.as_deref().unwrap_or("no reason given"))
}

fn row(
    base: &Cell,
    new: &Cell,
    same_machine: bool,
) -> Result<(ComparedRow, ScaledFigures), String> {
    if base.unit != new.unit {
        return Err(format!("the units differ: {} and {}", base.unit, new.unit));
    }
    if base.statistic != new.statistic {
        return Err("the statistics differ: median and mean".into());
    }
    let figures = |cell: &Cell| -> Vec<f64> {
        cell.invocations.iter().map(|one| one.summary.figure(cell.statistic)).collect()
    };
    let (before, after) = (figures(base), figures(new));
    let (Some(base_median), Some(new_median)) = (order::median(&before), order::median(&after))
    else {
        return Err("no invocations, or figures that are not finite".into());
    };
    let positive = before.iter().chain(&after).all(|&figure| figure > 0.0);
    let scale = if positive && base.unit != "share" {
        ChangeScale::Quotient
    } else {
        ChangeScale::Difference
    };
    let screen = stage_one(base, new, (&before, &after), scale, same_machine)
        .ok_or_else(|| "figures that are not finite".to_owned())?;
    let doubtful = |name: &str, cell: &Cell| {
        let doubt = cell.notes.iter().find(|note| note.starts_with("unstable:"));
        doubt.map(|doubt| format!("{name} {doubt}"))
    };
    let groups = ScaledFigures::of(base, new, scale, [&before, &after]);
    let row = ComparedRow {
        experiment: base.experiment.clone(),
        variant: base.variant.clone(),
        params: base.params.clone(),
        metric: base.metric.clone(),
        unit: base.unit.clone(),
        worse: direction(&base.metric, &base.unit),
        scale,
        base: base_median,
        new: new_median,
        invocations: (before.len(), after.len()),
        screen,
        again: None,
        fails: false,
        smallest: None,
        verdict: RowVerdict::NoneResolved,
        regression: false,
        notes: doubtful("A", base).into_iter().chain(doubtful("B", new)).collect(),
    };
    Ok((row, groups))
}

/// The figures of a row on its scale, one per invocation.
struct ScaledFigures {
    base: Vec<f64>,
    new: Vec<f64>,
    /// For a share that never varied, the resolution, which follows from the number of tries
    /// instead of the spread.
    least: Option<f64>,
}

impl ScaledFigures {
    fn of(base: &Cell, new: &Cell, scale: ChangeScale, figures: [&[f64]; 2]) -> Self {
        let [before, after] = figures.map(|figures| placed(figures, scale));
        let invocations = base.invocations.iter().chain(&new.invocations);
        let tries = invocations.map(|one| one.summary.tries()).min().unwrap_or(0);
        let least = resolution::share(tries, before.len().min(after.len()));
        Self { base: before, new: after, least: least.filter(|_| base.unit == "share") }
    }

    /// Returns the smallest difference that the screen could have resolved with `confidence`.
    fn smallest(&self, scale: ChangeScale, confidence: f64) -> Option<f64> {
        let distance = resolution::unpaired(&self.base, &self.new, confidence)?;
        Some(scale.amount(distance).max(self.least.unwrap_or(0.0)))
    }
}

fn placed(figures: &[f64], scale: ChangeScale) -> Vec<f64> {
    figures.iter().map(|&figure| scale.place(figure)).collect()
}

fn stage_one(
    base: &Cell,
    new: &Cell,
    (before, after): (&[f64], &[f64]),
    scale: ChangeScale,
    same_machine: bool,
) -> Option<Screen> {
    let shift = shift(&placed(before, scale), &placed(after, scale), CONFIDENCE)?;
    let drawn = (!same_machine && scale == ChangeScale::Quotient)
        .then(|| {
            // Each row derives its own seed from its name, so that the same files give the same
            // interval.
            let name = named(&base.experiment, &base.variant, &base.params, &base.metric);
            let seed = name.bytes().fold(0_u64, |seed, byte| seed.rotate_left(5) ^ u64::from(byte));
            quotient(&levels(base), &levels(new), CONFIDENCE, seed)
        })
        .flatten();
    let as_change = |interval: Interval, change: fn(ChangeScale, f64) -> f64| Change {
        estimate: change(scale, interval.estimate),
        low: change(scale, interval.low),
        high: change(scale, interval.high),
        confidence: CONFIDENCE,
    };
    let method = if drawn.is_some() { "bootstrap" } else { "mann-whitney" };
    let change = match drawn {
        Some(drawn) => Some(as_change(drawn, |_, quotient| quotient)),
        None => shift.interval.map(|interval| as_change(interval, ChangeScale::change)),
    };
    let flagged = change.map_or_else(
        // There are too few values for an interval, so the row is flagged if its two groups do not
        // overlap.
        || apart(before, after),
        |change| change.resolves(scale),
    );
    Some(Screen {
        method: method.into(),
        change,
        p: shift.p,
        p_corrected: shift.p,
        smallest: None,
        smallest_alone: None,
        flagged,
    })
}

fn apart(one: &[f64], other: &[f64]) -> bool {
    let below = |low: &[f64], high: &[f64]| {
        let least = high.iter().copied().fold(f64::INFINITY, f64::min);
        low.iter().all(|&figure| figure < least)
    };
    one.len() > 1 && other.len() > 1 && (below(one, other) || below(other, one))
}

fn levels(cell: &Cell) -> Vec<InvocationFigure> {
    cell.invocations.iter().map(|one| InvocationFigure::of(cell.statistic, one)).collect()
}

/// An invocation and the distribution of its figure.
struct InvocationFigure {
    figure: f64,
    /// Number of independent samples to which the invocation's samples are equivalent.
    worth: f64,
    inside: Inside,
}

enum Inside {
    /// For a mean, the standard deviation of the samples.
    Deviation(f64),
    /// For a median, all samples, as recorded in the file.
    Histogram(Box<Histogram<u64>>),
}

impl InvocationFigure {
    fn of(statistic: Statistic, invocation: &Invocation) -> Self {
        let summary = &invocation.summary;
        let inside = match statistic {
            Statistic::Mean => Inside::Deviation(summary.deviation),
            // Without a readable histogram, the invocation's own error is unknown and counts as
            // zero.
            Statistic::Median => summary
                .samples()
                .filter(|all| !all.is_empty())
                .map_or(Inside::Deviation(0.0), |all| Inside::Histogram(Box::new(all))),
        };
        Self {
            figure: summary.figure(statistic),
            worth: summary.effective_count.clamp(1.0, summary.count.max(1) as f64),
            inside,
        }
    }
}

impl bootstrap::Resample for InvocationFigure {
    fn figure(&self, deviate: f64) -> f64 {
        match &self.inside {
            Inside::Deviation(deviation) => self.figure + deviate * deviation / self.worth.sqrt(),
            Inside::Histogram(all) => {
                let place = (0.5 + deviate * 0.5 / self.worth.sqrt()).clamp(0.0, 1.0);
                let [drawn, middle] = [place, 0.5].map(|place| all.value_at_quantile(place) as f64);
                if middle > 0.0 { self.figure * drawn / middle } else { self.figure }
            }
        }
    }
}

fn answers(base: &Results, new: &Results) -> Vec<EventAnswer> {
    let mut changed = Vec::new();
    for row in &base.tried {
        let other = new.tried.iter().find(|other| {
            (&other.experiment, &other.variant, &other.tried.event)
                == (&row.experiment, &row.variant, &row.tried.event)
        });
        if let Some(other) = other.filter(|other| other.tried.says != row.tried.says) {
            changed.push(EventAnswer {
                mechanism: format!("{}/{}", row.experiment, row.variant),
                event: row.tried.event.clone(),
                truth: row.tried.truth.clone(),
                base: row.tried.says.clone(),
                new: other.tried.says.clone(),
            });
        }
    }
    changed
}
