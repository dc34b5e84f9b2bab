//! What stops runs that come to no end: [`Bound`].
//!
//! A thread of its own waits for the first of three: the runs' end, the user's signal, the limit.

use std::io::{self, PipeWriter};
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tontine_measure::engine::stop::Stop;
use tontine_unix::{Signal, Stopper};

/// Stops runs after some time of the host's clock, and after SIGINT, SIGTERM and SIGHUP.
#[derive(Debug)]
pub(super) struct Bound {
    /// Closed when the runs have ended.
    runs: PipeWriter,
    waiting: JoinHandle<Option<i32>>,
}

impl Bound {
    /// The time begins; 0 seconds are for ever.
    pub(super) fn begin(seconds: u64, stopper: &Stopper) -> io::Result<Self> {
        let stop = Stop::on_signals()?;
        let (ended, runs) = io::pipe()?;
        let stopper = stopper.clone();
        let limit = Timespec::try_from(Duration::from_secs(seconds)).ok();
        let limit = limit.filter(|_| seconds > 0);
        let waiting = thread::spawn(move || {
            let mut ready = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
            // Signals are for other threads where they can be; a wait cut short waits anew.
            while poll(&mut ready, limit.as_ref()) == Err(Errno::INTR) {}
            let signal = stop.signal();
            match signal.and_then(Signal::new) {
                Some(signal) => stopper.stop(&format!("{signal} before it")),
                None if ready[0].revents().is_empty() => {
                    stopper.stop(&format!("none within {seconds} s (--limit)"));
                }
                None => {}
            }
            signal
        });
        Ok(Self { runs, waiting })
    }

    /// The runs have ended; the signal that stopped them, if one did.
    pub(super) fn end(self) -> Option<i32> {
        drop(self.runs);
        self.waiting.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}
