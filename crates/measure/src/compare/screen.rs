//! The first stage: every row of two files, by what the files hold: [`screen()`].
//!
//! The unit is an invocation, as everywhere. Runs of one machine are compared by Mann and Whitney's
//! test, runs of two by the hierarchical bootstrap of the quotient. A row is flagged where its 95 %
//! interval leaves out "no change": uncorrected, because a flag only asks for a second measurement.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use super::direction::direction;
use super::machines;
use super::read::Side;
use super::{
    About, Again, Answer, Change, Comparison, NotCompared, Row, SCHEMA, Scale, Screen, Verdict,
    named,
};
use crate::observe::Statistic;
use crate::report::schema::{Cell, Invocation, Results, Status};
use crate::stats::bootstrap::{self, quotient};
use crate::stats::interval::{CONFIDENCE, Interval};
use crate::stats::shift::shift;
use crate::stats::{many, order, resolution};

/// Compares all rows. Verdicts are those of the screen alone until
/// [`judge`](Comparison::judge) has been called after a second stage.
pub fn screen(base: &Side, new: &Side, threshold_percent: f64) -> Comparison {
    let machines = machines::differences(&base.results.machine, &new.results.machine);
    let builds = machines::builds(&base.results.machine, &new.results.machine);
    let (mut rows, not_compared) = rows(&base.results, &new.results, machines.is_empty());
    let p: Vec<f64> = rows.iter().map(|row| row.screen.p).collect();
    for (row, corrected) in rows.iter_mut().zip(many::false_discovery(&p)) {
        row.screen.p_corrected = corrected;
    }
    let mut comparison = Comparison {
        comparison: SCHEMA,
        base: about(base),
        new: about(new),
        warnings: warnings(base, new),
        machines,
        builds,
        threshold_percent,
        again: Again::NotNeeded,
        complete: true,
        regressions: 0,
        rows,
        not_compared,
        answers: answers(&base.results, &new.results),
    };
    if comparison.rows.iter().any(|row| row.screen.flagged) {
        comparison.again = Again::NotMade { why: "nobody asked for it".into() };
    }
    comparison.judge();
    comparison
}

fn about(side: &Side) -> About {
    let summary = side.results.machine.get("summary").and_then(|text| text.as_str());
    About {
        path: side.path.display().to_string(),
        started: side.results.started.clone(),
        size: side.results.size,
        complete: side.results.complete,
        machine: summary.unwrap_or("a machine that its file does not name").into(),
        executable: side.results.executable.clone(),
    }
}

fn warnings(base: &Side, new: &Side) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, side) in [("A", base), ("B", new)] {
        if !side.results.complete {
            warnings.push(format!(
                "{name} is incomplete: its run was interrupted, and rows rest on what there was"
            ));
        }
        if side.results.machine.pointer("/build/debug") == Some(&true.into()) {
            warnings.push(format!(
                "{name} was made by a build with checks for debugging; build with --release"
            ));
        }
    }
    let (base, new) = (base.results.size, new.results.size);
    if base != new {
        warnings.push(format!(
            "the sizes differ, {} and {}: an invocation of the one measures more operations than \
             one of the other, which by itself can move a figure",
            said(base),
            said(new)
        ));
    }
    warnings
}

fn said(size: crate::size::Size) -> String {
    format!("{size:?}").to_lowercase()
}

fn rows(base: &Results, new: &Results, same_machine: bool) -> (Vec<Row>, Vec<NotCompared>) {
    let (mut rows, mut not_compared) = (Vec::new(), Vec::new());
    let mut leave_out = |cell: &Cell, why: String| {
        let name = named(&cell.experiment, &cell.variant, &cell.params, &cell.metric);
        not_compared.push(NotCompared { name, why });
    };
    for cell in &base.cells {
        let Some(other) = counterpart(cell, new) else {
            match of_same_task(cell, new).find(|other| other.status != Status::Ok) {
                Some(other) => leave_out(cell, format!("in B {}", unmeasured(other))),
                None => leave_out(cell, "only in A".into()),
            }
            continue;
        };
        match (cell.status, other.status) {
            (Status::Ok, Status::Ok) => match row(cell, other, same_machine) {
                Ok(row) => rows.push(row),
                Err(why) => leave_out(cell, why),
            },
            (Status::Ok, _) => leave_out(cell, format!("in B {}", unmeasured(other))),
            (_, Status::Ok) => leave_out(cell, format!("in A {}", unmeasured(cell))),
            _ => leave_out(cell, format!("in both: {}", unmeasured(other))),
        }
    }
    for cell in new.cells.iter().filter(|cell| counterpart(cell, base).is_none()) {
        match of_same_task(cell, base).find(|other| other.status != Status::Ok) {
            Some(other) => leave_out(cell, format!("in A {}", unmeasured(other))),
            // Said above, with B's reason.
            None if cell.status != Status::Ok && of_same_task(cell, base).next().is_some() => {}
            None => leave_out(cell, "only in B".into()),
        }
    }
    (rows, not_compared)
}

fn of_same_task<'a>(cell: &'a Cell, run: &'a Results) -> impl Iterator<Item = &'a Cell> {
    run.cells.iter().filter(move |other| {
        (&other.experiment, &other.variant, &other.params)
            == (&cell.experiment, &cell.variant, &cell.params)
    })
}

fn counterpart<'a>(cell: &'a Cell, run: &'a Results) -> Option<&'a Cell> {
    of_same_task(cell, run).find(|other| other.metric == cell.metric)
}

fn unmeasured(cell: &Cell) -> String {
    let what = if cell.status == Status::Failed { "failed" } else { "skipped" };
    format!("{what}: {}", cell.why.as_deref().unwrap_or("no reason given"))
}

/// One row, or why there is none.
fn row(base: &Cell, new: &Cell, same_machine: bool) -> Result<Row, String> {
    if base.unit != new.unit {
        return Err(format!("the units differ: {} and {}", base.unit, new.unit));
    }
    if base.statistic != new.statistic {
        return Err("the statistics differ: median and mean".into());
    }
    let figures = |cell: &Cell| -> Vec<f64> {
        cell.invocations.iter().map(|one| standing(cell.statistic, one)).collect()
    };
    let (before, after) = (figures(base), figures(new));
    let (Some(base_median), Some(new_median)) = (order::median(&before), order::median(&after))
    else {
        return Err("no invocations, or figures that are no numbers".into());
    };
    let positive = before.iter().chain(&after).all(|&figure| figure > 0.0);
    let scale = if positive && base.unit != "share" { Scale::Quotient } else { Scale::Difference };
    let screen = stage_one(base, new, (&before, &after), scale, same_machine)
        .ok_or_else(|| "figures that are no numbers".to_owned())?;
    let doubtful = |name: &str, cell: &Cell| {
        let doubt = cell.notes.iter().find(|note| note.starts_with("unstable:"));
        doubt.map(|doubt| format!("{name} {doubt}"))
    };
    Ok(Row {
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
        verdict: Verdict::NoneResolved,
        regression: false,
        notes: doubtful("A", base).into_iter().chain(doubtful("B", new)).collect(),
    })
}

fn stage_one(
    base: &Cell,
    new: &Cell,
    (before, after): (&[f64], &[f64]),
    scale: Scale,
    same_machine: bool,
) -> Option<Screen> {
    let place = |figures: &[f64]| -> Vec<f64> {
        figures.iter().map(|&figure| scale.place(figure)).collect()
    };
    let (placed_before, placed_after) = (place(before), place(after));
    let shift = shift(&placed_before, &placed_after, CONFIDENCE)?;
    let drawn = (!same_machine && scale == Scale::Quotient)
        .then(|| {
            // One seed a row, from its name: the same files give the same interval.
            let name = named(&base.experiment, &base.variant, &base.params, &base.metric);
            let seed = name.bytes().fold(0_u64, |seed, byte| seed.rotate_left(5) ^ u64::from(byte));
            quotient(&levels(base), &levels(new), CONFIDENCE, seed)
        })
        .flatten();
    let as_change = |interval: Interval, change: fn(Scale, f64) -> f64| Change {
        estimate: change(scale, interval.estimate),
        low: change(scale, interval.low),
        high: change(scale, interval.high),
        confidence: CONFIDENCE,
    };
    let method = if drawn.is_some() { "bootstrap" } else { "mann-whitney" };
    let change = match drawn {
        Some(drawn) => Some(as_change(drawn, |_, quotient| quotient)),
        None => shift.interval.map(|interval| as_change(interval, Scale::change)),
    };
    let flagged = change.map_or_else(
        // Too few for an interval: whatever lies apart altogether is worth another look.
        || apart(before, after),
        |change| change.resolves(scale),
    );
    let smallest = resolution::unpaired(&placed_before, &placed_after)
        .filter(|_| change.is_some())
        .map(|distance| scale.amount(distance));
    let smallest = if base.unit == "share" { of_share(smallest, base, new) } else { smallest };
    Some(Screen {
        method: method.into(),
        change,
        p: shift.p,
        p_corrected: shift.p,
        smallest,
        flagged,
    })
}

/// Of a share that never varied, no spread tells what could have been seen; the tries do.
fn of_share(smallest: Option<f64>, base: &Cell, new: &Cell) -> Option<f64> {
    let fewest = base.invocations.len().min(new.invocations.len());
    let invocations = base.invocations.iter().chain(&new.invocations);
    let tries = invocations.map(|one| one.summary.count).min()?;
    smallest.map(|smallest| {
        resolution::share(tries, fewest).map_or(smallest, |share| share.max(smallest))
    })
}

fn apart(one: &[f64], other: &[f64]) -> bool {
    let below = |low: &[f64], high: &[f64]| {
        let least = high.iter().copied().fold(f64::INFINITY, f64::min);
        low.iter().all(|&figure| figure < least)
    };
    one.len() > 1 && other.len() > 1 && (below(one, other) || below(other, one))
}

/// The figure that stands for an invocation.
fn standing(statistic: Statistic, invocation: &Invocation) -> f64 {
    match statistic {
        Statistic::Median => invocation.summary.median,
        Statistic::Mean => invocation.summary.mean,
    }
}

fn levels(cell: &Cell) -> Vec<Level> {
    cell.invocations.iter().map(|one| Level::of(cell.statistic, one)).collect()
}

/// An invocation with what its figure could have been.
struct Level {
    figure: f64,
    /// Independent samples that it is worth.
    worth: f64,
    inside: Inside,
}

enum Inside {
    /// Of a mean: its samples' deviation.
    Deviation(f64),
    /// Of a median: all samples, as the file has them.
    Histogram(Box<Histogram<u64>>),
}

impl Level {
    fn of(statistic: Statistic, invocation: &Invocation) -> Self {
        let summary = &invocation.summary;
        let inside = match statistic {
            Statistic::Mean => Inside::Deviation(summary.deviation),
            // Without a histogram that can be read, the invocation has no error of its own.
            Statistic::Median => decoded(&summary.histogram)
                .map_or(Inside::Deviation(0.0), |all| Inside::Histogram(Box::new(all))),
        };
        Self {
            figure: standing(statistic, invocation),
            worth: summary.effective_count.clamp(1.0, summary.count.max(1) as f64),
            inside,
        }
    }
}

fn decoded(histogram: &str) -> Option<Histogram<u64>> {
    let bytes = BASE64_STANDARD.decode(histogram).ok()?;
    let all: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
    (!all.is_empty()).then_some(all)
}

impl bootstrap::Again for Level {
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

fn answers(base: &Results, new: &Results) -> Vec<Answer> {
    let mut changed = Vec::new();
    for row in &base.tried {
        let other = new.tried.iter().find(|other| {
            (&other.experiment, &other.variant, &other.tried.event)
                == (&row.experiment, &row.variant, &row.tried.event)
        });
        if let Some(other) = other.filter(|other| other.tried.says != row.tried.says) {
            changed.push(Answer {
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
