//! Conversion of deliveries into metrics: [`DeliveryStamps`], [`DeliveryTally`].

use tontine_bench::observe::{Observed, Series};
use tontine_host::clock::offset::Band;

use super::stamps::Stamps;

/// The stamps of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeliveryStamps {
    /// The sender's stamp before the call.
    pub(crate) before: u64,
    /// The sender's stamp after the call.
    pub(crate) returned: u64,
    /// The receiver's last stamp, or its stamp at the handler's entry.
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
}

/// All deliveries of an invocation, in order; differences are in ticks and never clamped.
#[derive(Debug, Default)]
pub(crate) struct DeliveryTally {
    compared: Vec<DeliveryStamps>,
    parent_after: Vec<f64>,
    child_after_by: Vec<i64>,
    parent_after_by: Vec<i64>,
    send: Vec<i64>,
    receive: Vec<i64>,
    /// Number of watched receivers whose last change fell between our last poll and the receiver's
    /// end.
    late: usize,
    watched: bool,
}

impl DeliveryTally {
    /// Creates an empty tally with capacity for `deliveries`, so that adding a delivery does not
    /// allocate.
    pub(crate) fn with_capacity(deliveries: usize) -> Self {
        Self {
            compared: Vec::with_capacity(deliveries),
            parent_after: Vec::with_capacity(deliveries),
            child_after_by: Vec::with_capacity(deliveries),
            parent_after_by: Vec::with_capacity(deliveries),
            send: Vec::with_capacity(deliveries),
            receive: Vec::with_capacity(deliveries),
            late: 0,
            watched: false,
        }
    }

    /// Adds a delivery whose last stamp is the receiver's own.
    pub(crate) fn add(&mut self, delivery: DeliveryStamps) {
        let lead = delivery.lead(0);
        if delivery.parent_after(0) {
            self.parent_after.push(1.0);
            self.parent_after_by.push(lead);
        } else {
            self.parent_after.push(0.0);
            self.child_after_by.push(-lead);
        }
        self.send.push(between(delivery.before, delivery.returned));
        self.receive.push(between(delivery.before, delivery.last));
        self.compared.push(delivery);
    }

    /// Adds a delivery that one clock observed. If the sender saw the receiver's stamp change after
    /// the call had returned, `last_change` is the time when it last did. `late` means that this
    /// time is only an upper bound.
    pub(crate) fn add_watched(
        &mut self,
        before: u64,
        returned: u64,
        last_change: Option<u64>,
        late: bool,
    ) {
        self.watched = true;
        self.late += usize::from(late);
        self.send.push(between(before, returned));
        match last_change {
            Some(changed) => {
                self.parent_after.push(0.0);
                self.child_after_by.push(between(returned, changed));
                self.receive.push(between(before, changed));
            }
            None => self.parent_after.push(1.0),
        }
    }

    /// Returns the share of the compared deliveries in which the call returned after the receiver's
    /// last stamp, if the receiver's counter is `offset` ticks ahead of ours.
    pub(crate) fn share_at(&self, offset: i64) -> f64 {
        let after = self.compared.iter().filter(|one| one.parent_after(offset)).count();
        after as f64 / self.compared.len() as f64
    }

    /// Returns the metrics with their notes.
    pub(crate) fn into_observed(self, stamps: Stamps, band: Option<Band>) -> Observed {
        let mut observed = Observed::default();
        if let Some(band) = band {
            observed.notes.push(self.band_note(band));
        }
        if self.watched {
            observed.notes.push(
                "one clock: what the receiver did before kill returned is not seen, so there is \
                 no parent_after_by, and receive covers the child-after deliveries only"
                    .into(),
            );
            if self.late > 0 {
                observed.notes.push(format!(
                    "{} last changes fell between our last poll and the receiver's end: upper \
                     bounds",
                    self.late
                ));
            }
        }
        if !stamps.are_cycles() {
            observed.notes.push(
                "the calibrated clock is not the time-stamp counter of an x86-64 processor: no \
                 figures in cycles"
                    .into(),
            );
        }
        let (received, early): (Vec<i64>, Vec<i64>) =
            self.receive.iter().partition(|&&ticks| ticks >= 0);
        if !early.is_empty() {
            observed.notes.push(format!(
                "{} of {} last stamps precede the call, because the receiver did not run when the \
                 signal was sent, or its counter is behind: omitted from receive",
                early.len(),
                self.receive.len()
            ));
        }
        let share = Series::ns("parent_after", self.parent_after).in_unit("share").by_mean();
        observed.series.push(share);
        for (metric, ticks) in
            [("child_after_by", &self.child_after_by), ("parent_after_by", &self.parent_after_by)]
        {
            if self.watched && metric == "parent_after_by" {
                continue;
            }
            add_ns(&mut observed, metric, ticks, stamps);
            if stamps.are_cycles() && !ticks.is_empty() {
                let cycles = ticks.iter().map(|&ticks| ticks as f64).collect();
                let series = Series::ns(&format!("{metric}_cycles"), cycles).in_unit("cycles");
                observed.series.push(series);
            }
        }
        add_ns(&mut observed, "send", &self.send, stamps);
        add_ns(&mut observed, "receive", &received, stamps);
        observed
    }

    fn band_note(&self, band: Band) -> String {
        format!(
            "offset band: the receiver's counter is {} to {} ticks ahead of the sender's; \
             parent_after would be {:.4} at the lower end and {:.4} at the upper",
            band.low,
            band.high,
            self.share_at(band.low),
            self.share_at(band.high)
        )
    }
}

/// Adds the series in nanoseconds, or a note if it is empty.
fn add_ns(observed: &mut Observed, metric: &str, ticks: &[i64], stamps: Stamps) {
    if ticks.is_empty() {
        observed.notes.push(format!("no delivery had a {metric}: omitted"));
    } else {
        let ns = ticks.iter().map(|&ticks| stamps.clock().ns(ticks)).collect();
        observed.series.push(Series::ns(metric, ns));
    }
}

fn between(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::clock::Clock;

    fn delivery(returned: u64, last: u64) -> DeliveryStamps {
        DeliveryStamps { before: 100, returned, last }
    }

    #[test]
    fn equal_stamps_count_as_child_after() {
        assert!(!delivery(500, 500).parent_after(0));
        assert!(delivery(501, 500).parent_after(0));
        assert!(!delivery(499, 500).parent_after(0));
        let mut tally = DeliveryTally::with_capacity(1);
        tally.add(delivery(500, 500));
        let observed = tally.into_observed(Stamps::new(Clock::monotonic()), None);
        let by = observed.series.iter().find(|series| series.metric == "child_after_by");
        assert_eq!(by.expect("a tie is in it").samples, [0.0]);
        assert!(observed.notes.iter().any(|note| note.contains("parent_after_by: omitted")));
    }

    #[test]
    fn ends_of_the_offset_band_shift_the_share() {
        let mut tally = DeliveryTally::with_capacity(4);
        for last in [460, 490, 510, 540] {
            tally.add(delivery(500, last));
        }
        assert_eq!(tally.share_at(0), 0.5);
        assert_eq!(tally.share_at(-20), 0.25, "their counter is behind: they were later");
        assert_eq!(tally.share_at(20), 0.75);
        let note = tally.band_note(Band { low: -20, high: 20 });
        assert!(note.contains("0.2500 at the lower") && note.contains("0.7500 at the upper"));
    }

    #[test]
    fn last_stamp_before_the_call_has_no_time_to_receive() {
        let mut tally = DeliveryTally::with_capacity(2);
        tally.add(delivery(500, 60));
        tally.add(delivery(500, 130));
        let observed = tally.into_observed(Stamps::new(Clock::monotonic()), None);
        let receive = observed.series.iter().find(|series| series.metric == "receive");
        assert_eq!(receive.expect("receive").samples, [30.0]);
        let says = |note: &String| note.starts_with("1 of 2 last stamps precede the call");
        assert!(observed.notes.iter().any(says), "{:?}", observed.notes);
    }
}
