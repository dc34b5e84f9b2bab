//! The time limit of runs, and their end by a signal: [`Bound`].
//!
//! A separate thread waits for the first of three events: the end of the runs, a signal of the
//! user, or the time limit. On a signal or at the limit it requests the run in progress to stop,
//! and the events so far are printed. A run in which a thread computes without a system call cannot
//! be stopped; it is abandoned after [`POLLS`] polls. After the first signal the thread restores
//! the dispositions, so that a second signal ends the command at any point, unless it was ignored
//! at the start.

use std::io::{self, PipeWriter, Write};
use std::panic::resume_unwind;
use std::process;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tontine_command::stop::StopRequest;
use tontine_unix::Signal;
use tontine_unix_sim::{RunningThread, Stopper};

use tontine_command::{FAILED, signalled};

/// Number of polls after which a run that was requested to stop is abandoned. With the time between
/// two polls this is 2 s in all, and more if the machine also delays this thread.
const POLLS: u32 = 20;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A limit that stops runs after a time of the host's clock, or on a signal of
/// [`StopRequest::on_signals`].
#[derive(Debug)]
pub(super) struct Bound {
    /// Open while the runs last. Closing it reports their end to the thread.
    runs: PipeWriter,
    waiting: JoinHandle<Option<i32>>,
}

impl Bound {
    /// Starts the time limit. 0 seconds mean no limit.
    pub(super) fn begin(seconds: u64, stopper: &Stopper) -> io::Result<Self> {
        let stop = StopRequest::on_signals()?;
        let (ended, runs) = io::pipe()?;
        let stopper = stopper.clone();
        let waiting = thread::spawn(move || {
            let limit = Some(Duration::from_secs(seconds)).filter(|_| seconds > 0);
            let has_ended = await_either(&ended, Some(&stop), limit);
            let signal = stop.signal();
            // After this, the next signal acts as in a program without handlers.
            let stop = signal.is_none().then_some(stop);
            if let Some(why) = why(signal, seconds, has_ended) {
                stopper.stop(&why);
                await_end(&ended, &stopper, stop, signal, &why);
            }
            signal
        });
        Ok(Self { runs, waiting })
    }

    /// Ends the limit when the runs have ended. Returns the signal that stopped the runs, if any.
    /// After this, the first signal ends the command.
    pub(super) fn end(self) -> Option<i32> {
        drop(self.runs);
        self.waiting.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Returns the reason to stop the runs, in words, or `None` if they have ended.
fn why(signal: Option<i32>, seconds: u64, has_ended: bool) -> Option<String> {
    match signal.and_then(Signal::new) {
        Some(signal) => Some(format!("{signal} before it")),
        None if has_ended => None,
        None => Some(format!("none within {seconds} s (--limit)")),
    }
}

/// Waits for the end of the runs, a signal, or the time limit. Returns `true` if the runs have
/// ended.
fn await_either(
    ended: &io::PipeReader,
    stop: Option<&StopRequest>,
    limit: Option<Duration>,
) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut ready = vec![PollFd::new(ended, PollFlags::IN)];
    ready.extend(stop.map(|stop| PollFd::new(stop, PollFlags::IN)));
    // The kernel prefers other threads for signals. An interrupted wait is restarted.
    while poll(&mut ready, limit.as_ref()) == Err(Errno::INTR) {}
    !ready[0].revents().is_empty()
}

/// Waits for the end of a run that was requested to stop. If the run does not end, prints the
/// reason and ends the command. If no signal has arrived before, a signal during the wait counts as
/// the first.
fn await_end(
    ended: &io::PipeReader,
    stopper: &Stopper,
    mut stop: Option<StopRequest>,
    signal: Option<i32>,
    why: &str,
) {
    let mut seen = None;
    for _ in 0..POLLS {
        if await_either(ended, None, Some(POLL_INTERVAL)) {
            return;
        }
        stop = stop.filter(|stop| !stop.requested());
        seen = stopper.running_threads();
        if seen.is_none() {
            // The run has ended and its verdict is being computed, which has no time limit.
            return;
        }
    }
    let whole = POLLS * POLL_INTERVAL;
    let seen = culprits(&seen.unwrap_or_default());
    let _ = writeln!(
        io::stderr(),
        "tontine-unix: expected an end of the run, found {why}; {whole:?} after the request to \
         stop it still runs, because {seen}: its events cannot be printed"
    );
    process::exit(signal.map_or(FAILED, signalled).into());
}

/// Describes in words what prevents a run from stopping.
fn culprits(running: &[RunningThread]) -> String {
    if running.is_empty() {
        return "the system itself computes".into();
    }
    let threads: Vec<String> = running.iter().map(ToString::to_string).collect();
    let compute = if running.len() == 1 { "computes" } else { "compute" };
    format!("{} {compute} without a system call", threads.join(", "))
}
