//! Waits without the interpreter's lock: [`Timeout`].

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use tontine::Error;

use crate::failure::exception;

/// Maximum length of a sleep.
///
/// A signal ends a sleep at once. The next sleep notices a signal that arrives between the check
/// for signals and the sleep, and a sender that another thread closes.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(200);

/// Maximum value of the parameter `spin`: a signal does not end polling.
const MAX_SPIN: Duration = Duration::from_millis(100);

/// The end of a wait; `None` waits indefinitely.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeout(Option<Instant>);

impl Timeout {
    /// Checks a timeout in seconds, without a look at the clock.
    ///
    /// # Errors
    /// `ValueError` if the timeout is negative or not a number.
    pub(crate) fn check(timeout: Option<f64>) -> PyResult<()> {
        match timeout {
            Some(seconds) if seconds.is_nan() || seconds < 0.0 => Err(PyValueError::new_err(
                format!("expected a timeout of at least 0 seconds, found {seconds}"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the limit for a timeout in seconds; `None` waits indefinitely.
    ///
    /// # Errors
    /// Those of [`Timeout::check`].
    pub(crate) fn of(timeout: Option<f64>) -> PyResult<Self> {
        Self::check(timeout)?;
        let Some(seconds) = timeout else { return Ok(Self(None)) };
        let length = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        // Beyond the range of the clock, the wait has no end.
        Ok(Self(Instant::now().checked_add(length)))
    }

    /// Returns the remaining time, at most `most`.
    pub(crate) fn left(self, most: Duration) -> Duration {
        self.0.map_or(most, |end| end.saturating_duration_since(Instant::now()).min(most))
    }

    /// Sleeps until a descriptor is readable, a signal handler has run, or a while has passed.
    ///
    /// # Errors
    /// `TimedOut` if the time is over; the exception that a signal handler raised.
    pub(crate) fn sleep(self, py: Python<'_>, descriptor: BorrowedFd<'_>) -> PyResult<()> {
        let length = self.step(py)?;
        let timeout = length.try_into().expect("a fraction of a second");
        // The caller looks for itself whether the wait is over.
        let _ = py.detach(|| {
            poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout))
        });
        py.check_signals()
    }

    /// Lets signal handlers run, and returns the length of the next sleep.
    ///
    /// # Errors
    /// Like [`Timeout::sleep`].
    pub(crate) fn step(self, py: Python<'_>) -> PyResult<Duration> {
        py.check_signals()?;
        let length = self.left(MAX_SLEEP);
        if length.is_zero() { Err(exception(py, &Error::TimedOut)) } else { Ok(length) }
    }
}

/// Returns the time to poll before a sleep, from the parameter `spin` in seconds.
///
/// # Errors
/// `ValueError` if it is out of range.
pub(crate) fn spin(seconds: f64) -> PyResult<Duration> {
    let spin = Duration::try_from_secs_f64(seconds).ok().filter(|spin| *spin <= MAX_SPIN);
    spin.ok_or_else(|| {
        PyValueError::new_err(format!(
            "expected a spin time of 0 to {} seconds, found {seconds}",
            MAX_SPIN.as_secs_f64()
        ))
    })
}
