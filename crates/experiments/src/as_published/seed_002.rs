//! Source 002 as published: ten million loops of each check, in a hundred batches, and the source's
//! table.
//!
//! Each check is timed twice: in the source's loop, which increments a counter and calls a function
//! that carries out the check, and in place, in the loop of [`crate::liveness_check::timing`]. The
//! source does not publish its queue; [`queues`] checks before each message in three queues of
//! ours. The published figures come from a ThinkPad X220, Intel i5-2520M, Linux 4.19.12.

mod queues;

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Deserialize, Serialize};
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};

use super::points::{SourcePoints, reply};
use super::verdict::{self, Claim, Verdict};
use crate::liveness_check::check::{Check, CompareExchange, means_of};
use crate::liveness_check::monitored::{Home, Means, Monitored};
use crate::liveness_check::timing::{align, counted, repeat};
use crate::liveness_check::tried::{ProcessEvent, try_one};
use crate::with_check;

/// Number of loops in the source.
const LOOPS: u64 = 10_000_000;

/// Number of loops in a quick run.
const QUICK_LOOPS: u64 = 200_000;

/// Number of batches of the loops.
const BATCHES: u64 = 100;

/// A row of the table.
struct PublishedRow {
    /// The name in the source.
    name: &'static str,
    /// Our variant.
    variant: &'static str,
    /// The source's line, and its ratio to the empty loop.
    claim: Claim,
    ratio: f64,
    seconds: f64,
    explanation: &'static str,
}

const ROWS: [PublishedRow; 6] = [
    row("dummy", "dummy", 183, "the empty loop takes 0.04 s", 1.0, 0.04, "only the loop"),
    row("load", "load", 184, "a load takes the time of the empty loop", 1.0, 0.04, "one load"),
    row(
        "mutex",
        "mutex-trylock",
        185,
        "trylock takes 3.5 times the empty loop",
        3.5,
        0.14,
        "pthread_mutex_trylock",
    ),
    row(
        "epoll",
        "epoll-empty",
        186,
        "epoll on an empty set takes 32 times the empty loop",
        32.0,
        1.28,
        "epoll_wait, empty set",
    ),
    row("kill", "kill-0", 187, "kill takes 44.5 times the empty loop", 44.5, 1.78, "kill(pid, 0)"),
    row(
        "procfs",
        "procfs-faccessat",
        188,
        "faccessat takes 204.8 times the empty loop",
        204.8,
        8.19,
        "faccessat in /proc",
    ),
];

const fn row(
    name: &'static str,
    variant: &'static str,
    line: u32,
    text: &'static str,
    ratio: f64,
    seconds: f64,
    explanation: &'static str,
) -> PublishedRow {
    PublishedRow { name, variant, claim: Claim { line, text }, ratio, seconds, explanation }
}

/// The point that times the instruction on which trylock is based.
const CMPXCHG: &str = "lock-cmpxchg";

/// SourcePoints without a figure in the source, and their names in the output.
const UNPUBLISHED: [(&str, &str); 3] =
    [("poll-socket", "poll"), ("futex-word", "word"), (CMPXCHG, "cmpxchg")];

/// Nanoseconds per loop of a check.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct LoopTime {
    called: f64,
    in_place: f64,
}

/// Runs the source's benchmark and writes its table, with the published values next to ours.
///
/// # Errors
/// Returns `Failed` if the output cannot be written. If the system refuses a row, the table says
/// so.
pub(super) fn reproduce(points: &mut SourcePoints<'_, '_>, out: &mut dyn Write) -> Result<()> {
    let quick = points.quick();
    let loops = if quick { QUICK_LOOPS } else { LOOPS };
    let scaled = if quick { format!("; times are scaled to {LOOPS}") } else { String::new() };
    say(
        out,
        format_args!(
            "{loops} loops each{scaled}. Each calls a function,\n\
             as in the source; \"in place\" is the check compiled into the loop, as in\n\
             `tontine measure`. Published: ThinkPad X220, Intel i5-2520M, Linux 4.19.12.\n\n\
             {:7} {:>8} {:>9} {:>8} {:>9} {:>9}\n\
             {:7} {:>8} {:>9} {:>8} {:>9} {:>9}  Explanation",
            "",
            "Normal-",
            "",
            "Time",
            "",
            "in place",
            "",
            "ised",
            "published",
            "s",
            "published",
            "ns"
        ),
    )?;
    let mut times = BTreeMap::new();
    for PublishedRow { name, variant, ratio, seconds, explanation, .. } in ROWS {
        match points.own::<LoopTime>(variant, Params::new()) {
            Ok(time) => {
                times.insert(variant, time);
                let base = times.get("dummy").unwrap_or(&time).called;
                let (ours, s) = (time.called / base, time.called * LOOPS as f64 / 1e9);
                say(
                    out,
                    format_args!(
                        "{name:7} {ours:>8.1} {ratio:>9.1} {s:>8.4} {seconds:>9.2} {:>9.2}  \
                         {explanation}",
                        time.in_place
                    ),
                )?;
            }
            Err(trouble) => say(out, format_args!("{name:7} {trouble}"))?,
        }
    }
    for (variant, name) in UNPUBLISHED {
        match points.own::<LoopTime>(variant, Params::new()) {
            Ok(time) => {
                times.insert(variant, time);
                let (called, in_place) = (time.called, time.in_place);
                say(
                    out,
                    format_args!("{name:7} {called:.1} ns per loop, in place {in_place:.2} ns"),
                )?;
            }
            Err(trouble) => say(out, format_args!("{name:7} {trouble}"))?,
        }
    }
    let queue = queues::compare(points, times.get("kill-0").map(|kill| kill.called), out)?;
    verdict::print(out, &verdicts(&times, queue))
}

/// Returns the seconds that a point takes on two processors of a virtual machine.
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

/// Returns the verdicts on all claims, in the order of the source's lines.
fn verdicts(times: &BTreeMap<&str, LoopTime>, queue: Verdict) -> Vec<(Claim, Verdict)> {
    let mut all = vec![
        (Claim { line: 21, text: "kill(pid, 0) in each send halves a queue's throughput" }, queue),
        tried(
            Claim { line: 22, text: "kill is racy: it takes a reused process id for the process" },
            "kill-0",
            &[(ProcessEvent::ReusedPid, "alive")],
        ),
        tried(
            Claim { line: 30, text: "a descriptor of /proc/pid is not fooled by a reused id" },
            "procfs-faccessat",
            &[(ProcessEvent::Killed, "dead"), (ProcessEvent::ReusedPid, "dead")],
        ),
        ratio(
            Claim { line: 38, text: "faccessat is about 5 times slower than kill" },
            times,
            ["procfs-faccessat", "kill-0"],
            4.0..6.0,
        ),
        ratio(
            Claim { line: 58, text: "poll per message is not much better than kill" },
            times,
            ["poll-socket", "kill-0"],
            0.67..f64::INFINITY,
        ),
        ratio(
            Claim { line: 61, text: "epoll on an empty set is only slightly faster than kill" },
            times,
            ["epoll-empty", "kill-0"],
            0.6..1.0,
        ),
        tried(
            Claim { line: 71, text: "trylock tells a living owner from a dead one" },
            "mutex-trylock",
            &[(ProcessEvent::Killed, "dead"), (ProcessEvent::Exit, "dead")],
        ),
        ratio(
            Claim { line: 76, text: "trylock is a lot faster than every system call" },
            times,
            ["mutex-trylock", "epoll-empty"],
            0.0..0.34,
        ),
        ratio(
            Claim { line: 76, text: "trylock is a lot slower than a load" },
            times,
            ["mutex-trylock", "load"],
            2.0..f64::INFINITY,
        ),
        most_of_trylock(times),
        tried(
            Claim { line: 129, text: "the list of a bare clone() thread works" },
            "own-robust-list",
            &[(ProcessEvent::Killed, "dead"), (ProcessEvent::Exit, "dead")],
        ),
        tried(
            Claim { line: 167, text: "one load of the lock word tells whether the process lives" },
            "futex-word",
            &[(ProcessEvent::Killed, "dead"), (ProcessEvent::Exit, "dead")],
        ),
        ratio(
            Claim { line: 176, text: "that check is essentially free" },
            times,
            ["futex-word", "dummy"],
            0.0..1.25,
        ),
    ];
    all.extend(ROWS.iter().map(|row| (row.claim, normalised(row, times))));
    all
}

/// Compares a row's ratio to the empty loop with the published one.
fn normalised(row: &PublishedRow, times: &BTreeMap<&str, LoopTime>) -> Verdict {
    let (Some(time), Some(dummy)) = (times.get(row.variant), times.get("dummy")) else {
        return Verdict::NotComparable("the check could not be timed".into());
    };
    let ns = row.seconds * 1e9 / LOOPS as f64;
    let alike = |ratio: f64| (0.75..1.33).contains(&ratio);
    if row.variant == "dummy" {
        let text = format!("{:.3} s here", dummy.called * LOOPS as f64 / 1e9);
        return match alike(dummy.called / ns) {
            true => Verdict::Reproduced(text),
            false => Verdict::NotComparable(format!(
                "it depends on the processor and the compiler: {text}"
            )),
        };
    }
    let ours = time.called / dummy.called;
    if alike(ours / row.ratio) {
        return Verdict::Reproduced(format!("{ours:.1} times"));
    }
    Verdict::NotReproduced(format!(
        "here it is {ours:.1} times: the loop takes {:.1} ns instead of {:.1}, this row {:.1} ns \
         instead of {ns:.0}",
        dummy.called,
        ROWS[0].seconds * 1e9 / LOOPS as f64,
        time.called
    ))
}

/// Compares the ratio of two checks, as called, with the range that the claim names.
fn ratio(
    claim: Claim,
    times: &BTreeMap<&str, LoopTime>,
    [above, below]: [&str; 2],
    range: std::ops::Range<f64>,
) -> (Claim, Verdict) {
    let (Some(one), Some(other)) = (times.get(above), times.get(below)) else {
        return (claim, Verdict::NotComparable("a check could not be timed".into()));
    };
    let ratio = one.called / other.called;
    let text = format!(
        "{above} takes {:.1} ns, {below} {:.1} ns: {ratio:.2} times",
        one.called, other.called
    );
    let holds = range.contains(&ratio);
    (claim, if holds { Verdict::Reproduced(text) } else { Verdict::NotReproduced(text) })
}

/// Compares a bare `lock cmpxchg` with trylock, both without the loop and the call.
fn most_of_trylock(times: &BTreeMap<&str, LoopTime>) -> (Claim, Verdict) {
    let claim = Claim { line: 78, text: "lock cmpxchg takes most of trylock's time" };
    let net = |variant| Some(times.get(variant)?.in_place - times.get("dummy")?.in_place);
    let (Some(bare), Some(whole)) = (net("lock-cmpxchg"), net("mutex-trylock")) else {
        return (claim, Verdict::NotComparable("a check could not be timed".into()));
    };
    let text = format!("{bare:.1} of {whole:.1} ns, {:.0} %", bare / whole * 100.0);
    let most = bare > whole / 2.0;
    (claim, if most { Verdict::Reproduced(text) } else { Verdict::NotReproduced(text) })
}

/// Causes events in fresh processes and compares the check's answers with those that the claim
/// names.
fn tried(claim: Claim, variant: &str, events: &[(ProcessEvent, &str)]) -> (Claim, Verdict) {
    let mut seen = Vec::new();
    let mut as_claimed = true;
    for &(event, expected) in events {
        let says = try_one(variant, event).says;
        if says.starts_with("skipped") || says.starts_with("n/a") {
            return (claim, Verdict::NotComparable(format!("{}: {says}", event.name())));
        }
        as_claimed &= says == expected;
        seen.push(format!("{}: {says}", event.name()));
    }
    let text = format!("{variant} reports, after {}", seen.join(", "));
    (claim, if as_claimed { Verdict::Reproduced(text) } else { Verdict::NotReproduced(text) })
}

/// Measures one of the points in the calling process: the loops of a check, or a queue.
pub(super) fn own_point(task: &InvocationTask) -> Result<Observed> {
    let quick = task.size == Size::Quick;
    if let Some(rates) = queues::rates(&task.variant, quick) {
        return reply(&rates?);
    }
    let (loops, clock) = (if quick { QUICK_LOOPS } else { LOOPS }, Clock::calibrated());
    match task.variant.as_str() {
        CMPXCHG => reply(&compare_exchange(loops, &clock)?),
        variant => reply(&loop_time(variant, loops, &clock)?),
    }
}

/// Times the loops of a variant.
fn loop_time(variant: &str, loops: u64, clock: &Clock) -> Result<LoopTime> {
    let means = means_of(variant)
        .ok_or_else(|| MeasureError::fail(format!("no such variant: {variant}")))?;
    let monitored = Monitored::start(means, Home::Here)?;
    with_check!(variant, &monitored, |check| both(&check, loops, clock))
}

fn compare_exchange(loops: u64, clock: &Clock) -> Result<LoopTime> {
    let monitored = Monitored::start(Means::Mutex, Home::Here)?;
    both(&CompareExchange::new(monitored.page().lock_word()), loops, clock)
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
        if made != batch {
            return Err(MeasureError::fail(format!(
                "check {made} did not report a living process as alive"
            )));
        }
    }
    Ok(order::median(&each).unwrap_or(f64::NAN))
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(out, "{line}").during("writing the table")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::as_published::points::in_this_process;

    #[test]
    #[ignore = "takes long: runs every program of the source"]
    fn source_002_table_has_every_row_and_its_scale() {
        let mut out = Vec::new();
        in_this_process("002", |points| reproduce(points, &mut out)).expect("table");
        let text = String::from_utf8(out).expect("text");
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

    #[test]
    fn ratio_outside_its_range_is_not_reproduced() {
        let time = |called| LoopTime { called, in_place: called };
        let times = BTreeMap::from([("kill-0", time(100.0)), ("procfs-faccessat", time(210.0))]);
        let claim = Claim { line: 38, text: "" };
        let of = |range| ratio(claim, &times, ["procfs-faccessat", "kill-0"], range).1;
        assert!(matches!(of(4.0..6.0), Verdict::NotReproduced(_)));
        assert!(matches!(of(2.0..6.0), Verdict::Reproduced(text) if text.contains("2.10 times")));
        let missing = ratio(claim, &times, ["load", "kill-0"], 0.0..1.0).1;
        assert!(matches!(missing, Verdict::NotComparable(_)));
    }
}
