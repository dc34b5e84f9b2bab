//! The six numbers at the head of a report: [`headlines`].
//!
//! Each is a figure of the run with its interval, or a ratio of two figures. A number that the run
//! did not measure is left out.

use tontine_bench::about::Idling;
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Results};

use super::compared::CellQuotient;
use super::survivors::{Fate, Rated, mechanisms};
use super::{Cells, decide};

/// One of the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// The quantity, in a few words.
    pub label: &'static str,
    /// The figure and its interval.
    pub shown: FormattedFigure,
    /// What the figure is to be compared with, in a few words; empty if there is nothing.
    pub beside: String,
    /// Both ends of the interval, and the scale of a bar that shows them.
    pub extent: Extent,
}

/// The ends of an interval, and the quantity that they measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// A time in ns.
    Time(f64, f64),
    /// A share from 0 to 1.
    Share(f64, f64),
    /// A ratio.
    Ratio(f64, f64),
}

/// Returns the numbers that the run supports, at most six.
pub fn headlines(results: &Results) -> Vec<Headline> {
    let trips = Cells::of(results, "round-trip", "one_way").commonest_params();
    let mailbox = |receiver: Idling| {
        results.mechanisms.iter().find_map(|mechanism| {
            let ours = mechanism.name.starts_with("mailbox") && mechanism.receiver == receiver;
            trips.named(&mechanism.name).filter(|_| ours)
        })
    };
    let spinning = mailbox(Idling::Spins).or_else(|| trips.named("flag"));
    let floor = trips.named("flag").filter(|flag| spinning != Some(*flag));
    let sleeping = mailbox(Idling::Sleeps).or_else(|| trips.named("futex"));
    let checks = Cells::of(results, "liveness-check", "check").commonest_params();
    let check = checks.named("life-word").or_else(|| checks.named("load"));
    [
        spinning.and_then(|cell| time("message, both spin", cell, floor)),
        sleeping.and_then(|cell| time("message, receiver sleeps", cell, None)),
        check.and_then(|cell| time("liveness check", cell, checks.named("kill-0"))),
        kills(results),
        process(results),
        padding(results),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the number of a cell in ns, beside the figure of another cell.
fn time(label: &'static str, cell: &Cell, other: Option<&Cell>) -> Option<Headline> {
    let beside = other.and_then(|other| {
        Some(format!("{} {}", other.variant, FormattedFigure::of_cell(other)?.value))
    });
    Some(Headline {
        label,
        shown: FormattedFigure::of_cell(cell)?,
        beside: beside.unwrap_or_default(),
        extent: Extent::Time(cell.low?, cell.high?),
    })
}

/// Returns the share of kills after which the other end of a mailbox hung, beside the mechanism
/// with the largest share.
fn kills(results: &Results) -> Option<Headline> {
    let all = mechanisms(results);
    fn wedged<'a>(row: &Rated<'a>) -> Option<&'a Cell> {
        match row.fate {
            Fate::Killed { wedged, .. } => Some(wedged),
            _ => None,
        }
    }
    let ours = all.iter().find(|row| row.name.starts_with("mailbox")).and_then(wedged)?;
    let worst = all.iter().filter_map(|row| Some((row.name, wedged(row)?)));
    let worst = worst
        .max_by(|(_, a), (_, b)| a.estimate.unwrap_or(0.0).total_cmp(&b.estimate.unwrap_or(0.0)));
    let beside = worst
        .and_then(|(name, cell)| Some(format!("{name} {}", format::tick("share", cell.estimate?))));
    let (low, high) = format::ends(ours)?;
    Some(Headline {
        label: "kills that hang the peer",
        shown: FormattedFigure::of_cell(ours)?,
        beside: beside.unwrap_or_default(),
        extent: Extent::Share(low, high),
    })
}

fn process(results: &Results) -> Option<Headline> {
    let (thread, process) = decide::made(results)?;
    let beside = FormattedFigure::of_cell(thread)
        .map_or_else(String::new, |shown| format!("thread {}", shown.value));
    Some(Headline {
        label: "create and end a process",
        shown: FormattedFigure::of_cell(process)?,
        beside,
        extent: Extent::Time(process.low?, process.high?),
    })
}

fn padding(results: &Results) -> Option<Headline> {
    let (near, far) = decide::distances(results)?;
    let times = CellQuotient::of(near, far, results)?;
    let (low, high) = times.ends();
    Some(Headline {
        label: "false sharing",
        shown: times.shown(),
        beside: String::new(),
        extent: Extent::Ratio(low, high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::fixture;

    #[test]
    fn headline_has_interval_and_comparison() {
        let results = fixture::run();
        let all = headlines(&results);
        assert!(all.len() >= 3, "{all:#?}");
        let check = all.iter().find(|one| one.label == "liveness check").expect("measured");
        assert!(check.beside.starts_with("kill-0 "), "{check:?}");
        assert!(all.iter().all(|one| !one.shown.interval.is_empty()), "{all:#?}");
    }

    #[test]
    fn unmeasured_number_is_left_out() {
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == "liveness-check");
        let labels: Vec<&str> = headlines(&results).iter().map(|one| one.label).collect();
        assert_eq!(labels, ["liveness check"]);
    }
}
