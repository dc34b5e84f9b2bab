//! When this process will be given up by whoever started it, so that what it starts in turn is
//! given up before, and the reason still told: [`within`].

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Names, in the environment, the milliseconds that an invocation has.
pub const NAME: &str = "TONTINE_DEADLINE_MS";

/// What is kept for cleaning up and for the reply.
const RESERVE: Duration = Duration::from_secs(4);
/// Nothing gets less than this.
const LEAST: Duration = Duration::from_secs(1);

static UNTIL: OnceLock<Option<Instant>> = OnceLock::new();

/// Counts from now on.
pub fn begin() {
    until();
}

fn until() -> Option<Instant> {
    *UNTIL.get_or_init(|| {
        let given = std::env::var(NAME).ok()?.parse().ok()?;
        Instant::now().checked_add(Duration::from_millis(given))
    })
}

/// As long as `wanted`, but no longer than what is left.
pub fn within(wanted: Duration) -> Duration {
    shorter(wanted, until().map(|until| until.saturating_duration_since(Instant::now())))
}

fn shorter(wanted: Duration, left: Option<Duration>) -> Duration {
    left.map_or(wanted, |left| wanted.min(left.saturating_sub(RESERVE).max(LEAST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_before_the_one_who_waits_is_given_up() {
        let [short, long] = [2, 120].map(Duration::from_secs);
        assert_eq!(shorter(long, None), long);
        assert_eq!(shorter(short, Some(long)), short);
        assert_eq!(shorter(long, Some(Duration::from_secs(20))), Duration::from_secs(16));
        assert_eq!(shorter(long, Some(short)), LEAST);
    }
}
