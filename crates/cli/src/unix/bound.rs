//! What stops runs that come to no end: [`Bound`].
//!
//! A thread of its own waits for the first of three: the runs' end, the user's signal, the limit.
//! After the last two the run in progress is to stop, and what happened is printed as ever. A run
//! that cannot be stopped, because a thread computes in it without a system call, is given up after
//! [`LOOKS`] looks. After the first signal the thread restores the dispositions: a later one ends
//! the command, whatever it is doing, unless it was ignored at the start.

use std::io::{self, PipeWriter, Write};
use std::panic::resume_unwind;
use std::process;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tontine_bench::engine::stop::Stop;
use tontine_unix::Signal;
use tontine_unix_sim::{RunningThread, Stopper};

use crate::{FAILED, signalled};

/// Looks after which a run that was to stop is given up, and the time between two: 2 s, and more
/// where the machine does not let this thread run in time either.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Stops runs after some time of the host's clock, and after the signals of [`Stop::on_signals`].
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
        let waiting = thread::spawn(move || {
            let limit = Some(Duration::from_secs(seconds)).filter(|_| seconds > 0);
            let has_ended = await_either(&ended, Some(&stop), limit);
            let signal = stop.signal();
            // From now on the next signal does what it does to a program without handlers.
            let stop = signal.is_none().then_some(stop);
            if let Some(why) = why(signal, seconds, has_ended) {
                stopper.stop(&why);
                await_end(&ended, &stopper, stop, signal, &why);
            }
            signal
        });
        Ok(Self { runs, waiting })
    }

    /// The runs have ended; the signal that stopped them, if one did. From now on the first one
    /// ends the command.
    pub(super) fn end(self) -> Option<i32> {
        drop(self.runs);
        self.waiting.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// What there was in place of an end, if the runs are to stop.
fn why(signal: Option<i32>, seconds: u64, has_ended: bool) -> Option<String> {
    match signal.and_then(Signal::new) {
        Some(signal) => Some(format!("{signal} before it")),
        None if has_ended => None,
        None => Some(format!("none within {seconds} s (--limit)")),
    }
}

/// Waits for the runs' end, a wish to stop, or the end of the time; whether the runs have ended.
fn await_either(ended: &io::PipeReader, stop: Option<&Stop>, limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut ready = vec![PollFd::new(ended, PollFlags::IN)];
    ready.extend(stop.map(|stop| PollFd::new(stop, PollFlags::IN)));
    // Signals are for other threads where they can be; a wait cut short waits anew.
    while poll(&mut ready, limit.as_ref()) == Err(Errno::INTR) {}
    !ready[0].revents().is_empty()
}

/// Waits for the end of a run that was told to stop. If none comes, says why, and ends the command.
/// A signal during the wait is the first one, if there was none before.
fn await_end(
    ended: &io::PipeReader,
    stopper: &Stopper,
    mut stop: Option<Stop>,
    signal: Option<i32>,
    why: &str,
) {
    let mut seen = None;
    for _ in 0..LOOKS {
        if await_either(ended, None, Some(BETWEEN_LOOKS)) {
            return;
        }
        stop = stop.filter(|stop| !stop.requested());
        seen = stopper.running_threads();
        if seen.is_none() {
            // What happened is being judged, which takes as long as it takes.
            return;
        }
    }
    let whole = LOOKS * BETWEEN_LOOKS;
    let seen = culprits(&seen.unwrap_or_default());
    let _ = writeln!(
        io::stderr(),
        "tontine: expected an end of the run, found {why}; {whole:?} after the request to stop it \
         still runs, because {seen}: its events cannot be printed"
    );
    process::exit(signal.map_or(FAILED, signalled).into());
}

/// Returns, in words, what keeps a run from stopping.
fn culprits(running: &[RunningThread]) -> String {
    if running.is_empty() {
        return "the system itself computes".into();
    }
    let threads: Vec<String> = running.iter().map(ToString::to_string).collect();
    let compute = if running.len() == 1 { "computes" } else { "compute" };
    format!("{} {compute} without a system call", threads.join(", "))
}
