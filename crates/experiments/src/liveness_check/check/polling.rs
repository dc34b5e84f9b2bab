//! A polling thread in the monitor: [`PollingThread`].

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use tontine_host::error::{ErrorContext, MeasureError, Result};

use super::{Check, Procfs, passed};
use crate::liveness_check::monitored::Monitored;

/// Polling interval.
pub const POLLING_PERIOD: Duration = Duration::from_millis(1);

/// A flag published by a thread that checks procfs every [`POLLING_PERIOD`].
pub struct PollingThread {
    shared: Arc<PublishedStatus>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct PublishedStatus {
    alive: AtomicBool,
    looks: AtomicU64,
    stop: AtomicBool,
}

impl PollingThread {
    /// Starts the thread. Returns after the thread's first check.
    ///
    /// # Errors
    /// Returns `Skipped` if the system refuses a thread, a descriptor or the check.
    pub fn of(monitored: &Monitored) -> Result<Self> {
        let directory = passed(monitored)?.try_clone_to_owned().setting_up("dup")?;
        // The call is probed here, because the thread only publishes "not alive", whatever the
        // reason.
        Procfs(directory.as_fd()).probe()?;
        let shared = Arc::new(PublishedStatus::default());
        let publish = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .spawn(move || {
                while !publish.stop.load(Ordering::Relaxed) {
                    let alive = Procfs(directory.as_fd()).look().unwrap_or(false);
                    publish.alive.store(alive, Ordering::Relaxed);
                    publish.looks.fetch_add(1, Ordering::Relaxed);
                    std::thread::park_timeout(POLLING_PERIOD);
                }
            })
            .setting_up("clone of the polling thread")?;
        let this = Self { shared, thread: Some(thread) };
        this.until_looked_again(1)?;
        Ok(this)
    }

    /// Waits for `looks` more checks, so that the thread has observed all earlier events.
    fn until_looked_again(&self, looks: u64) -> Result<()> {
        let enough = self.shared.looks.load(Ordering::Relaxed) + looks;
        for _ in 0..5_000 {
            if self.shared.looks.load(Ordering::Relaxed) >= enough {
                return Ok(());
            }
            std::thread::sleep(POLLING_PERIOD);
        }
        Err(MeasureError::fail("the polling thread did not check within five seconds"))
    }
}

impl Check for PollingThread {
    #[inline(always)]
    fn look(&self) -> std::result::Result<bool, Errno> {
        Ok(self.shared.alive.load(Ordering::Relaxed))
    }

    fn settle(&self) -> Result<()> {
        // One check may have begun before the event, so only the second check counts.
        self.until_looked_again(2)
    }
}

impl Drop for PollingThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
