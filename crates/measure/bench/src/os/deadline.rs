//! The deadline of this process, set by its parent: [`within`]. The processes that this process
//! starts time out earlier, so that it can still report the reason.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Name of the environment variable that contains an invocation's time in milliseconds.
pub const NAME: &str = "TONTINE_DEADLINE_MS";

/// Time reserved for cleanup and for the reply.
const RESERVE: Duration = Duration::from_secs(4);
/// Minimum timeout.
const LEAST: Duration = Duration::from_secs(1);

static UNTIL: OnceLock<Option<Instant>> = OnceLock::new();

/// Reads the deadline from the environment, relative to the current time.
pub fn begin() {
    until();
}

fn until() -> Option<Instant> {
    *UNTIL.get_or_init(|| {
        let given = std::env::var(NAME).ok()?.parse().ok()?;
        Instant::now().checked_add(Duration::from_millis(given))
    })
}

/// Returns `wanted`, or the remaining time if it is shorter.
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
    fn timeout_ends_before_process_deadline() {
        let [short, long] = [2, 120].map(Duration::from_secs);
        assert_eq!(shorter(long, None), long);
        assert_eq!(shorter(short, Some(long)), short);
        assert_eq!(shorter(long, Some(Duration::from_secs(20))), Duration::from_secs(16));
        assert_eq!(shorter(long, Some(short)), LEAST);
    }
}
