//! Source 000, 2016: does a signal's receiver still run after `kill` has returned?
//!
//! The program repeats the following a million times: the parent forks; the child writes its
//! time-stamp counter into shared memory; the parent waits for the first stamp, sends SIGINT,
//! stamps, reaps the child, and compares its own stamp with the child's last one. It then does the
//! same with SIGKILL, which the source's update reports. No process is pinned and no stamp is
//! fenced.
//!
//! There are two differences, neither of them timed: the child first restores SIGINT's default
//! action; and if an outcome never occurs, its line says so, where the source's program would
//! divide by zero.
//! [`crate::signal_delivery`] makes the same measurement with intervals.

use std::io::Write;

use rustix::process::Signal;
use tontine_host::clock::Clock;
use tontine_host::clock::offset::Band;
use tontine_host::error::{ErrorContext, Result};
use tontine_host::os::pin;

use crate::signal_delivery::death::ReceiverSetup;
use crate::signal_delivery::sender::SendCall;
use crate::signal_delivery::stamps::Stamps;
use crate::signal_delivery::tally::DeliveryStamps;

/// Number of deliveries of each signal in the source.
const DELIVERIES: usize = 1_000_000;
/// Number of deliveries of each signal in a reduced run.
const REDUCED: usize = 3_000;
/// Average number of cycles by which the source's child outlived `kill`.
const PUBLISHED_AVERAGE: i64 = 40;

/// Repeats the source's program.
///
/// # Errors
/// Returns `Skipped` if the system refuses processes or shared memory, and `Failed` if a child died
/// from another cause or `out` cannot be written.
pub fn reproduce(quick: bool, out: &mut dyn Write) -> Result<()> {
    run(if quick { REDUCED } else { DELIVERIES }, out)
}

fn run(deliveries: usize, out: &mut dyn Write) -> Result<()> {
    let clock = Clock::calibrated();
    let stamps = Stamps::new(clock);
    let band = band(clock)?;
    let mut put = |line: String| writeln!(out, "{line}").during("writing the reproduction");

    put("Source 000: When is it signaled? (6 September 2016)".into())?;
    if deliveries < DELIVERIES {
        put(format!(
            "Reduced: {deliveries} deliveries of each signal; the source made {DELIVERIES}."
        ))?;
    }
    put("Three lines per signal, as in the source's program: the child was after,".into())?;
    put("the parent was after (both in hexadecimal cycles), the share of the latter.".into())?;
    for (name, signal) in [("SIGINT", Signal::INT), ("SIGKILL", Signal::KILL)] {
        let receiver = ReceiverSetup::new(stamps, signal, None)?;
        let mut found = DeliverySummary::within(band.map(|(.., band)| band));
        for _ in 0..deliveries {
            found.add(receiver.deliver(SendCall::Kill)?);
        }
        put(format!("\n{name}, {deliveries} deliveries"))?;
        for line in found.lines() {
            put(line)?;
        }
        if let Some(line) = found.ends_of_the_band() {
            put(line)?;
        }
    }
    put("\nPublished (Skylake, Ubuntu): the child was after in 80 % (Percent Parent After: 0.2),"
        .into())?;
    put("by 40 cycles on average (28 in hexadecimal), nearly 1,200 at most (4b0); the same with \
         SIGKILL."
        .into())?;
    put(verdict(stamps, band))
}

/// Measures the band between the first two allowed processors. Returns their numbers and the band.
fn band(clock: Clock) -> Result<Option<(usize, usize, Band)>> {
    match pin::allowed()?[..] {
        [here, there, ..] => Ok(Some((here, there, Band::between(clock, here, there)?))),
        _ => Ok(None),
    }
}

/// Returns the comment on the method.
fn verdict(stamps: Stamps, band: Option<(usize, usize, Band)>) -> String {
    let ticks =
        if stamps.are_cycles() { "ticks" } else { "ticks of the system's clock, not cycles" };
    let Some((here, there, band)) = band else {
        return "Today: only one processor, so kill always returns before or after a switch; the \
                figures show which, and nothing about two processors."
            .into();
    };
    let inside = if band.high - band.low >= PUBLISHED_AVERAGE { "inside" } else { "outside" };
    format!(
        "Today: the method compares two processors' counters, read by unfenced rdtsc; here \
         processor {there}'s is {} to {} {ticks} ahead of processor {here}'s, and a shift of \
         {PUBLISHED_AVERAGE} cycles is {inside} that band.",
        band.low, band.high
    )
}

/// One side of the comparison: the source's `min`, `max`, `sum`.
#[derive(Debug, Default, Clone, Copy)]
struct ComparedSide {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
}

impl ComparedSide {
    fn add(&mut self, delta: u64) {
        self.min = if self.count == 0 { delta } else { self.min.min(delta) };
        self.max = self.max.max(delta);
        self.sum += delta;
        self.count += 1;
    }

    fn line(&self) -> String {
        match self.sum.checked_div(self.count) {
            Some(average) => format!("Min: {:x}, Max: {:x}, Avg: {average:x}", self.min, self.max),
            None => {
                "Min: -, Max: -, Avg: - (never; the source's program would divide by zero)".into()
            }
        }
    }
}

/// Result of one signal's deliveries.
#[derive(Debug)]
struct DeliverySummary {
    child_after: ComparedSide,
    parent_after: ComparedSide,
    band: Option<Band>,
    at_low: u64,
    at_high: u64,
}

impl DeliverySummary {
    fn within(band: Option<Band>) -> Self {
        Self {
            child_after: ComparedSide::default(),
            parent_after: ComparedSide::default(),
            band,
            at_low: 0,
            at_high: 0,
        }
    }

    fn add(&mut self, delivery: DeliveryStamps) {
        let delta = delivery.lead(0).unsigned_abs();
        if delivery.parent_after(0) {
            self.parent_after.add(delta);
        } else {
            self.child_after.add(delta);
        }
        if let Some(band) = self.band {
            self.at_low += u64::from(delivery.parent_after(band.low));
            self.at_high += u64::from(delivery.parent_after(band.high));
        }
    }

    fn share(&self, of: u64) -> f64 {
        of as f64 / (self.child_after.count + self.parent_after.count) as f64
    }

    /// Returns the three lines that the source prints.
    fn lines(&self) -> [String; 3] {
        [
            self.child_after.line(),
            self.parent_after.line(),
            format!("Percent Parent After: {:.6}", self.share(self.parent_after.count)),
        ]
    }

    fn ends_of_the_band(&self) -> Option<String> {
        self.band.map(|band| {
            format!(
                "(with the counters' offset at {} ticks: {:.6}; at {}: {:.6})",
                band.low,
                self.share(self.at_low),
                band.high,
                self.share(self.at_high)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(returned: u64, last: u64) -> DeliveryStamps {
        DeliveryStamps { before: 0, returned, last }
    }

    #[test]
    fn source_000_lines_keep_form_and_ties_count_for_child() {
        let mut found = DeliverySummary::within(None);
        for (returned, last) in [(100, 100), (100, 140), (100, 84)] {
            found.add(delivery(returned, last));
        }
        let [child, parent, share] = found.lines();
        assert_eq!(child, "Min: 0, Max: 28, Avg: 14");
        assert_eq!(parent, "Min: 10, Max: 10, Avg: 10");
        assert_eq!(share, "Percent Parent After: 0.333333");
    }

    #[test]
    fn outcome_that_never_occurs_prints_dashes() {
        let mut found = DeliverySummary::within(Some(Band { low: -60, high: 60 }));
        found.add(delivery(150, 100));
        assert!(found.lines()[0].starts_with("Min: -, Max: -, Avg: - "));
        let ends = found.ends_of_the_band().expect("a band");
        assert_eq!(ends, "(with the counters' offset at -60 ticks: 0.000000; at 60: 1.000000)");
    }

    #[test]
    fn small_run_prints_both_signals_and_published_values() {
        let mut out = Vec::new();
        run(5, &mut out).expect("reproduction");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains("Reduced: 5 deliveries"), "{text}");
        assert_eq!(text.matches("Percent Parent After: ").count(), 3, "two of ours, one published");
        let (int, kill) = (text.find("\nSIGINT, "), text.find("\nSIGKILL, "));
        assert!(int.is_some() && int < kill, "{text}");
        assert!(text.contains("80 %") && text.contains("Today: "), "{text}");
    }
}
