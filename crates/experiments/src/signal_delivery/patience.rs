//! Bounded waits: until a condition holds, the other process ends, or a timeout expires.

use std::time::{Duration, Instant};

use rustix::process::{WaitId, WaitIdOptions, WaitStatus, waitid};
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::child::Child;

/// Timeout for one step of another process.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of polls between two expensive checks of the time and of the process.
const LOOKS: u32 = 1024;

/// Action between two polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Spin: the other process has its own processor.
    Spin,
    /// Yield the processor: the other process needs it.
    Yield,
}

/// Waits until `so` returns `true`. An error states `what` was expected of the child.
///
/// # Errors
/// Returns `Failed` if the child ended first (with its status) or took longer than five seconds.
pub(crate) fn wait_until(
    child: &mut Child,
    pass: Pass,
    what: &str,
    mut so: impl FnMut() -> bool,
) -> Result<()> {
    let mut since = None;
    loop {
        for _ in 0..LOOKS {
            if so() {
                return Ok(());
            }
            match pass {
                Pass::Spin => std::hint::spin_loop(),
                Pass::Yield => std::thread::yield_now(),
            }
        }
        if has_ended(child) {
            // The child may have completed its step between our last poll and its end.
            if so() {
                return Ok(());
            }
            let ended = describe(child.wait()?);
            return Err(MeasureError::fail(format!("expected {what}, but the receiver {ended}")));
        }
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(MeasureError::fail(format!(
                "expected {what} within {PATIENCE:?}, found nothing: is the machine overloaded, \
                 or does a tracer hold the receiver?"
            )));
        }
    }
}

/// Returns `true` if the child has ended, and leaves it unreaped.
pub(crate) fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child.pid()), options), Ok(Some(_)))
}

/// Describes the end of a process in words.
pub(crate) fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended with wait status {:#x}", status.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_that_ended_first_is_reported_with_its_status() {
        let mut child = Child::fork(|| 9).expect("fork");
        let trouble = wait_until(&mut child, Pass::Yield, "a stamp", || false)
            .expect_err("it never becomes so");
        assert!(matches!(trouble, MeasureError::Failed(_)));
        assert!(trouble.why().contains("exited with status 9"), "{trouble}");
    }
}
