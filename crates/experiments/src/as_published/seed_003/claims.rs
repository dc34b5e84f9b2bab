//! The verdicts on source 003: [`verdicts`], from the [`Findings`] of a run.

use std::collections::BTreeMap;
use std::fmt;

use tontine::heap::classic::{BlockInfo, Map};
use tontine_bench::engine::invoked::MetricSummary;
use tontine_host::trace::{Call, TraceEvent, Who};

use super::super::verdict::{Claim, Verdict};
use super::{AS_IT_IS, HANDLER, THREADS, WIDE};

/// The blocks of the source's heap: the prologue, the unused block, the two counters and the rest.
const PUBLISHED_BLOCKS: [(usize, bool); 5] =
    [(16, true), (48, true), (32, true), (32, true), (3984, false)];

/// The flags with which the source's `pthread_create` calls `clone3`.
const THREAD_FLAGS: &str = "CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD|\
                            CLONE_SYSVSEM|CLONE_SETTLS|CLONE_PARENT_SETTID|CLONE_CHILD_CLEARTID";

/// A share of tries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredShare {
    pub(super) share: f64,
    pub(super) tries: usize,
}

impl MeasuredShare {
    /// Returns the mean of a series of shares of equal batches.
    pub(super) fn of(figure: &MetricSummary) -> Self {
        let summary = &figure.summary;
        Self { share: summary.mean, tries: summary.count * summary.batch }
    }

    fn occurred(self) -> bool {
        self.share > 0.0
    }
}

impl fmt::Display for MeasuredShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} % of {}", self.share * 100.0, self.tries)
    }
}

/// A function that is entered again: variant of `reentrancy`, second caller, and metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reentry(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
);

/// The measurements of a run. A missing entry means that the machine refused a requirement.
#[derive(Default)]
pub(super) struct Findings {
    /// Lost signals, by variant and time between two waits.
    pub(super) lost: BTreeMap<(&'static str, &'static str), MeasuredShare>,
    /// MeasuredShare of the process's signals that the main thread took.
    pub(super) main_thread: Option<MeasuredShare>,
    pub(super) reentered: BTreeMap<Reentry, MeasuredShare>,
    /// Lost increments of the shared counter; `true` if the thread-local one was exact.
    pub(super) counted: Option<(MeasuredShare, bool)>,
    /// Lost increments of threads that start at the same moment.
    pub(super) raced: Option<MeasuredShare>,
    /// The traces of a thread and of a process.
    pub(super) traces: Option<[Vec<TraceEvent>; 2]>,
    /// The heap's maps with and without the unused block; `true` if the counters share a line.
    pub(super) maps: Vec<(Map, bool)>,
    /// Times of the counting programs in ms, by variant of `false-sharing`.
    pub(super) counting_ms: BTreeMap<&'static str, f64>,
}

/// Returns the verdicts on all claims, in the order of the source's lines.
pub(super) fn verdicts(found: &Findings) -> Vec<(Claim, Verdict)> {
    let claim = |line, text| Claim { line, text };
    let reentry = |of: Reentry| found.reentered.get(&of).copied();
    let some = |of: Reentry| judged(reentry(of), of.2, MeasuredShare::occurred);
    let none = |of: Reentry| judged(reentry(of), of.2, |share| !share.occurred());
    let lost = |variant| {
        let share = found.lost.get(&(variant, AS_IT_IS)).copied();
        judged(share, "lost", |share| !share.occurred())
    };
    vec![
        (
            claim(13, "strtok is not reentrant: two threads disturb each other"),
            some(Reentry("strtok", THREADS, "corrupted")),
        ),
        (
            claim(13, "strtok is not reentrant: a handler disturbs what it interrupts"),
            some(Reentry("strtok", HANDLER, "corrupted")),
        ),
        (
            claim(15, "strtok_r is reentrant and so thread-safe"),
            none(Reentry("strtok-r", THREADS, "corrupted")),
        ),
        (
            claim(21, "flockfile makes several stdio calls atomic"),
            none(Reentry("stdio-flockfile", THREADS, "corrupted")),
        ),
        (
            claim(23, "strtok_r is reentrant and so async-signal-safe"),
            none(Reentry("strtok-r", HANDLER, "corrupted")),
        ),
        (
            claim(27, "a handler that takes a held plain lock deadlocks"),
            some(Reentry("handler-plain-lock", HANDLER, "deadlocked")),
        ),
        (
            claim(27, "stdio does not deadlock in a handler: its lock is recursive"),
            recursive(reentry(Reentry("stdio", HANDLER, "deadlocked"))),
        ),
        (
            claim(27, "stdio in a handler is still unsafe, for its buffers"),
            some(Reentry("stdio", HANDLER, "corrupted")),
        ),
        (
            claim(29, "a function is safe from handlers while their signals are blocked"),
            none(Reentry("handler-masked", HANDLER, "deadlocked")),
        ),
        (
            claim(35, "the kernel chooses an arbitrary one of the unblocked threads"),
            arbitrary(found.main_thread),
        ),
        (
            claim(41, "a signal-handling thread gets SIGUSR1 and SIGQUIT"),
            lost("handler-sigsuspend"),
        ),
        (
            claim(57, "a signal just before pause() is missed, one in sigsuspend() not"),
            missed(found),
        ),
        (
            claim(108, "sigwait() takes every signal; no default action is ever carried out"),
            lost("sigwait-thread"),
        ),
        (claim(183, "the shared x is unpredictable, the thread-local y exact"), counters(found)),
        (claim(218, "mmap() and mprotect() set up the new thread's stack"), stack(found)),
        (claim(223, "pthread_create calls clone3 between two rt_sigprocmask"), creation(found)),
        (claim(231, "clone3 has the published nine flags"), flags(found)),
        (claim(246, "fork is clone with two thread-id flags and SIGCHLD"), fork(found)),
        (
            claim(248, "SIGCHLD with CLD_EXITED and status 0 reports the child's end"),
            sigchld(found),
        ),
        (claim(279, "the program takes 57 ms with one thread"), time(found, "serial")),
        (claim(315, "two threads are slower than one: 63 instead of 57 ms"), slower(found)),
        (claim(330, "the heap's map has the five published blocks"), blocks(found)),
        (claim(332, "both counters are in one cache line"), line(found, 0, true)),
        (claim(336, "without the unused block they are in separate lines"), line(found, 1, false)),
        (claim(343, "64-byte requests bring 63 ms down to 33 ms"), padded(found)),
    ]
}

fn missing() -> Verdict {
    Verdict::NotComparable("this machine refused what the program needs, see above".into())
}

fn decided(holds: bool, text: String) -> Verdict {
    if holds { Verdict::Reproduced(text) } else { Verdict::NotReproduced(text) }
}

fn judged(
    share: Option<MeasuredShare>,
    what: &str,
    holds: impl FnOnce(MeasuredShare) -> bool,
) -> Verdict {
    share.map_or_else(missing, |share| decided(holds(share), format!("{what}: {share}")))
}

fn recursive(deadlocked: Option<MeasuredShare>) -> Verdict {
    match deadlocked {
        Some(share) if share.occurred() => Verdict::NotReproduced(format!(
            "{share} interrupted lines deadlocked: the lock knows its owner only some \
             instructions after it is taken, and a handler that prints in between waits for the \
             thread that it interrupted"
        )),
        other => judged(other, "deadlocked", |share| !share.occurred()),
    }
}

fn arbitrary(main: Option<MeasuredShare>) -> Verdict {
    let Some(main) = main else { return missing() };
    let text =
        format!("the main thread took {:.1} % of {} signals", main.share * 100.0, main.tries);
    decided(main.share < 1.0, text)
}

fn missed(found: &Findings) -> Verdict {
    let lost = |variant, window| found.lost.get(&(variant, window)).copied();
    let (Some(pause), Some(wide), Some(suspend)) = (
        lost("handler-pause", AS_IT_IS),
        lost("handler-pause", WIDE),
        lost("handler-sigsuspend", WIDE),
    ) else {
        return missing();
    };
    decided(
        (pause.occurred() || wide.occurred()) && !suspend.occurred(),
        format!(
            "pause() missed {pause}, and {wide} with 10 µs of work before it; sigsuspend() with \
             the same work {suspend}"
        ),
    )
}

fn counters(found: &Findings) -> Verdict {
    let Some((lost, exact)) = found.counted else { return missing() };
    let raced = found.raced.map_or(String::new(), |raced| {
        format!(", {:.1} % if both threads start at the same moment", raced.share * 100.0)
    });
    let of_y = if exact { "none" } else { "some" };
    decided(
        exact && (lost.occurred() || found.raced.is_some_and(MeasuredShare::occurred)),
        format!("{:.1} % of the increments of x are lost{raced}, of y {of_y}", lost.share * 100.0),
    )
}

/// Returns the calls of the thread that creates, in order.
fn calls(events: &[TraceEvent]) -> impl Iterator<Item = &Call> {
    events.iter().filter_map(TraceEvent::call).filter(|call| call.who == Who::Caller)
}

fn traced(found: &Findings, at: usize, judge: impl FnOnce(Vec<&Call>) -> Verdict) -> Verdict {
    found.traces.as_ref().map_or_else(missing, |traces| judge(calls(&traces[at]).collect()))
}

fn stack(found: &Findings) -> Verdict {
    traced(found, 0, |calls| {
        let at = |name: &str| calls.iter().position(|call| call.name == Some(name));
        let inaccessible = |call: &Call| call.arguments.iter().any(|text| text == "PROT_NONE");
        match (at("mmap"), at("mprotect")) {
            (Some(map), Some(protect)) if map < protect && inaccessible(calls[map]) => {
                Verdict::Reproduced(format!("{} bytes, then mprotect", calls[map].arguments[1]))
            }
            (map, protect) => Verdict::NotReproduced(format!(
                "the trace has {} and {}",
                map.map_or("no mmap", |_| "an mmap"),
                protect.map_or("no mprotect", |_| "an mprotect")
            )),
        }
    })
}

fn creation(found: &Findings) -> Verdict {
    traced(found, 0, |calls| {
        let Some(at) = calls.iter().position(|call| call.creates.is_some()) else {
            return Verdict::NotReproduced("the trace has no creation".into());
        };
        let masks = |calls: &[&Call]| calls.iter().any(|call| call.name == Some("rt_sigprocmask"));
        let title = calls[at].title();
        let between = masks(&calls[..at]) && masks(&calls[at + 1..]);
        let where_ = if between { "between two" } else { "not between two" };
        decided(between && title == "clone3", format!("{title}, {where_} rt_sigprocmask"))
    })
}

fn flags(found: &Findings) -> Verdict {
    traced(found, 0, |calls| match calls.iter().find_map(|call| call.creates.as_ref()) {
        None => Verdict::NotReproduced("the trace has no creation".into()),
        Some(creation) => {
            let flags = creation.flag_names().to_string();
            match flags == THREAD_FLAGS {
                true => Verdict::Reproduced("the same nine".into()),
                false => Verdict::NotReproduced(format!("they are {flags}")),
            }
        }
    })
}

fn fork(found: &Findings) -> Verdict {
    traced(found, 1, |calls| {
        let Some((call, creation)) =
            calls.iter().find_map(|call| Some((call, call.creates.as_ref()?)))
        else {
            return Verdict::NotReproduced("the trace has no creation".into());
        };
        let (title, flags) = (call.title(), creation.flag_names().to_string());
        let same = title == "clone" && flags == "CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID";
        decided(same, format!("{title}, {flags}, exit signal {}", creation.exit_signal))
    })
}

fn sigchld(found: &Findings) -> Verdict {
    let Some([_, events]) = &found.traces else { return missing() };
    let arrived = events.iter().find_map(|event| match event {
        TraceEvent::Signal(_, arrived) => Some(arrived),
        _ => None,
    });
    match arrived {
        None => Verdict::NotReproduced("the trace has no signal".into()),
        Some(arrived) => {
            let (code, status) = (arrived.code_name(), arrived.end.map(|end| end.status));
            decided(
                code == "CLD_EXITED" && status == Some(0),
                format!("{code}, status {status:?}").replace("Some(0)", "0"),
            )
        }
    }
}

fn time(found: &Findings, variant: &'static str) -> Verdict {
    found.counting_ms.get(variant).map_or_else(missing, |ms| {
        Verdict::NotComparable(format!("the source names no machine; here it is {ms:.1} ms"))
    })
}

/// Returns the ratio of two times, and its text.
fn quotient(found: &Findings, one: &'static str, other: &'static str) -> Option<(f64, String)> {
    let (above, below) = (found.counting_ms.get(one)?, found.counting_ms.get(other)?);
    let ratio = above / below;
    Some((ratio, format!("{one} {above:.1} ms, {other} {below:.1} ms: {ratio:.2} times")))
}

fn slower(found: &Findings) -> Verdict {
    quotient(found, "one-line", "serial")
        .map_or_else(missing, |(ratio, text)| decided(ratio > 1.0, text))
}

fn padded(found: &Findings) -> Verdict {
    quotient(found, "two-lines", "one-line")
        .map_or_else(missing, |(ratio, text)| decided(ratio < 0.8, text))
}

fn blocks(found: &Findings) -> Verdict {
    let Some((map, _)) = found.maps.first() else { return missing() };
    let seen: Vec<_> = map.blocks().iter().map(|block| (block.size, block.allocated)).collect();
    let sizes = seen.iter().map(|(size, _)| size.to_string()).collect::<Vec<_>>().join(", ");
    decided(seen == PUBLISHED_BLOCKS, format!("{} blocks: {sizes} bytes", seen.len()))
}

/// Judges by a map whether its two counters, the last allocated blocks, share a cache line.
fn line(found: &Findings, at: usize, expected: bool) -> Verdict {
    let Some((map, shared)) = found.maps.get(at) else { return missing() };
    let used: Vec<&BlockInfo> = map.blocks().iter().filter(|block| block.allocated).collect();
    let [.., p, q] = used[..] else { return missing() };
    let mut text = format!("they begin at {:#x} and {:#x} of the heap", p.offset, q.offset);
    if !expected {
        let times = quotient(found, "no-unused", "one-line").map(|(_, times)| times);
        text += &times.map_or_else(String::new, |times| format!("; {times}"));
    }
    decided(*shared == expected, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_on(found: &Findings, line: u32, word: &str) -> Verdict {
        let all = verdicts(found);
        let mut of_line = all.into_iter().filter(|(claim, _)| claim.line == line);
        of_line.find(|(claim, _)| claim.text.contains(word)).expect("such a claim").1
    }

    #[test]
    fn claim_without_a_measurement_is_not_comparable() {
        for (claim, verdict) in verdicts(&Findings::default()) {
            assert!(matches!(verdict, Verdict::NotComparable(_)), "{claim:?}: {verdict:?}");
        }
    }

    #[test]
    fn deadlocked_stdio_refutes_the_recursive_lock() {
        let with = |share| Findings {
            reentered: [(
                Reentry("stdio", HANDLER, "deadlocked"),
                MeasuredShare { share, tries: 200 },
            )]
            .into(),
            ..Findings::default()
        };
        let found = verdict_on(&with(0.198), 27, "recursive");
        assert!(
            matches!(&found, Verdict::NotReproduced(why) if why.starts_with("19.8 % of 200")),
            "{found:?}"
        );
        assert!(matches!(verdict_on(&with(0.0), 27, "recursive"), Verdict::Reproduced(_)));
    }

    #[test]
    fn times_decide_false_sharing() {
        let of = |one_line, two_lines| Findings {
            counting_ms: [("serial", 57.0), ("one-line", one_line), ("two-lines", two_lines)]
                .into(),
            ..Findings::default()
        };
        let as_published = of(63.0, 33.0);
        for line in [315, 343] {
            let found = verdict_on(&as_published, line, "ms");
            assert!(matches!(found, Verdict::Reproduced(_)), "{line}: {found:?}");
            let found = verdict_on(&of(30.0, 29.0), line, "ms");
            assert!(matches!(found, Verdict::NotReproduced(_)), "{line}: {found:?}");
        }
    }
}
