//! Programs that take time: `count`, `sleep`, `spin`.

use std::time::Duration;

use tontine_unix::Sys;

use super::super::say::say;
use super::{ProgramFailure, finish};

/// Writes one number per second, up to the last number or until the process is killed.
pub(super) fn count(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let counted = || {
        let last = match &arguments[1..] {
            [] => u64::MAX,
            [last] => last.parse().map_err(|_| ProgramFailure::Usage("count [last]"))?,
            _ => return Err(ProgramFailure::Usage("count [last]")),
        };
        for n in 1..=last {
            say(sys, format_args!("{n}\n"))?;
            rest(sys, Duration::from_secs(1));
        }
        Ok(0)
    };
    finish(sys, arguments, counted())
}

/// Sleeps for a number of seconds.
pub(super) fn sleep(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let slept =
        seconds(&arguments[1..]).ok_or(ProgramFailure::Usage("sleep seconds")).map(|duration| {
            rest(sys, duration);
            0
        });
    finish(sys, arguments, slept)
}

/// Computes for a number of seconds, or until the process is killed.
pub(super) fn spin(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let end = match &arguments[1..] {
        [] => Some(Duration::MAX),
        given => seconds(given).map(|duration| sys.now().saturating_add(duration)),
    };
    let Some(end) = end else {
        return finish(sys, arguments, Err(ProgramFailure::Usage("spin [seconds]")));
    };
    let mut number = 1_u64;
    while sys.now() < end {
        for _ in 0..10_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
        }
        sys.poll();
    }
    0
}

fn seconds(arguments: &[String]) -> Option<Duration> {
    let [text] = arguments else { return None };
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// Sleeps for `duration`, and continues the sleep if a handler interrupts it.
pub(super) fn rest(sys: &dyn Sys, mut duration: Duration) {
    while let Err((_, left)) = sys.nanosleep(duration) {
        duration = left;
    }
}
