//! Termination of runs from outside: [`Stopper`].
//!
//! A stopper holds the executor of the current run, and no other part of the run. The
//! [`RunReport`](crate::RunReport) describes the state of a stopped run; a [`RunningThread`]
//! identifies a thread that keeps a run from stopping.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::executor::FiberExecutor;
use crate::label::named_by;

/// A handle with which any thread can stop the runs of the systems that it was passed to with
/// [`Builder::stopper`](crate::Builder::stopper). Clones share one state.
///
/// A run ends as [`EndReason::Stopped`](crate::EndReason::Stopped) as soon as each thread that
/// computes has made a system call, such as [`Sys::poll`](tontine_unix::Sys::poll).
///
/// ```
/// use tontine_unix_sim::{EndReason, Stopper, Virtual};
///
/// let stopper = Stopper::new();
/// let unix = Virtual::builder().stopper(&stopper).build()?;
/// let report = unix.run(move |sys| {
///     stopper.stop("enough");
///     loop {
///         sys.poll();
///     }
/// });
/// assert_eq!(report.ending, EndReason::Stopped);
/// # Ok::<(), tontine_unix_sim::BuildError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<StopperShared>);

#[derive(Debug, Default)]
struct StopperShared {
    why: OnceLock<String>,
    running: Mutex<Option<Arc<FiberExecutor>>>,
}

impl Stopper {
    /// Creates a stopper that has not been used yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the current run, and all later runs. Only the first reason is kept.
    pub fn stop(&self, why: &str) {
        let _ = self.0.why.set(why.to_owned());
        if let Some(executor) = &*self.running() {
            executor.stop();
        }
    }

    /// Returns the reason, if [`Stopper::stop`] has been called.
    pub fn reason(&self) -> Option<&str> {
        self.0.why.get().map(String::as_str)
    }

    /// Returns the threads of the current run that are on a processor at this moment; `None` if no
    /// run is active. A thread that appears repeatedly after a stop is computing without a system
    /// call.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use tontine_unix_sim::{Stopper, Virtual};
    ///
    /// let stopper = Stopper::new();
    /// assert_eq!(stopper.running_threads(), None);
    /// let unix = Virtual::builder().stopper(&stopper).build()?;
    /// let (seen, from) = (stopper.clone(), channel());
    /// unix.run(move |_| {
    ///     from.0.send(seen.running_threads()).expect("the receiver is open");
    ///     assert_eq!(from.1.recv().expect("a list").expect("a run is active").len(), 1);
    ///     0
    /// });
    /// # Ok::<(), tontine_unix_sim::BuildError>(())
    /// ```
    pub fn running_threads(&self) -> Option<Vec<RunningThread>> {
        let names = self.running().as_ref()?.running();
        let named = |name| {
            let (pid, tid) = named_by(name);
            RunningThread { pid, tid }
        };
        Some(names.into_iter().map(named).collect())
    }

    /// Starts a run, which ends when the guard is dropped.
    pub(crate) fn attach(&self, executor: &Arc<FiberExecutor>) -> StopGuard {
        *self.running() = Some(Arc::clone(executor));
        if self.reason().is_some() {
            executor.stop();
        }
        StopGuard(self.clone())
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<FiberExecutor>>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that is on a processor, identified by its numbers in the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningThread {
    /// The number of its process.
    pub pid: i32,
    /// The number of the thread.
    pub tid: i32,
}

impl fmt::Display for RunningThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of process {}", self.tid, self.pid)
    }
}

/// Clears the current run when dropped.
pub(crate) struct StopGuard(Stopper);

impl Drop for StopGuard {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}
