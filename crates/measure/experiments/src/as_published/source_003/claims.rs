//! The claims of source 003: [`CLAIMS`], judged from the [`Findings`] of a run.

use std::collections::BTreeMap;
use std::fmt;

use tontine_bench::engine::invoked::MetricSummary;
use tontine_mechanisms::classic::{BlockInfo, Map};

use super::super::claims::{Claim, Verdict, claim, decide, not_comparable};
use super::{AS_IT_IS, HANDLER, THREADS, WIDE};
use crate::strace::TraceLine;

/// The blocks of the source's heap: the prologue, the unused block, the two counters and the rest.
const PUBLISHED_BLOCKS: [(usize, bool); 5] =
    [(16, true), (48, true), (32, true), (32, true), (3984, false)];

/// The flags with which the source's `pthread_create` calls `clone3`.
const THREAD_FLAGS: &str = "CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD|\
                            CLONE_SYSVSEM|CLONE_SETTLS|CLONE_PARENT_SETTID|CLONE_CHILD_CLEARTID";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredShare {
    pub(super) share: f64,
    pub(super) tries: usize,
}

impl MeasuredShare {
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
    pub(super) main_thread: Option<MeasuredShare>,
    pub(super) reentered: BTreeMap<Reentry, MeasuredShare>,
    /// Lost increments of the shared counter; `true` if the thread-local one was exact.
    pub(super) counted: Option<(MeasuredShare, bool)>,
    /// Lost increments of threads that start at the same moment.
    pub(super) raced: Option<MeasuredShare>,
    pub(super) traces: Option<[Vec<TraceLine>; 2]>,
    /// The heap's maps with and without the unused block; `true` if the counters share a line.
    pub(super) maps: Vec<(Map, bool)>,
    /// Times of the counting programs in ms, by variant of `false-sharing`.
    pub(super) counting_ms: BTreeMap<&'static str, f64>,
}

pub(super) const CLAIMS: [Claim<Findings>; 25] = [
    claim(13, "strtok is not reentrant: two threads disturb each other", |found| {
        found.occurs(Reentry("strtok", THREADS, "corrupted"))
    }),
    claim(13, "strtok is not reentrant: a handler disturbs what it interrupts", |found| {
        found.occurs(Reentry("strtok", HANDLER, "corrupted"))
    }),
    claim(15, "strtok_r is reentrant and so thread-safe", |found| {
        found.never_occurs(Reentry("strtok-r", THREADS, "corrupted"))
    }),
    claim(21, "flockfile makes several stdio calls atomic", |found| {
        found.never_occurs(Reentry("stdio-flockfile", THREADS, "corrupted"))
    }),
    claim(23, "strtok_r is reentrant and so async-signal-safe", |found| {
        found.never_occurs(Reentry("strtok-r", HANDLER, "corrupted"))
    }),
    claim(27, "a handler that takes a held plain lock deadlocks", |found| {
        found.occurs(Reentry("handler-plain-lock", HANDLER, "deadlocked"))
    }),
    claim(27, "stdio does not deadlock in a handler: its lock is recursive", recursive),
    claim(27, "stdio in a handler is still unsafe, for its buffers", |found| {
        found.occurs(Reentry("stdio", HANDLER, "corrupted"))
    }),
    claim(29, "a function is safe from handlers while their signals are blocked", |found| {
        found.never_occurs(Reentry("handler-masked", HANDLER, "deadlocked"))
    }),
    claim(35, "the kernel chooses an arbitrary one of the unblocked threads", |found| {
        let main = found.main_thread?;
        let percent = main.share * 100.0;
        let text = format!("the main thread took {percent:.1} % of {} signals", main.tries);
        decide(main.share < 1.0, text)
    }),
    claim(41, "a signal-handling thread gets SIGUSR1 and SIGQUIT", |found| {
        found.loses_none("handler-sigsuspend")
    }),
    claim(57, "a signal just before pause() is missed, one in sigsuspend() not", missed),
    claim(108, "sigwait() takes every signal; no default action is ever carried out", |found| {
        found.loses_none("sigwait-thread")
    }),
    claim(183, "the shared x is unpredictable, the thread-local y exact", counters),
    claim(218, "mmap() and mprotect() set up the new thread's stack", stack),
    claim(223, "pthread_create calls clone3 between two rt_sigprocmask", creation),
    claim(231, "clone3 has the published nine flags", flags),
    claim(246, "fork is clone with two thread-id flags and SIGCHLD", fork),
    claim(248, "SIGCHLD with CLD_EXITED and status 0 reports the child's end", sigchld),
    claim(279, "the program takes 57 ms with one thread", |found| {
        let ms = found.counting_ms.get("serial")?;
        not_comparable(format!("the source names no machine; here it is {ms:.1} ms"))
    }),
    claim(315, "two threads are slower than one: 63 instead of 57 ms", |found| {
        let (ratio, text) = quotient(found, "one-line", "serial")?;
        decide(ratio > 1.0, text)
    }),
    claim(330, "the heap's map has the five published blocks", blocks),
    claim(332, "both counters are in one cache line", |found| line(found, 0, true)),
    claim(336, "without the unused block they are in separate lines", |found| {
        line(found, 1, false)
    }),
    claim(343, "64-byte requests bring 63 ms down to 33 ms", |found| {
        let (ratio, text) = quotient(found, "two-lines", "one-line")?;
        decide(ratio < 0.8, text)
    }),
];

impl Findings {
    /// Judges whether a function that is entered again ever fails.
    fn occurs(&self, reentry: Reentry) -> Option<Verdict> {
        let share = self.reentered.get(&reentry)?;
        decide(share.occurred(), format!("{}: {share}", reentry.2))
    }

    fn never_occurs(&self, reentry: Reentry) -> Option<Verdict> {
        let share = self.reentered.get(&reentry)?;
        decide(!share.occurred(), format!("{}: {share}", reentry.2))
    }

    fn loses_none(&self, variant: &'static str) -> Option<Verdict> {
        let share = self.lost.get(&(variant, AS_IT_IS))?;
        decide(!share.occurred(), format!("lost: {share}"))
    }
}

fn recursive(found: &Findings) -> Option<Verdict> {
    let reentry = Reentry("stdio", HANDLER, "deadlocked");
    let share = found.reentered.get(&reentry)?;
    if !share.occurred() {
        return found.never_occurs(reentry);
    }
    Some(Verdict::NotReproduced(format!(
        "{share} interrupted lines deadlocked: the lock knows its owner only some instructions \
         after it is taken, and a handler that prints in between waits for the thread that it \
         interrupted"
    )))
}

fn missed(found: &Findings) -> Option<Verdict> {
    let lost = |variant, window| found.lost.get(&(variant, window)).copied();
    let (pause, wide) = (lost("handler-pause", AS_IT_IS)?, lost("handler-pause", WIDE)?);
    let suspend = lost("handler-sigsuspend", WIDE)?;
    decide(
        (pause.occurred() || wide.occurred()) && !suspend.occurred(),
        format!(
            "pause() missed {pause}, and {wide} with 10 µs of work before it; sigsuspend() with \
             the same work {suspend}"
        ),
    )
}

fn counters(found: &Findings) -> Option<Verdict> {
    let (lost, exact) = found.counted?;
    let raced = found.raced.map_or(String::new(), |raced| {
        format!(", {:.1} % if both threads start at the same moment", raced.share * 100.0)
    });
    let of_y = if exact { "none" } else { "some" };
    decide(
        exact && (lost.occurred() || found.raced.is_some_and(MeasuredShare::occurred)),
        format!("{:.1} % of the increments of x are lost{raced}, of y {of_y}", lost.share * 100.0),
    )
}

/// Returns the calls of the thread that creates a thread (trace 0) or a process (1), in order.
fn calls(found: &Findings, trace: usize) -> Option<Vec<&TraceLine>> {
    let lines = found.traces.as_ref()?[trace].iter();
    Some(lines.filter(|line| line.by_caller && line.call().is_some()).collect())
}

fn no_creation() -> Option<Verdict> {
    decide(false, "the trace has no creation".into())
}

fn stack(found: &Findings) -> Option<Verdict> {
    let calls = calls(found, 0)?;
    let at = |name: &str| calls.iter().position(|line| line.call() == Some(name));
    let inaccessible = |line: &TraceLine| line.arguments().any(|text| text == "PROT_NONE");
    match (at("mmap"), at("mprotect")) {
        (Some(map), Some(protect)) if map < protect && inaccessible(calls[map]) => {
            let length = calls[map].arguments().nth(1).unwrap_or("?");
            decide(true, format!("{length} bytes, then mprotect"))
        }
        (map, protect) => {
            let map = map.map_or("no mmap", |_| "an mmap");
            let protect = protect.map_or("no mprotect", |_| "an mprotect");
            decide(false, format!("the trace has {map} and {protect}"))
        }
    }
}

fn creation(found: &Findings) -> Option<Verdict> {
    let calls = calls(found, 0)?;
    let Some(at) = calls.iter().position(|line| line.is_creation()) else {
        return no_creation();
    };
    let masks =
        |lines: &[&TraceLine]| lines.iter().any(|line| line.call() == Some("rt_sigprocmask"));
    let title = calls[at].call().unwrap_or("?");
    let between = masks(&calls[..at]) && masks(&calls[at + 1..]);
    let place = if between { "between two" } else { "not between two" };
    decide(between && title == "clone3", format!("{title}, {place} rt_sigprocmask"))
}

fn flags(found: &Findings) -> Option<Verdict> {
    let calls = calls(found, 0)?;
    let Some((flags, _)) = calls.iter().find_map(|line| line.creation()) else {
        return no_creation();
    };
    let same = flags == THREAD_FLAGS;
    decide(same, if same { "the same nine".into() } else { format!("they are {flags}") })
}

fn fork(found: &Findings) -> Option<Verdict> {
    let calls = calls(found, 1)?;
    let created = calls.iter().find_map(|line| Some((line.call()?, line.creation()?)));
    let Some((title, (flags, signal))) = created else { return no_creation() };
    let same = title == "clone" && flags == "CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID";
    decide(same, format!("{title}, {flags}, exit signal {signal}"))
}

fn sigchld(found: &Findings) -> Option<Verdict> {
    let [_, lines] = found.traces.as_ref()?;
    let Some(signal) = lines.iter().find(|line| line.is_signal()) else {
        return decide(false, "the trace has no signal".into());
    };
    let [code, status] = ["si_code", "si_status"].map(|name| signal.field(name).unwrap_or("?"));
    decide(code == "CLD_EXITED" && status == "0", format!("{code}, status {status}"))
}

fn quotient(found: &Findings, one: &'static str, other: &'static str) -> Option<(f64, String)> {
    let (above, below) = (found.counting_ms.get(one)?, found.counting_ms.get(other)?);
    let ratio = above / below;
    Some((ratio, format!("{one} {above:.1} ms, {other} {below:.1} ms: {ratio:.2} times")))
}

fn blocks(found: &Findings) -> Option<Verdict> {
    let (map, _) = found.maps.first()?;
    let seen: Vec<_> = map.blocks().iter().map(|block| (block.size, block.allocated)).collect();
    let sizes = seen.iter().map(|(size, _)| size.to_string()).collect::<Vec<_>>().join(", ");
    decide(seen == PUBLISHED_BLOCKS, format!("{} blocks: {sizes} bytes", seen.len()))
}

/// Judges by a map whether its two counters, the last allocated blocks, share a cache line.
fn line(found: &Findings, at: usize, expected: bool) -> Option<Verdict> {
    let (map, shared) = found.maps.get(at)?;
    let used: Vec<&BlockInfo> = map.blocks().iter().filter(|block| block.allocated).collect();
    let [.., p, q] = used[..] else { return None };
    let mut text = format!("they begin at {:#x} and {:#x} of the heap", p.offset, q.offset);
    if !expected {
        let times = quotient(found, "no-unused", "one-line").map(|(_, times)| times);
        text += &times.map_or_else(String::new, |times| format!("; {times}"));
    }
    decide(*shared == expected, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_on(found: &Findings, line: u32, word: &str) -> Verdict {
        let mut of_line = CLAIMS.iter().filter(|claim| claim.line == line);
        of_line.find(|claim| claim.text.contains(word)).expect("such a claim").verdict(found)
    }

    #[test]
    fn claim_without_a_measurement_is_not_comparable() {
        for claim in &CLAIMS {
            let verdict = claim.verdict(&Findings::default());
            assert!(matches!(verdict, Verdict::NotComparable(_)), "{}: {verdict:?}", claim.text);
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
