//! Ends runs before their end: [`Stopper`].
//!
//! It holds the executor of the run that is under way, and nothing else of it. What is left of a
//! run that was stopped, its [`Report`](crate::Report) says.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::executor::Executor;

/// Stops the runs of the systems that it was given to
/// ([`Builder::stopper`](crate::Builder::stopper)), from any thread. Clones are the same one.
///
/// A run ends as [`Ending::Stopped`](crate::Ending::Stopped) as soon as each thread that computes
/// has made a system call, [`Sys::poll`](crate::Sys::poll) for one.
///
/// ```
/// use tontine_unix::{Ending, Stopper, Virtual};
///
/// let stopper = Stopper::new();
/// let unix = Virtual::builder().stopper(&stopper).build()?;
/// let report = unix.run(move |sys| {
///     stopper.stop("enough");
///     loop {
///         sys.poll();
///     }
/// });
/// assert_eq!(report.ending, Ending::Stopped);
/// # Ok::<(), tontine_unix::BuildError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    why: OnceLock<String>,
    running: Mutex<Option<Arc<Executor>>>,
}

impl Stopper {
    /// One that stops nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the run that is under way, and all that would follow. The first reason stands.
    pub fn stop(&self, why: &str) {
        let _ = self.0.why.set(why.to_owned());
        if let Some(executor) = &*self.running() {
            executor.stop();
        }
    }

    /// Why it was asked to stop, if it was.
    pub fn why(&self) -> Option<&str> {
        self.0.why.get().map(String::as_str)
    }

    /// A run begins; it is one's own until the guard is dropped.
    pub(crate) fn attach(&self, executor: &Arc<Executor>) -> Attached {
        *self.running() = Some(Arc::clone(executor));
        if self.why().is_some() {
            executor.stop();
        }
        Attached(self.clone())
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<Executor>>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of a run that has ended.
pub(crate) struct Attached(Stopper);

impl Drop for Attached {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}
