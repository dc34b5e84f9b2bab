//! Source 002's queue: the throughput that `kill(pid, 0)` before each message leaves:
//! [`compare`].
//!
//! The source's own queue in shared memory was never finished. Ours are the plain ring of
//! [`crate::queue_with_check`], the library's mailbox, which has all properties on the source's
//! list, and a pipe, which makes a system call for each message.

use std::io::Write;
use std::time::Duration;

use tontine_bench::size::Size;
use tontine_bench::task::Params;
use tontine_host::error::Result;
use tontine_mechanisms::driver::Driver;
use tontine_mechanisms::mailbox::MailboxMechanism;
use tontine_mechanisms::pipe::Pipe;

use super::super::points::SourcePoints;
use super::super::verdict::Verdict;
use super::say;
use crate::{queue_with_check, throughput};

/// The points, and the names of their queues in the output.
const QUEUES: [(&str, &str); 3] = [
    ("ring", "a plain ring, 8 bytes, both spin"),
    ("mailbox", "the library's mailbox, 64 bytes"),
    ("pipe", "a pipe, 64 bytes"),
];
/// Size of a message in bytes, in the queues that are not the plain ring.
const BYTES: usize = 64;
/// Shares of the throughput that count as "about a half".
const ABOUT_HALF: std::ops::RangeInclusive<f64> = 0.35..=0.65;

/// The source's time for `kill(pid, 0)` without the loop, in ns.
const PUBLISHED_KILL_NS: f64 = 174.0;

/// Streams through each queue without and with the check. Writes both rates and their ratio, and
/// returns the verdict on the source's claim. `kill` is the time of one check here, in ns.
pub(super) fn compare(
    points: &mut SourcePoints<'_, '_>,
    kill: Option<f64>,
    out: &mut dyn Write,
) -> Result<Verdict> {
    let (.., pairs) = plan(points.quick());
    say(
        out,
        format_args!(
            "\nMillions of messages per second from one process to another, without and with\n\
             kill(pid, 0) before each; the fastest of {pairs} streams each\n\n\
             {:>46} {:>9} {:>9} {:>6}",
            "", "without", "with", "left"
        ),
    )?;
    let mut seen = Vec::new();
    for (point, name) in QUEUES {
        match points.own::<[f64; 2]>(point, Params::new()) {
            Ok([without, with]) => {
                let left = with / without;
                let percent = left * 100.0;
                let [without, with] = [without, with].map(|rate| rate / 1e6);
                say(out, format_args!("{name:>46} {without:>9.3} {with:>9.3} {percent:>4.0} %"))?;
                seen.push((name, without, left));
            }
            Err(trouble) => say(out, format_args!("{name:>46} {trouble}"))?,
        }
    }
    Ok(verdict(&seen, kill))
}

/// Returns the size of the plain ring's batches, and the time and the number of the streams through
/// the other queues.
fn plan(quick: bool) -> (Size, Duration, usize) {
    let (size, ms, pairs) = if quick { (Size::Quick, 20, 5) } else { (Size::Default, 100, 15) };
    (size, Duration::from_millis(ms), pairs)
}

/// Returns the messages per second of a queue without and with the check; `None` if the point is
/// not a queue.
pub(super) fn rates(point: &str, quick: bool) -> Option<Result<[f64; 2]>> {
    let (size, budget, pairs) = plan(quick);
    match point {
        "ring" => Some(queue_with_check::beside_kill(size)),
        "mailbox" => Some(streams::<MailboxMechanism>(budget, pairs)),
        "pipe" => Some(streams::<Pipe>(budget, pairs)),
        _ => None,
    }
}

/// Returns the rates of a mechanism, in messages per second.
fn streams<D: Driver>(budget: Duration, pairs: usize) -> Result<[f64; 2]> {
    let each = throughput::beside_kill::<D>(BYTES, budget, pairs)?;
    Ok(each.map(|ns| 1e9 / ns.into_iter().fold(f64::INFINITY, f64::min)))
}

fn verdict(seen: &[(&str, f64, f64)], kill: Option<f64>) -> Verdict {
    let text = |&(name, _, left): &(&str, f64, f64)| format!("{name}: {:.0} %", left * 100.0);
    let shares = seen.iter().map(text).collect::<Vec<_>>().join("; ");
    if seen.iter().any(|(.., left)| ABOUT_HALF.contains(left)) {
        return Verdict::Reproduced(format!(
            "it depends on the queue's own time for a message; left by {shares}"
        ));
    }
    match kill {
        _ if seen.is_empty() => Verdict::NotComparable("no queue could be measured".into()),
        None => Verdict::NotComparable("kill could not be timed".into()),
        Some(kill) => Verdict::NotReproduced(format!(
            "a queue loses half if its message takes as long as the check, which is {kill:.0} ns \
             here and {PUBLISHED_KILL_NS:.0} ns in the source; left by {shares}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_any_queue_reproduces_the_claim() {
        let [fast, half] = [("fast", 100.0, 0.1), ("even", 5.0, 0.48)];
        let found = verdict(&[fast, half], Some(500.0));
        assert!(matches!(&found, Verdict::Reproduced(text) if text.contains("even: 48 %")));
        assert!(matches!(verdict(&[fast], Some(500.0)), Verdict::NotReproduced(_)));
        assert!(matches!(verdict(&[fast], None), Verdict::NotComparable(_)));
        assert!(matches!(verdict(&[], Some(500.0)), Verdict::NotComparable(_)));
    }
}
