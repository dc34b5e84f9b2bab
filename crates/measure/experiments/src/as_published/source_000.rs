//! Source 000, 2016: does a signal's receiver still run after `kill` has returned?
//!
//! The parent forks; the child writes its time-stamp counter into shared memory; the parent waits
//! for the first stamp, sends SIGINT (later SIGKILL), stamps, reaps the child, and compares its own
//! stamp with the child's last one. No process is pinned and no stamp is fenced. Two shorter runs
//! with pinned processes show what the scheduler's choice contributes.
//!
//! There are two differences, neither of them timed: the child first restores SIGINT's default
//! action; and if an outcome never occurs, its line says so, where the source's program would
//! divide by zero.

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use tontine_bench::machine::MachineFacts;
use tontine_bench::os::fork_trim::ForkTrim;

use super::claims::{self, Claim, Verdict, claim, decide, not_comparable};
use super::points::{Reproduction, reply};
use crate::prelude::*;
use crate::signal_delivery::death::ReceiverSetup;
use crate::signal_delivery::sender::SendCall;
use crate::signal_delivery::stamps::Stamps;
use crate::signal_delivery::tally::DeliveryStamps;

const DELIVERIES: usize = 1_000_000;
const REDUCED: usize = 3_000;
/// Maximum number of deliveries that one process makes, so that a run shows its progress.
const CHUNK: usize = 20_000;
/// The point that measures the band, and the parameters of the other points.
const BAND: &str = "band";
const MADE: &str = "deliveries";
const PLACEMENT: &str = "placement";
/// Seconds that a delivery takes on two processors of a virtual machine.
const SECONDS_EACH: f64 = 0.4e-3;
/// Maximum number of deliveries to a pinned child.
const PINNED: usize = 10_000;
/// Share of the deliveries in which the source's child was after.
const PUBLISHED_SHARE: f64 = 0.8;
/// Average number of cycles by which the source's child outlived `kill`, and the maximum.
const PUBLISHED_AVERAGE: i64 = 40;
const PUBLISHED_MAXIMUM: u64 = 1_200;

pub(super) fn reproduce(points: &mut Reproduction<'_, '_>) {
    run(if points.quick { REDUCED } else { DELIVERIES }, points);
}

fn run(deliveries: usize, points: &mut Reproduction<'_, '_>) {
    let stamps = Stamps::new(Clock::calibrated());
    points.say(format_args!("Source 000: When is it signaled? (6 September 2016)"));
    if deliveries < DELIVERIES {
        points.say(format_args!(
            "Reduced: {deliveries} deliveries of each signal; the source made {DELIVERIES}."
        ));
    }
    points.say(format_args!(
        "Three lines per signal, as in the source's program: the child was after,\n\
         the parent was after (both in hexadecimal cycles), the share of the latter."
    ));
    let measured = points.own::<Option<(usize, usize, Band)>>(BAND, Params::new());
    let band = measured.as_ref().ok().and_then(|band| band.map(|(.., band)| band));
    let signal = |name: &str, points: &mut Reproduction<'_, '_>| {
        let summary = chunks(name, None, deliveries, band, points);
        points.say_result(&format!("\n{name}, {deliveries} deliveries\n"), summary, |summary| {
            let lines: Vec<String> =
                summary.lines().into_iter().chain(summary.ends_of_the_band()).collect();
            lines.join("\n")
        })
    };
    let (int, kill) = (signal("SIGINT", points), signal("SIGKILL", points));
    let few = (deliveries / 10).clamp(1, PINNED);
    let [apart, together] =
        ["cross-core", "same-core"].map(|place| chunks("SIGINT", Some(place), few, None, points));

    points.say(format_args!(
        "\n{:26} {:>11} {:>14} {:>10} {:>11}\n{:26} {:>11} {:>14} {:>10}",
        "in cycles",
        "child after",
        "by, on average",
        "at most",
        "kill takes*",
        "published (Skylake, Ubuntu)",
        "80 %",
        40,
        1200
    ));
    let [int, kill] = [int, kill].map(|found| found.ok_or_else(|| MeasureError::fail("see above")));
    let rows = [
        ("SIGINT", int),
        ("SIGKILL", kill),
        ("SIGINT, two processors", apart),
        ("SIGINT, one processor", together),
    ];
    let [int, kill, apart, together] = rows.map(|(name, found)| {
        points.say_result(&format!("{name:26} "), found, DeliverySummary::row)
    });
    points.say_result("", measured, |band| comment(stamps, *band));
    let machine = MachineFacts::look();
    let found = DeliveryFindings { int, kill, apart, together, band, machine };
    points.say(format_args!("{}", claims::print(&CLAIMS, &found).trim_end()));
}

fn chunks(
    signal: &str,
    placement: Option<&str>,
    deliveries: usize,
    band: Option<Band>,
    points: &mut Reproduction<'_, '_>,
) -> Result<DeliverySummary> {
    let mut found = Ok(DeliverySummary::within(band));
    // All are attempted, so that their number does not depend on their results.
    for from in (0..deliveries).step_by(CHUNK) {
        let made = CHUNK.min(deliveries - from);
        let mut params = Params::from([(MADE.to_owned(), made.to_string())]);
        params.extend(placement.map(|name| (PLACEMENT.to_owned(), name.to_owned())));
        if let Some(band) = band {
            params.insert("low".to_owned(), band.low.to_string());
            params.insert("high".to_owned(), band.high.to_string());
        }
        let chunk = points.own::<DeliverySummary>(signal, params);
        found = found.and_then(|mut found| {
            found.join(chunk?);
            Ok(found)
        });
    }
    found
}

/// Measures one of the points in the calling process: the band, or deliveries.
pub(super) fn own_point(task: &InvocationTask) -> Result<Observed> {
    let clock = Clock::calibrated();
    let signal = match task.variant.as_str() {
        BAND => return reply(&band(clock)?),
        "SIGINT" => Signal::INT,
        _ => Signal::KILL,
    };
    let number = |name: &str| task.params.get(name).and_then(|number| number.parse::<i64>().ok());
    let deliveries = number(MADE).unwrap_or(0).unsigned_abs() as usize;
    let band = number("low").zip(number("high")).map(|(low, high)| Band { low, high });
    // The source's program is small.
    let _lean = ForkTrim::now();
    let stamps = Stamps::new(clock);
    let placed = task.params.contains_key(PLACEMENT).then(|| placement_of(&task.params));
    let placement = placed.transpose()?;
    let receiver = ReceiverSetup::new(stamps, signal, placement.map(|place| place.there))?;
    let _pinned = placement.map(|place| Pinned::to(place.here)).transpose()?;
    let mut found = DeliverySummary::within(band);
    for _ in 0..deliveries {
        found.add(receiver.deliver(SendCall::Kill)?);
    }
    reply(&found)
}

pub(super) fn seconds(task: &InvocationTask) -> f64 {
    let made = task.params.get(MADE).and_then(|made| made.parse::<f64>().ok());
    0.1 + made.unwrap_or(0.0) * SECONDS_EACH
}

fn band(clock: Clock) -> Result<Option<(usize, usize, Band)>> {
    match pin::allowed()?[..] {
        [here, there, ..] => Ok(Some((here, there, Band::between(clock, here, there)?))),
        _ => Ok(None),
    }
}

fn comment(stamps: Stamps, band: Option<(usize, usize, Band)>) -> String {
    let ticks =
        if stamps.are_cycles() { "ticks" } else { "ticks of the system's clock, not cycles" };
    let Some((here, there, Band { low, high })) = band else {
        return "* median\n\nThere is only one processor: a switch precedes or follows kill's \
                return."
            .into();
    };
    format!(
        "* median\n\n\
         The stamps are unfenced and of two counters: processor {there}'s is {low} to {high}\n\
         {ticks} ahead of processor {here}'s. The source pins no process; with both on one\n\
         processor, kill always returns first, and a switch lies between."
    )
}

struct DeliveryFindings {
    int: Option<DeliverySummary>,
    kill: Option<DeliverySummary>,
    /// SIGINT with both processes on two processors, and on one.
    apart: Option<DeliverySummary>,
    together: Option<DeliverySummary>,
    band: Option<Band>,
    machine: MachineFacts,
}

const CLAIMS: [Claim<DeliveryFindings>; 6] = [
    claim(17, "the child can run on after kill has returned", runs_on),
    claim(17, "it does in 80 % of the deliveries", share),
    claim(17, "it does for 40 cycles on average", |found| {
        let int = found.int.as_ref()?;
        let Some(average) = int.child_after.average() else { return never() };
        let holds = (average / PUBLISHED_AVERAGE as f64 - 1.0).abs() < 0.5;
        decide(holds, format!("{average:.0} cycles, in {}", int.percent()))
    }),
    claim(17, "it does for nearly 1200 cycles at most", |found| {
        match found.int.as_ref()?.child_after {
            ComparedSide { count: 0, .. } => never(),
            ComparedSide { max, .. } => {
                decide(max <= PUBLISHED_MAXIMUM, format!("the maximum is {max} cycles"))
            }
        }
    }),
    claim(17, "the skew of the cores' clocks is smaller than that", |found| {
        let Some(Band { low, high }) = found.band else { return one_processor() };
        let bounds = format!("a round trip bounds it to {low} to {high} cycles");
        if low.max(-high) < PUBLISHED_AVERAGE && high.max(-low) >= PUBLISHED_AVERAGE {
            return not_comparable(bounds);
        }
        decide(high.max(-low) < PUBLISHED_AVERAGE, bounds)
    }),
    claim(93, "the results also hold with SIGKILL", |found| {
        let shares = [found.int.as_ref()?, found.kill.as_ref()?]
            .map(|signal| 100.0 * signal.share(signal.child_after.count));
        let [int, kill] = shares;
        let text = format!("child after: {int:.2} % with SIGINT, {kill:.2} % with SIGKILL");
        decide((int - kill).abs() < 5.0, text)
    }),
];

fn never() -> Option<Verdict> {
    not_comparable("the child was never after kill")
}

fn one_processor() -> Option<Verdict> {
    not_comparable("there is only one processor")
}

fn runs_on(found: &DeliveryFindings) -> Option<Verdict> {
    let int = found.int.as_ref()?;
    let beyond_doubt = int.count() - int.at_high.max(int.parent_after.count);
    let Some(Band { high, .. }) = found.band else {
        return decide(false, "there is only one processor".into());
    };
    let text = format!(
        "it does in {beyond_doubt} of {} deliveries, if the child's counter is {high} ticks ahead",
        int.count()
    );
    decide(beyond_doubt > 0, text)
}

fn share(found: &DeliveryFindings) -> Option<Verdict> {
    let int = found.int.as_ref()?;
    if (int.share(int.child_after.count) - PUBLISHED_SHARE).abs() < 0.1 {
        return Some(Verdict::Reproduced(int.percent()));
    }
    let mut why = format!("it is {}", int.percent());
    if let (Some(apart), Some(together)) = (&found.apart, &found.together) {
        why += &interrupt(apart, together, &found.machine);
    }
    Some(Verdict::NotReproduced(why))
}

/// Explains the share by the time that `kill` takes to interrupt another processor.
fn interrupt(
    apart: &DeliverySummary,
    together: &DeliverySummary,
    machine: &MachineFacts,
) -> String {
    let [far, near] = [apart, together].map(|found| median(&found.kill_takes).unwrap_or(0));
    let mut why = format!(
        ". kill takes {far} cycles (median) if the child runs on another processor, {near} if it \
         waits for ours"
    );
    if far > near {
        why += &format!(": interrupting the other one takes {} of them", far - near);
    }
    if let Some(hypervisor) = &machine.virtualisation.hypervisor {
        why += &format!(", by way of the hypervisor ({hypervisor})");
    }
    if let Some(lead) = median(&apart.leads) {
        why += &format!("; the child's last stamp is {lead} cycles before the return");
    }
    why + &format!(
        ". Pinned to two processors the child is after in {:.2} %, to one in {:.2} %. \
         This is Linux {}; the source names neither kernel nor machine",
        apart.share(apart.child_after.count) * 100.0,
        together.share(together.child_after.count) * 100.0,
        machine.kernel.short_release().unwrap_or("unknown")
    )
}

fn median(ticks: &[i64]) -> Option<i64> {
    let ticks: Vec<f64> = ticks.iter().map(|&ticks| ticks as f64).collect();
    order::median(&ticks).map(|ticks| ticks as i64)
}

/// A side of the comparison: the source's `min`, `max`, `sum`.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct ComparedSide {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
}

impl ComparedSide {
    fn join(&mut self, other: Self) {
        *self = match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => *self,
            (count, others) => Self {
                count: count + others,
                min: self.min.min(other.min),
                max: self.max.max(other.max),
                sum: self.sum + other.sum,
            },
        };
    }

    fn average(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
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

#[derive(Debug, Default, Serialize, Deserialize)]
struct DeliverySummary {
    child_after: ComparedSide,
    parent_after: ComparedSide,
    /// Cycles from before the call of `kill` to its return, and from the child's last stamp to that
    /// return, for the first deliveries.
    kill_takes: Vec<i64>,
    leads: Vec<i64>,
    band: Option<Band>,
    at_low: u64,
    at_high: u64,
}

impl DeliverySummary {
    fn within(band: Option<Band>) -> Self {
        Self { band, ..Self::default() }
    }

    fn add(&mut self, delivery: DeliveryStamps) {
        if self.leads.len() < PINNED {
            self.kill_takes.push(delivery.returned.wrapping_sub(delivery.before).cast_signed());
            self.leads.push(delivery.lead(0));
        }
        let by = delivery.lead(0).unsigned_abs();
        let one = ComparedSide { count: 1, min: by, max: by, sum: by };
        let after = delivery.parent_after(0);
        if after { &mut self.parent_after } else { &mut self.child_after }.join(one);
        if let Some(band) = self.band {
            self.at_low += u64::from(delivery.parent_after(band.low));
            self.at_high += u64::from(delivery.parent_after(band.high));
        }
    }

    fn join(&mut self, other: Self) {
        self.child_after.join(other.child_after);
        self.parent_after.join(other.parent_after);
        let left = PINNED.saturating_sub(self.leads.len());
        self.kill_takes.extend(other.kill_takes.into_iter().take(left));
        self.leads.extend(other.leads.into_iter().take(left));
        self.at_low += other.at_low;
        self.at_high += other.at_high;
    }

    fn count(&self) -> u64 {
        self.child_after.count + self.parent_after.count
    }

    fn share(&self, of: u64) -> f64 {
        of as f64 / self.count() as f64
    }

    /// Returns the share of the deliveries in which the child was after.
    fn percent(&self) -> String {
        let share = 100.0 * self.share(self.child_after.count);
        format!("{share:.2} % of {} deliveries", self.count())
    }

    fn row(&self) -> String {
        let after = self.child_after;
        let share = format!("{:.2} %", self.share(after.count) * 100.0);
        let cycles = |cycles: Option<f64>| cycles.map_or("-".into(), |it| format!("{it:.0}"));
        let maximum = (after.count > 0).then_some(after.max as f64);
        let takes = median(&self.kill_takes).map(|takes| takes as f64);
        let [average, maximum, takes] = [after.average(), maximum, takes].map(cycles);
        format!("{share:>11} {average:>14} {maximum:>10} {takes:>11}")
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
    use crate::as_published::points::in_this_process;

    #[test]
    fn joined_processes_equal_one_process() {
        let deliveries = [(100, 100), (100, 140), (100, 84), (100, 110), (100, 60)];
        let of = |deliveries: &[(u64, u64)]| {
            let mut found = DeliverySummary::within(Some(Band { low: -9, high: 9 }));
            deliveries.iter().for_each(|&(returned, last)| found.add(delivery(returned, last)));
            found
        };
        let mut joined = of(&[]);
        joined.join(of(&deliveries[..2]));
        joined.join(of(&deliveries[2..]));
        let whole = of(&deliveries);
        assert_eq!(joined.lines(), whole.lines());
        assert_eq!(joined.ends_of_the_band(), whole.ends_of_the_band());
        assert_eq!((joined.leads, joined.kill_takes), (whole.leads, whole.kill_takes));
    }

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

    fn summary(child_after: u64, parent_after: u64, kill_takes: u64) -> DeliverySummary {
        let mut found = DeliverySummary::within(Some(Band { low: -20, high: 20 }));
        for (count, last) in [(child_after, 1_040), (parent_after, 900)] {
            for _ in 0..count {
                found.add(DeliveryStamps { before: 1_000 - kill_takes, returned: 1_000, last });
            }
        }
        found
    }

    #[test]
    fn verdicts_follow_shares_and_averages() {
        let band = Some(Band { low: -20, high: 20 });
        let of = |after, before| -> Vec<Verdict> {
            let [int, kill, apart, together] =
                [(after, before, 800), (after, before, 800), (0, 10, 800), (0, 10, 300)]
                    .map(|(after, before, takes)| Some(summary(after, before, takes)));
            let machine = MachineFacts::default();
            let found = DeliveryFindings { int, kill, apart, together, band, machine };
            CLAIMS.iter().map(|claim| claim.verdict(&found)).collect()
        };
        let published = of(8, 2);
        let reproduced = published.iter().all(|found| matches!(found, Verdict::Reproduced(_)));
        assert!(reproduced, "{published:?}");
        let [outlives, share, average, .., kill] = &of(0, 10)[..] else { panic!("six claims") };
        assert!(matches!(outlives, Verdict::NotReproduced(why) if why.contains("in 0 of 10")));
        assert!(matches!(share, Verdict::NotReproduced(why) if why.contains("takes 800 cycles")));
        assert_eq!(*average, Verdict::NotComparable("the child was never after kill".into()));
        assert!(matches!(kill, Verdict::Reproduced(_)), "alike: {kill:?}");
    }

    #[test]
    fn small_run_prints_both_signals_and_published_values() {
        let ((), text) = in_this_process("000", |points| run(5, points));
        assert!(text.contains("Reduced: 5 deliveries"), "{text}");
        assert_eq!(text.matches("Percent Parent After: ").count(), 2, "{text}");
        let (int, kill) = (text.find("\nSIGINT, "), text.find("\nSIGKILL, "));
        assert!(int.is_some() && int < kill, "{text}");
        for part in ["80 %", "SIGINT, two processors", "it does for 40 cycles on average"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
