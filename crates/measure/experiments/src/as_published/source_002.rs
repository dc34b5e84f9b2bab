//! Source 002 as published: ten million loops of each check, in a hundred batches, and the source's
//! table.
//!
//! Each check is timed twice: in the source's loop, which increments a counter and calls a function
//! that carries out the check, and in place, in the loop of `liveness_check::timing`. The source's
//! own queue was never finished: the queues here are the plain ring of `throughput::checked_queue`,
//! the library's mailbox, and a pipe.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::claims::{self, Claim, Verdict, claim, decide, not_comparable};
use super::points::{Reproduction, reply};
use crate::liveness_check::check::{Check, means_of};
use crate::liveness_check::monitored::{Home, Monitored};
use crate::liveness_check::timing::{align, counted, repeat};
use crate::liveness_check::tried::{ProcessEvent, try_one};
use crate::prelude::*;
use crate::throughput::{self, checked_queue};
use crate::with_check;

const LOOPS: u64 = 10_000_000;
const QUICK_LOOPS: u64 = 200_000;
const BATCHES: u64 = 100;

struct PublishedRow {
    name: &'static str,
    variant: &'static str,
    ratio: f64,
    seconds: f64,
    explanation: &'static str,
}

const fn row(
    [name, variant, explanation]: [&'static str; 3],
    ratio: f64,
    seconds: f64,
) -> PublishedRow {
    PublishedRow { name, variant, ratio, seconds, explanation }
}

const ROWS: [PublishedRow; 6] = [
    row(["dummy", "dummy", "only the loop"], 1.0, 0.04),
    row(["load", "load", "one load"], 1.0, 0.04),
    row(["mutex", "mutex-trylock", "pthread_mutex_trylock"], 3.5, 0.14),
    row(["epoll", "epoll-empty", "epoll_wait, empty set"], 32.0, 1.28),
    row(["kill", "kill-0", "kill(pid, 0)"], 44.5, 1.78),
    row(["procfs", "procfs-faccessat", "faccessat in /proc"], 204.8, 8.19),
];

/// Points without a figure in the source, and their names in the output.
const UNPUBLISHED: [(&str, &str); 3] =
    [("poll-socket", "poll"), ("futex-word", "word"), ("lock-cmpxchg", "cmpxchg")];

/// The points that stream through a queue, and the names of the queues in the output.
const QUEUES: [(&str, &str); 3] = [
    ("ring", "a plain ring, 8 bytes, both spin"),
    ("mailbox", "the library's mailbox, 64 bytes"),
    ("pipe", "a pipe, 64 bytes"),
];
const BYTES: usize = 64;
/// Shares of the throughput that count as "about a half".
const ABOUT_HALF: std::ops::RangeInclusive<f64> = 0.35..=0.65;
/// The source's time for `kill(pid, 0)` without the loop, in ns.
const PUBLISHED_KILL_NS: f64 = 174.0;

#[derive(Default)]
struct CheckFindings {
    times: BTreeMap<&'static str, LoopTime>,
    /// Each measured queue, and the share of its throughput that the check leaves.
    queues: Vec<(&'static str, f64)>,
}

const CLAIMS: [Claim<CheckFindings>; 19] = [
    claim(21, "kill(pid, 0) in each send halves a queue's throughput", half),
    claim(22, "kill is racy: it takes a reused process id for the process", |_| {
        tried("kill-0", &[(ProcessEvent::ReusedPid, "alive")])
    }),
    claim(30, "a descriptor of /proc/pid is not fooled by a reused id", |_| {
        let events = [(ProcessEvent::Killed, "dead"), (ProcessEvent::ReusedPid, "dead")];
        tried("procfs-faccessat", &events)
    }),
    claim(38, "faccessat is about 5 times slower than kill", |found| {
        found.ratio("procfs-faccessat", "kill-0", 4.0..6.0)
    }),
    claim(58, "poll per message is not much better than kill", |found| {
        found.ratio("poll-socket", "kill-0", 0.67..f64::INFINITY)
    }),
    claim(61, "epoll on an empty set is only slightly faster than kill", |found| {
        found.ratio("epoll-empty", "kill-0", 0.6..1.0)
    }),
    claim(71, "trylock tells a living owner from a dead one", |_| tried("mutex-trylock", &ENDS)),
    claim(76, "trylock is a lot faster than every system call", |found| {
        found.ratio("mutex-trylock", "epoll-empty", 0.0..0.34)
    }),
    claim(76, "trylock is a lot slower than a load", |found| {
        found.ratio("mutex-trylock", "load", 2.0..f64::INFINITY)
    }),
    claim(78, "lock cmpxchg takes most of trylock's time", |found| {
        // Both without the loop and the call.
        let net = |variant| Some(found.time(variant)?.in_place - found.time("dummy")?.in_place);
        let (bare, whole) = (net("lock-cmpxchg")?, net("mutex-trylock")?);
        let text = format!("{bare:.1} of {whole:.1} ns, {:.0} %", bare / whole * 100.0);
        decide(bare > whole / 2.0, text)
    }),
    claim(129, "the list of a bare clone() thread works", |_| tried("own-robust-list", &ENDS)),
    claim(167, "one load of the lock word tells whether the process lives", |_| {
        tried("futex-word", &ENDS)
    }),
    claim(176, "that check is essentially free", |found| {
        found.ratio("futex-word", "dummy", 0.0..1.25)
    }),
    claim(183, "the empty loop takes 0.04 s", empty_loop),
    claim(184, "a load takes the time of the empty loop", |found| found.normalised(1)),
    claim(185, "trylock takes 3.5 times the empty loop", |found| found.normalised(2)),
    claim(186, "epoll on an empty set takes 32 times the empty loop", |found| found.normalised(3)),
    claim(187, "kill takes 44.5 times the empty loop", |found| found.normalised(4)),
    claim(188, "faccessat takes 204.8 times the empty loop", |found| found.normalised(5)),
];

/// Events that end a process, and the answer that a claim expects.
const ENDS: [(ProcessEvent, &str); 2] =
    [(ProcessEvent::Killed, "dead"), (ProcessEvent::Exit, "dead")];

#[derive(Clone, Copy, Serialize, Deserialize)]
struct LoopTime {
    called: f64,
    in_place: f64,
}

pub(super) fn reproduce(points: &mut Reproduction<'_, '_>) {
    let loops = if points.quick { QUICK_LOOPS } else { LOOPS };
    let scaled =
        if points.quick { format!("; times are scaled to {LOOPS}") } else { String::new() };
    points.say(format_args!(
        "{loops} loops each{scaled}. Each calls a function,\n\
         as in the source; \"in place\" is the check compiled into the loop, as in\n\
         `tontine-measure`. Published: ThinkPad X220, Intel i5-2520M, Linux 4.19.12.\n\n\
         {:7} {:>8} {:>9} {:>8} {:>9} {:>9}\n\
         {:7} {:>8} {:>9} {:>8} {:>9} {:>9}  Explanation",
        "", "Normal-", "", "Time", "", "in place", "", "ised", "published", "s", "published", "ns"
    ));
    let mut found = CheckFindings::default();
    for PublishedRow { name, variant, ratio, seconds, explanation } in ROWS {
        let time = points.own::<LoopTime>(variant, Params::new());
        let time = points.say_result(&format!("{name:7} "), time, |time| {
            let base = found.time("dummy").unwrap_or(*time).called;
            let (ours, s) = (time.called / base, time.called * LOOPS as f64 / 1e9);
            let in_place = time.in_place;
            format!(
                "{ours:>8.1} {ratio:>9.1} {s:>8.4} {seconds:>9.2} {in_place:>9.2}  {explanation}"
            )
        });
        found.times.extend(time.map(|time| (variant, time)));
    }
    for (variant, name) in UNPUBLISHED {
        let time = points.own::<LoopTime>(variant, Params::new());
        let text = |LoopTime { called, in_place }: &LoopTime| {
            format!("{called:.1} ns per loop, in place {in_place:.2} ns")
        };
        let time = points.say_result(&format!("{name:7} "), time, text);
        found.times.extend(time.map(|time| (variant, time)));
    }
    let (.., pairs) = stream_plan(points.quick);
    points.say(format_args!(
        "\nMillions of messages per second from one process to another, without and with\n\
         kill(pid, 0) before each; the fastest of {pairs} streams each\n\n\
         {:>46} {:>9} {:>9} {:>6}",
        "", "without", "with", "left"
    ));
    for (point, name) in QUEUES {
        let rates = points.own::<[f64; 2]>(point, Params::new());
        let rates = points.say_result(&format!("{name:>46} "), rates, |rates| {
            let [without, with] = rates.map(|rate| rate / 1e6);
            format!("{without:>9.3} {with:>9.3} {:>4.0} %", 100.0 * with / without)
        });
        found.queues.extend(rates.map(|[without, with]| (name, with / without)));
    }
    points.say(format_args!("{}", claims::print(&CLAIMS, &found).trim_end()));
}

pub(super) fn seconds(task: &InvocationTask) -> f64 {
    match (task.variant.as_str(), task.size) {
        (_, Size::Quick) => 0.2,
        ("epoll-empty" | "mailbox" | "semaphores", _) => 4.5,
        ("poll-socket", _) => 7.0,
        ("kill-0", _) => 9.0,
        ("procfs-faccessat", _) => 22.0,
        _ => 0.2,
    }
}

impl CheckFindings {
    fn time(&self, variant: &str) -> Option<LoopTime> {
        self.times.get(variant).copied()
    }

    fn ratio(&self, above: &str, below: &str, range: std::ops::Range<f64>) -> Option<Verdict> {
        let (one, other) = (self.time(above)?.called, self.time(below)?.called);
        let ratio = one / other;
        let text = format!("{above} takes {one:.1} ns, {below} {other:.1} ns: {ratio:.2} times");
        decide(range.contains(&ratio), text)
    }

    /// Compares a row's ratio to the empty loop with the published one.
    fn normalised(&self, row: usize) -> Option<Verdict> {
        let PublishedRow { variant, ratio, seconds, .. } = ROWS[row];
        let (time, dummy) = (self.time(variant)?.called, self.time("dummy")?.called);
        let ours = time / dummy;
        if is_alike(ours / ratio) {
            return Some(Verdict::Reproduced(format!("{ours:.1} times")));
        }
        Some(Verdict::NotReproduced(format!(
            "here it is {ours:.1} times: the loop takes {dummy:.1} ns instead of {:.1}, this row \
             {time:.1} ns instead of {:.0}",
            loop_ns(ROWS[0].seconds),
            loop_ns(seconds)
        )))
    }
}

fn is_alike(ratio: f64) -> bool {
    (0.75..1.33).contains(&ratio)
}

/// Returns the nanoseconds per loop, if all loops take `seconds`.
fn loop_ns(seconds: f64) -> f64 {
    seconds * 1e9 / LOOPS as f64
}

fn empty_loop(found: &CheckFindings) -> Option<Verdict> {
    let dummy = found.time("dummy")?.called;
    let text = format!("{:.3} s here", dummy * LOOPS as f64 / 1e9);
    if is_alike(dummy / loop_ns(ROWS[0].seconds)) {
        return Some(Verdict::Reproduced(text));
    }
    not_comparable(format!("it depends on the processor and the compiler: {text}"))
}

/// Causes events in fresh processes and compares the check's answers with those that the claim
/// names.
fn tried(variant: &str, events: &[(ProcessEvent, &str)]) -> Option<Verdict> {
    let (mut seen, mut as_claimed) = (Vec::new(), true);
    for &(event, expected) in events {
        let says = try_one(variant, event).says;
        if says.starts_with("skipped") || says.starts_with("n/a") {
            return not_comparable(format!("{}: {says}", event.name()));
        }
        as_claimed &= says == expected;
        seen.push(format!("{}: {says}", event.name()));
    }
    decide(as_claimed, format!("{variant} reports, after {}", seen.join(", ")))
}

fn half(found: &CheckFindings) -> Option<Verdict> {
    let shares = found.queues.iter().map(|(name, left)| format!("{name}: {:.0} %", left * 100.0));
    let shares = shares.collect::<Vec<_>>().join("; ");
    if found.queues.iter().any(|(_, left)| ABOUT_HALF.contains(left)) {
        return Some(Verdict::Reproduced(format!(
            "it depends on the queue's own time for a message; left by {shares}"
        )));
    }
    let kill = found.time("kill-0").filter(|_| !found.queues.is_empty())?.called;
    Some(Verdict::NotReproduced(format!(
        "a queue loses half if its message takes as long as the check, which is {kill:.0} ns here \
         and {PUBLISHED_KILL_NS:.0} ns in the source; left by {shares}"
    )))
}

/// Returns the size of the plain ring's batches, and the time and the number of the streams through
/// the other queues.
fn stream_plan(quick: bool) -> (Size, Duration, usize) {
    let (size, ms, pairs) = if quick { (Size::Quick, 20, 5) } else { (Size::Default, 100, 15) };
    (size, Duration::from_millis(ms), pairs)
}

fn streams(mechanism: &str, quick: bool) -> Result<[f64; 2]> {
    let (_, budget, pairs) = stream_plan(quick);
    let each = throughput::beside_kill(mechanism, BYTES, budget, pairs)?;
    Ok(each.map(|ns| 1e9 / ns.into_iter().fold(f64::INFINITY, f64::min)))
}

/// Measures one of the points in the calling process: a queue, or the loops of a check.
pub(super) fn own_point(task: &InvocationTask) -> Result<Observed> {
    let quick = task.size == Size::Quick;
    match task.variant.as_str() {
        "ring" => return reply(&checked_queue::beside_kill(stream_plan(quick).0)?),
        queue @ ("mailbox" | "pipe") => return reply(&streams(queue, quick)?),
        _ => {}
    }
    let (loops, clock) = (if quick { QUICK_LOOPS } else { LOOPS }, Clock::calibrated());
    let variant = task.variant.as_str();
    let means = means_of(variant)
        .ok_or_else(|| MeasureError::fail(format!("no such variant: {variant}")))?;
    let monitored = Monitored::start(means, Home::Here)?;
    let time = with_check!(variant, &monitored, |check| both(&check, loops, &clock))?;
    reply(&time)
}

fn both(check: &impl Check, loops: u64, clock: &Clock) -> Result<LoopTime> {
    Ok(LoopTime {
        called: timed(clock, loops, |loops| call_repeatedly(check, loops))?,
        // Not the source's figure, so fewer loops suffice.
        in_place: timed(clock, loops / 10, |loops| repeat(check, loops))?,
    })
}

/// The source's loop: increments a counter and calls a function that carries out the check. The
/// call is by address, so that the compiler cannot inline it.
#[inline(never)]
fn call_repeatedly<C: Check>(check: &C, loops: u64) -> u64 {
    let action = std::hint::black_box(carry_out::<C> as fn(&C) -> bool);
    let (mut made, mut loops) = (0, loops);
    align(&mut made, &mut loops);
    while made < loops && action(check) {
        made = counted(made + 1);
    }
    made
}

#[inline(never)]
fn carry_out<C: Check>(check: &C) -> bool {
    check.look() == Ok(true)
}

/// Returns the nanoseconds per loop: the median of batches, because a process that waits for a
/// processor in one of them would otherwise count as slow.
fn timed(clock: &Clock, loops: u64, run: impl Fn(u64) -> u64) -> Result<f64> {
    let batch = (loops / BATCHES).max(1);
    run(batch);
    let mut each = Vec::new();
    for _ in 0..BATCHES {
        let from = clock.start();
        let made = run(batch);
        each.push(clock.ns_between(from, clock.stop()) / batch as f64);
        ensure!(made == batch, "check {made} did not report a living process as alive");
    }
    Ok(order::median(&each).unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::as_published::points::in_this_process;

    #[test]
    #[ignore = "takes long: runs every program of the source"]
    fn source_002_table_has_every_row_and_its_scale() {
        let ((), text) = in_this_process("002", reproduce);
        for row in ROWS {
            assert!(text.lines().any(|line| line.starts_with(row.name)), "{}: {text}", row.name);
        }
        assert!(text.contains("200000 loops each; times are scaled to 10000000"), "{text}");
        for part in ["cmpxchg", "mailbox", "Verdicts on the source's claims"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn called_loop_stops_at_first_failure() {
        use crate::liveness_check::check::MarkedWord;
        use std::sync::atomic::AtomicU32;
        assert_eq!(call_repeatedly(&MarkedWord(&AtomicU32::new(5)), 1_000), 1_000);
        assert_eq!(call_repeatedly(&MarkedWord(&AtomicU32::new(0)), 1_000), 0);
    }

    fn found(times: &[(&'static str, f64)], queues: &[(&'static str, f64)]) -> CheckFindings {
        let time = |&(variant, called)| (variant, LoopTime { called, in_place: called });
        CheckFindings { times: times.iter().map(time).collect(), queues: queues.to_vec() }
    }

    #[test]
    fn ratio_outside_its_range_is_not_reproduced() {
        let found = found(&[("kill-0", 100.0), ("procfs-faccessat", 210.0)], &[]);
        let of = |range| found.ratio("procfs-faccessat", "kill-0", range);
        assert!(matches!(of(4.0..6.0), Some(Verdict::NotReproduced(_))));
        assert!(
            matches!(of(2.0..6.0), Some(Verdict::Reproduced(text)) if text.contains("2.10 times"))
        );
        assert_eq!(found.ratio("load", "kill-0", 0.0..1.0), None);
    }

    #[test]
    fn half_of_any_queue_reproduces_the_claim() {
        let (fast, even, kill) = (("fast", 0.1), ("even", 0.48), &[("kill-0", 500.0)][..]);
        let reproduced = half(&found(kill, &[fast, even]));
        assert!(
            matches!(&reproduced, Some(Verdict::Reproduced(text)) if text.contains("even: 48 %"))
        );
        assert!(matches!(half(&found(kill, &[fast])), Some(Verdict::NotReproduced(_))));
        assert_eq!([half(&found(&[], &[fast])), half(&found(kill, &[]))], [None, None]);
    }
}
