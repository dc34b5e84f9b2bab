//! The sending process. [`BurstReceiver::acknowledged`] waits after each signal until the receiver
//! has reported it; [`BurstReceiver::bursts`] sends many signals without waiting.
//!
//! No decision here depends on a time alone. `kill` makes a waiting thread runnable before it
//! returns. If the thread is found asleep afterwards and has reported nothing, it sleeps although a
//! signal arrived. Two checks, [`BETWEEN_LOOKS`] apart, must agree.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tontine_bench::machine::topology::Placement;
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin::Pinned;
use tontine_host::os::shared::SharedMapping;
use tontine_host::os::signal::send;
use tontine_host::os::state::ProcStatFile;
use tontine_host::peer::PeerHandle;

use super::receiver::{Orders, SeenSignals, WaitMethod, receive};
use crate::signal_delivery::patience::{Pass, wait_until};

/// Time without a report after which the receiver's state is checked.
const QUIET: Duration = Duration::from_micros(100);
/// Time between the two checks that must agree.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);
/// Timeout for every wait.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of additional signals to wake the receiver; after that the row fails.
const NUDGES: u32 = 100;
/// Number of reads of the empty pipe between two reads of the clock.
const READS: u32 = 16;
/// Number of signals in a burst.
pub(super) const BURST: u32 = 20;

/// Parameters of an invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct BurstPlan {
    pub(super) way: WaitMethod,
    pub(super) placement: Placement,
    pub(super) window_ns: f64,
    pub(super) clock: Clock,
    /// The signals to send in turn, which may be equal.
    pub(super) signals: [libc::c_int; 2],
}

/// Result of one burst of [`BURST`] signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Burst {
    /// Iterations of the receiver's loop.
    pub(super) announced: u32,
    /// Signals that reached the thread.
    pub(super) reached: u32,
    /// `true` if the thread fell asleep although an unseen signal had arrived.
    pub(super) missed: bool,
}

/// A waiting receiver, and the sender's state.
pub(super) struct BurstReceiver {
    child: Child,
    thread: ProcStatFile,
    counts: SharedMapping<SeenSignals>,
    hears: OwnedFd,
    signals: [libc::c_int; 2],
    /// `true` if receiver and sender share a processor, in which case the sender must not spin.
    crowded: bool,
    _pinned: Pinned,
}

impl BurstReceiver {
    /// Starts a receiver. Forks: call it in a single-threaded process.
    ///
    /// # Errors
    /// Returns `Skipped` if the system refuses a requirement.
    pub(super) fn new(plan: &BurstPlan) -> Result<Self> {
        let BurstPlan { way, placement, window_ns, clock, signals } = *plan;
        let _pinned = Pinned::to(placement.here)?;
        let counts = SharedMapping::<SeenSignals>::anonymous()?;
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (hears, says) = rustix::pipe::pipe_with(flags).setting_up("pipe2")?;
        let mut child = Child::fork(|| {
            let processor = placement.there;
            let (counts, says) = (&*counts, says.as_fd());
            receive(Orders { way, signals, processor, window_ns, clock, counts, says })
        })?;
        let mut thread = 0;
        wait_until(&mut child, Pass::Yield, "the receiver's second thread to start", || {
            // SYNC lost-signals-ready: pairs with the thread's store.
            thread = counts.thread.load(Ordering::Acquire);
            thread != 0
        })?;
        let pid = child.pid().as_raw_nonzero().get().cast_unsigned();
        let thread = ProcStatFile::of(pid, thread)?;
        let crowded = placement.here == placement.there;
        Ok(Self { child, thread, counts, hears, signals, crowded, _pinned })
    }

    /// Sends `signals` signals, each as soon as the previous one was announced. Returns, for each
    /// signal, `true` if the receiver kept sleeping although the signal had arrived, so that an
    /// additional signal had to wake it.
    ///
    /// # Errors
    /// Returns `Failed` if the receiver ends, reports another signal, or neither sleeps nor reports
    /// for five seconds.
    pub(super) fn acknowledged(&self, signals: usize) -> Result<Vec<bool>> {
        let mut missed = Vec::with_capacity(signals);
        for signal in self.signals.into_iter().cycle().take(signals) {
            self.send(signal)?;
            let mut heard = self.hear()?;
            missed.push(heard.is_none());
            let mut nudges = 0;
            while heard.is_none() && nudges < NUDGES {
                self.send(signal)?;
                heard = self.hear()?;
                nudges += 1;
            }
            if heard.is_some_and(|heard| heard != signal) {
                return Err(MeasureError::fail(format!(
                    "the receiver reported signal {heard:?} for signal {signal}"
                )));
            }
            if heard.is_none() {
                return Err(MeasureError::fail(format!(
                    "the receiver kept sleeping after {NUDGES} signals"
                )));
            }
        }
        Ok(missed)
    }

    /// Sends `bursts` bursts, each of them once the receiver sleeps again.
    ///
    /// # Errors
    /// Returns the errors of [`BurstReceiver::acknowledged`].
    pub(super) fn bursts(&self, bursts: usize) -> Result<Vec<Burst>> {
        self.rest()?;
        let mut before = self.read_counts();
        let mut seen = Vec::with_capacity(bursts);
        for _ in 0..bursts {
            for signal in self.signals.into_iter().cycle().take(BURST as usize) {
                self.send(signal)?;
            }
            self.rest()?;
            let after = self.read_counts();
            let [announced, reached] = [0, 1].map(|at| after[at].wrapping_sub(before[at]));
            let looked = self.counts.looked.load(Ordering::Relaxed);
            seen.push(Burst { announced, reached, missed: looked != after[1] });
            before = after;
            let heard = self.drain()?;
            if heard != announced {
                return Err(MeasureError::fail(format!(
                    "the loop ran {announced} times and reported {heard} times"
                )));
            }
        }
        Ok(seen)
    }

    fn read_counts(&self) -> [u32; 2] {
        // Relaxed is enough: the counts are used only after the thread was found asleep, and the
        // kernel's locks order the thread's stores before that observation.
        [&self.counts.announced, &self.counts.reached].map(|count| count.load(Ordering::Relaxed))
    }

    /// Sends to the process, as a user would: the kernel finds the thread that does not block the
    /// signal.
    fn send(&self, signal: libc::c_int) -> Result<()> {
        send(self.child.pid(), signal).during("kill")
    }

    /// Waits for one report. Returns `None` if the receiver sleeps without having reported.
    fn hear(&self) -> Result<Option<libc::c_int>> {
        let since = Instant::now();
        loop {
            if self.crowded {
                self.doze(QUIET)?;
            }
            for _ in 0..READS {
                if let Some(signal) = self.byte()? {
                    return Ok(Some(signal));
                }
            }
            if since.elapsed() > QUIET && self.sleeps() {
                // The receiver may have written between our last read and the moment when it fell
                // asleep.
                return self.byte();
            }
            self.still_there(since)?;
        }
    }

    /// Waits until the receiver sleeps.
    fn rest(&self) -> Result<()> {
        let since = Instant::now();
        while !self.sleeps() {
            if self.crowded {
                std::thread::sleep(BETWEEN_LOOKS);
            }
            self.still_there(since)?;
        }
        Ok(())
    }

    /// Returns `true` if two checks find the receiver asleep, and its counts unchanged.
    fn sleeps(&self) -> bool {
        let look = || (self.thread.asleep(), self.read_counts());
        let first = look();
        first.0 && {
            std::thread::sleep(BETWEEN_LOOKS);
            look() == first
        }
    }

    /// Reads a signal's number from the pipe. Returns `None` if the pipe is empty.
    fn byte(&self) -> Result<Option<libc::c_int>> {
        let mut signal = [0_u8];
        match rustix::io::read(&self.hears, &mut signal) {
            Ok(length) => Ok((length == 1).then(|| signal[0].into())),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error).during("read of the receiver's pipe"),
        }
    }

    /// Reads all bytes and returns their number.
    fn drain(&self) -> Result<u32> {
        let mut heard = 0;
        while self.byte()?.is_some() {
            heard += 1;
        }
        Ok(heard)
    }

    /// Sleeps until the pipe contains a byte, for at most `at_most`.
    fn doze(&self, at_most: Duration) -> Result<()> {
        let mut one = [PollFd::new(&self.hears, PollFlags::IN)];
        let time =
            rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(at_most.subsec_nanos()) };
        match poll(&mut one, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).during("poll"),
        }
    }

    fn still_there(&self, since: Instant) -> Result<()> {
        PeerHandle::Child(self.child.pid()).check()?;
        if since.elapsed() > PATIENCE {
            return Err(MeasureError::fail(format!(
                "expected the receiver to reply or to sleep within {PATIENCE:?}, found neither: \
                 is the machine overloaded, or does a tracer hold the receiver?"
            )));
        }
        Ok(())
    }
}
