//! The text of a run, turn by turn: [`describe`].

use std::collections::BTreeSet;
use std::fmt::Write;

use tontine_unix_sim::internal::{At, CLOCK, SwitchEvent, SwitchReason, lock_name, named_by};

/// The part of a run between two consecutive points of a fiber.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) left: SwitchEvent,
    /// The system call that the thread is making, or the last one that it made.
    pub(super) call: Option<&'static str>,
    /// The number of decisions before this part.
    pub(super) decision: u32,
}

/// Returns the text of a run, with a line for each turn; `name` returns the names of processes. If
/// a process has several threads, each of its turns names the thread.
pub(super) fn describe(steps: &[Segment], name: impl Fn(i32) -> Option<String>) -> String {
    let numbers = |step: &Segment| named_by(step.left.name);
    let other_threads = steps.iter().map(numbers).filter(|(pid, tid)| pid != tid);
    let several: BTreeSet<i32> = other_threads.map(|(pid, _)| pid).collect();
    let mut text = String::new();
    for turn in steps.chunk_by(|one, next| one.left.fiber == next.left.fiber) {
        let (Some(first), Some(last)) = (turn.first(), turn.last()) else { continue };
        let mut calls: Vec<&str> = turn.iter().filter_map(|step| step.call).collect();
        calls.dedup();
        let calls =
            if calls.is_empty() { String::new() } else { format!("{}; ", calls.join(", ")) };
        if first.left.fiber == CLOCK {
            let _ = writeln!(text, "{:>6}  time passes to the next timer", first.decision);
            continue;
        }
        let who = who(&first.left, &name, &several);
        let end = end(last);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:>6}  fiber {:<3} {who:<28} {calls}{end}",
            first.decision, first.left.fiber
        );
    }
    text
}

/// Returns the process, and its thread if the process is one of `several`.
fn who(
    left: &SwitchEvent,
    name: &impl Fn(i32) -> Option<String>,
    several: &BTreeSet<i32>,
) -> String {
    if left.name == 0 {
        return "the system".to_owned();
    }
    let (pid, tid) = named_by(left.name);
    let process = match name(pid) {
        Some(name) => format!("process {pid} ({name})"),
        None => format!("process {pid}"),
    };
    if several.contains(&pid) { format!("{process}, thread {tid}") } else { process }
}

/// Returns how a turn ended.
fn end(step: &Segment) -> String {
    let lock = |rank: u8, instance: u32| format!("{} {instance}", lock_name(rank));
    let within = step.call.map_or(String::new(), |call| format!(" in {call}"));
    match (step.left.leave, step.left.at) {
        (SwitchReason::Park, _) => format!("sleeps{within}"),
        (SwitchReason::Spin, At::Lock(rank, instance)) => {
            format!("spins on {}{within}", lock(rank, instance))
        }
        (SwitchReason::Spin, _) => format!("spins{within}"),
        (SwitchReason::Yield, _) => "yields".to_owned(),
        (SwitchReason::End, _) => "ends".to_owned(),
        (SwitchReason::Abandon | SwitchReason::Overflow, _) => "is abandoned".to_owned(),
        (SwitchReason::Point, At::Call) => format!("before {}", step.call.unwrap_or("a call")),
        (SwitchReason::Point, At::Return) => format!("after {}", step.call.unwrap_or("a call")),
        (SwitchReason::Point, At::Lock(rank, instance)) => {
            format!("before {}{within}", lock(rank, instance))
        }
        (SwitchReason::Point, At::Unlock(rank, instance)) => {
            format!("after {}{within}", lock(rank, instance))
        }
        (SwitchReason::Point, At::Start | At::Awake | At::Within) => within.trim_start().to_owned(),
    }
}
