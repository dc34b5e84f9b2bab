//! Conversion of deliveries into metrics: [`compared`] and [`watched`]. Differences are in ticks
//! and never clamped.

use super::stamps::Stamps;
use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeliveryStamps {
    pub(crate) before: u64,
    pub(crate) returned: u64,
    /// The receiver's last stamp, or its stamp at the signal's arrival.
    pub(crate) last: u64,
}

impl DeliveryStamps {
    /// Returns the ticks by which the call returned after the receiver's last stamp, if the
    /// receiver's counter is `offset` ticks ahead of ours. Zero (a tie) or less means that the
    /// receiver's stamp was later.
    pub(crate) fn lead(&self, offset: i64) -> i64 {
        self.returned.wrapping_add_signed(offset).wrapping_sub(self.last).cast_signed()
    }

    /// Returns `true` if the call returned after the receiver's last stamp; a tie returns `false`.
    pub(crate) fn parent_after(&self, offset: i64) -> bool {
        self.lead(offset) > 0
    }

    /// Returns the ticks of the call, and those from before the call to the last stamp.
    pub(super) fn send_and_receive(&self) -> (i64, i64) {
        (between(self.before, self.returned), between(self.before, self.last))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct WatchedDelivery {
    pub(super) before: u64,
    pub(super) returned: u64,
    /// The time when the receiver's stamp last changed, if it changed after the call had returned.
    pub(super) last_change: Option<u64>,
    /// `true` if this change fell between our last poll and the receiver's end, so that its time is
    /// only an upper bound.
    pub(super) late: bool,
}

/// Returns the metrics of deliveries whose last stamp is the receiver's own.
pub(super) fn compared(all: &[DeliveryStamps], stamps: Stamps, band: Option<Band>) -> Observed {
    let mut observed = Observed::default();
    observed.notes.extend(band.map(|band| band_note(all, band)));
    let mut ticks = Ticks::default();
    for delivery in all {
        let after = delivery.parent_after(0);
        let by = if after { &mut ticks.parent_after_by } else { &mut ticks.child_after_by };
        by.push(delivery.lead(0).abs());
        ticks.parent_after.push(after);
        let (send, receive) = delivery.send_and_receive();
        ticks.send.push(send);
        ticks.receive.push(receive);
    }
    ticks.add_to(&mut observed, stamps, true);
    observed
}

/// Returns the metrics of deliveries that one clock observed.
pub(super) fn watched(all: &[WatchedDelivery], stamps: Stamps) -> Observed {
    let mut observed = Observed::default();
    observed.notes.push(
        "one clock: what the receiver did before kill returned is not seen, so there is no \
         parent_after_by, and receive covers the child-after deliveries only"
            .into(),
    );
    let late = all.iter().filter(|one| one.late).count();
    if late > 0 {
        observed.notes.push(format!(
            "{late} last changes fell between our last poll and the receiver's end: upper bounds"
        ));
    }
    let mut ticks = Ticks::default();
    for &WatchedDelivery { before, returned, last_change, .. } in all {
        ticks.parent_after.push(last_change.is_none());
        ticks.send.push(between(before, returned));
        if let Some(changed) = last_change {
            ticks.child_after_by.push(between(returned, changed));
            ticks.receive.push(between(before, changed));
        }
    }
    ticks.add_to(&mut observed, stamps, false);
    observed
}

#[derive(Default)]
struct Ticks {
    parent_after: Vec<bool>,
    child_after_by: Vec<i64>,
    parent_after_by: Vec<i64>,
    send: Vec<i64>,
    receive: Vec<i64>,
}

impl Ticks {
    fn add_to(self, observed: &mut Observed, stamps: Stamps, sees_parent: bool) {
        if !stamps.are_cycles() {
            observed.notes.push(
                "the calibrated clock is not the time-stamp counter of an x86-64 processor: no \
                 figures in cycles"
                    .into(),
            );
        }
        let all = self.receive.len();
        let received: Vec<i64> = self.receive.into_iter().filter(|&ticks| ticks >= 0).collect();
        let early = all - received.len();
        if early > 0 {
            observed.notes.push(format!(
                "{early} of {all} last stamps precede the call, because the receiver did not run \
                 when the signal was sent, or its counter is behind: omitted from receive"
            ));
        }
        observed.series.push(Series::share("parent_after", self.parent_after));
        for (metric, ticks, in_cycles) in [
            ("child_after_by", self.child_after_by, true),
            ("parent_after_by", self.parent_after_by, true),
            ("send", self.send, false),
            ("receive", received, false),
        ] {
            if metric == "parent_after_by" && !sees_parent {
                continue;
            }
            if ticks.is_empty() {
                observed.notes.push(format!("no delivery had a {metric}: omitted"));
                continue;
            }
            let ns = ticks.iter().map(|&ticks| stamps.clock().ns(ticks)).collect();
            observed.series.push(Series::ns(metric, ns));
            if in_cycles && stamps.are_cycles() {
                let cycles = ticks.iter().map(|&ticks| ticks as f64).collect();
                let series = Series::ns(&format!("{metric}_cycles"), cycles).in_unit("cycles");
                observed.series.push(series);
            }
        }
    }
}

/// Returns the share of the deliveries in which the call returned after the receiver's last stamp,
/// if the receiver's counter is `offset` ticks ahead of ours.
fn share_at(all: &[DeliveryStamps], offset: i64) -> f64 {
    let after = all.iter().filter(|one| one.parent_after(offset)).count();
    after as f64 / all.len() as f64
}

fn band_note(all: &[DeliveryStamps], Band { low, high }: Band) -> String {
    format!(
        "offset band: the receiver's counter is {low} to {high} ticks ahead of the sender's; \
         parent_after would be {:.4} at the lower end and {:.4} at the upper",
        share_at(all, low),
        share_at(all, high)
    )
}

fn between(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(returned: u64, last: u64) -> DeliveryStamps {
        DeliveryStamps { before: 100, returned, last }
    }

    #[test]
    fn equal_stamps_count_as_child_after() {
        let after = [499, 500, 501].map(|returned| delivery(returned, 500).parent_after(0));
        assert_eq!(after, [false, false, true]);
        let tie = [delivery(500, 500)];
        let observed = compared(&tie, Stamps::new(Clock::monotonic()), None);
        assert_eq!(series(&observed, "child_after_by").samples, [0.0]);
        assert!(observed.notes.iter().any(|note| note.contains("parent_after_by: omitted")));
    }

    #[test]
    fn ends_of_the_offset_band_shift_the_share() {
        let all = [460, 490, 510, 540].map(|last| delivery(500, last));
        // If their counter is behind, they were later.
        assert_eq!([0, -20, 20].map(|offset| share_at(&all, offset)), [0.5, 0.25, 0.75]);
        let note = band_note(&all, Band { low: -20, high: 20 });
        assert!(note.contains("0.2500 at the lower") && note.contains("0.7500 at the upper"));
    }

    #[test]
    fn last_stamp_before_the_call_has_no_time_to_receive() {
        let all = [delivery(500, 60), delivery(500, 130)];
        let observed = compared(&all, Stamps::new(Clock::monotonic()), None);
        assert_eq!(series(&observed, "receive").samples, [30.0]);
        let noted = |note: &String| note.starts_with("1 of 2 last stamps precede the call");
        assert!(observed.notes.iter().any(noted), "{:?}", observed.notes);
    }
}
