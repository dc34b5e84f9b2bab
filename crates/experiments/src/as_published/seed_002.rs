//! Source 002 as published: ten million loops of each check, and the source's table.
//!
//! The loops are those of [`crate::liveness_check::timing`]: a counter and the check. The published
//! figures come from a ThinkPad X220, Intel i5-2520M, Linux 4.19.12.

use std::io::Write;

use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};

use crate::liveness_check::check::{CompareExchange, means_of};
use crate::liveness_check::monitored::{Home, Means, Monitored};
use crate::liveness_check::timing::repeat;
use crate::with_check;

/// Number of loops in the source.
const LOOPS: u64 = 10_000_000;

/// Number of loops in a quick run.
const QUICK_LOOPS: u64 = 200_000;

/// A row of the table: its name in the source, our variant, the published ratio and seconds, and an
/// explanation.
struct PublishedRow(&'static str, &'static str, f64, f64, &'static str);

const ROWS: [PublishedRow; 6] = [
    PublishedRow("dummy", "dummy", 1.0, 0.04, "Nothing but the loop"),
    PublishedRow("load", "load", 1.0, 0.04, "One load from memory"),
    PublishedRow("mutex", "mutex-trylock", 3.5, 0.14, "pthread_mutex_trylock()"),
    PublishedRow("epoll", "epoll-empty", 32.0, 1.28, "epoll_wait() on a set without descriptors"),
    PublishedRow("kill", "kill-0", 44.5, 1.78, "kill(pid, 0)"),
    PublishedRow("procfs", "procfs-faccessat", 204.8, 8.19, "faccessat() in /proc/pid"),
];

/// Runs the source's benchmark and writes its table, with the published values next to ours.
///
/// # Errors
/// Returns `Failed` if the output cannot be written. If the system refuses a row, the table says
/// so.
pub fn reproduce(quick: bool, out: &mut dyn Write) -> Result<()> {
    let loops = if quick { QUICK_LOOPS } else { LOOPS };
    let clock = Clock::calibrated();
    if quick {
        writeln!(out, "{QUICK_LOOPS} loops each; times are scaled to {LOOPS}.").during("write")?;
    } else {
        writeln!(out, "{LOOPS} loops each.").during("write")?;
    }
    writeln!(
        out,
        "Published: ThinkPad X220, Intel i5-2520M, Linux 4.19.12.\n\n\
         {:8} {:>10} {:>10} {:>10} {:>10}  Explanation\n{:8} {:>10} {:>10} {:>10} {:>10}",
        "", "Normalised", "published", "Time", "published", "", "", "", "s", "s"
    )
    .during("write")?;
    let (mut dummy, mut mutex) = (None, None);
    for PublishedRow(name, variant, published_ratio, published_s, explanation) in ROWS {
        match seconds(variant, loops, &clock) {
            Ok(time_s) => {
                let base = *dummy.get_or_insert(time_s);
                if variant == "mutex-trylock" {
                    mutex = Some(time_s);
                }
                let ratio = time_s / base;
                writeln!(
                    out,
                    "{name:8} {ratio:>10.1} {published_ratio:>10.1} {time_s:>10.4} \
                     {published_s:>10.2}  {explanation}"
                )
                .during("write")?;
            }
            Err(trouble) => writeln!(out, "{name:8} {trouble}").during("write")?,
        }
    }
    let share = match (compare_exchange_seconds(loops, &clock), mutex) {
        (Ok(bare), Some(mutex)) => {
            format!(
                "a bare lock cmpxchg takes {:.0} % of trylock's time here",
                bare / mutex * 100.0
            )
        }
        (Err(trouble), _) => trouble.to_string(),
        (_, None) => "trylock could not be timed".to_owned(),
    };
    writeln!(
        out,
        "\nToday: dummy and load, below a nanosecond per loop, measure the loop and not the \
         check; {share}."
    )
    .during("write")
}

/// Returns the seconds for [`LOOPS`] loops with the check of `variant`, extrapolated from `loops`
/// loops.
fn seconds(variant: &str, loops: u64, clock: &Clock) -> Result<f64> {
    let means = means_of(variant)
        .ok_or_else(|| MeasureError::fail(format!("no such variant: {variant}")))?;
    let monitored = Monitored::start(means, Home::Here)?;
    with_check!(variant, &monitored, |check| timed(clock, loops, |loops| { repeat(&check, loops) }))
}

fn compare_exchange_seconds(loops: u64, clock: &Clock) -> Result<f64> {
    let monitored = Monitored::start(Means::Mutex, Home::Here)?;
    let check = CompareExchange::new(monitored.page().lock_word());
    timed(clock, loops, |loops| repeat(&check, loops))
}

fn timed(clock: &Clock, loops: u64, run: impl Fn(u64) -> u64) -> Result<f64> {
    run(loops / 100);
    let from = clock.start();
    let made = run(loops);
    let ns = clock.ns_between(from, clock.stop());
    if made == loops {
        Ok(ns / 1e9 * (LOOPS as f64 / loops as f64))
    } else {
        Err(MeasureError::fail(format!("check {made} did not report a living process as alive")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_002_table_has_every_row_and_its_scale() {
        let mut out = Vec::new();
        reproduce(true, &mut out).expect("table");
        let text = String::from_utf8(out).expect("text");
        for row in ROWS {
            assert!(text.lines().any(|line| line.starts_with(row.0)), "{}: {text}", row.0);
        }
        assert!(text.contains("200000 loops each; times are scaled to 10000000"), "{text}");
        assert!(text.contains("lock cmpxchg"), "{text}");
        eprintln!("{text}");
    }
}
