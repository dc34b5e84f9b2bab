//! The sending process. [`BurstReceiver::acknowledged`] waits after each signal until the receiver
//! has reported it; [`BurstReceiver::bursts`] sends many signals without waiting.
//!
//! No decision here depends on a time alone. `kill` makes a waiting thread runnable before it
//! returns. If the thread is found asleep afterwards and has reported nothing, it sleeps although a
//! signal arrived. Two checks, [`BETWEEN_LOOKS`] apart, must agree.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine_bench::os::signal::send;

use super::receiver::{Announcer, BurstPlan, SeenSignals, receive};
use crate::prelude::*;

/// Time without a report after which the receiver's state is checked.
const QUIET: Duration = Duration::from_micros(100);
/// Time between the two checks that must agree.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);
/// Maximum number of additional signals to wake the receiver; after that the row fails.
const NUDGES: u32 = 100;
/// Number of reads of the empty pipe between two reads of the clock.
const READS: u32 = 16;
pub(super) const BURST: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) announced: u32,
    pub(super) reached: u32,
    /// `true` if the thread fell asleep although an unseen signal had arrived.
    pub(super) missed: bool,
}

pub(super) struct BurstReceiver {
    child: ReportingChild,
    thread: ProcStatFile,
    counts: SharedMapping<SeenSignals>,
    reports: OwnedFd,
    signals: [libc::c_int; 2],
    /// `true` if receiver and sender share a processor, in which case the sender must not spin.
    crowded: bool,
    _pinned: Pinned,
}

impl BurstReceiver {
    pub(super) fn new(plan: BurstPlan) -> Result<Self> {
        let BurstPlan { placement, signals, .. } = plan;
        let _pinned = Pinned::to(placement.here)?;
        let counts = SharedMapping::<SeenSignals>::anonymous()?;
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (reports, write) = rustix::pipe::pipe_with(flags).setting_up("pipe2")?;
        let child = ReportingChild::fork(|| {
            receive(Announcer { plan, counts: &counts, reports: write.as_fd() })
        })?;
        let mut thread = 0;
        child.until(Pass::Yield, "the receiver's second thread to start", || {
            // SYNC lost-signals-ready: pairs with the thread's store.
            thread = counts.thread.load(Ordering::Acquire);
            thread != 0
        })?;
        let thread = ProcStatFile::of(child.child.raw_pid(), thread)?;
        let crowded = placement.here == placement.there;
        Ok(Self { child, thread, counts, reports, signals, crowded, _pinned })
    }

    /// Sends `signals` signals, each as soon as the previous one was announced. Returns, for each
    /// signal, `true` if the receiver kept sleeping although the signal had arrived, so that an
    /// additional signal had to wake it.
    pub(super) fn acknowledged(&self, signals: usize) -> Result<Vec<bool>> {
        let mut missed = Vec::with_capacity(signals);
        for signal in self.signals.into_iter().cycle().take(signals) {
            self.send(signal)?;
            let mut reported = self.reported()?;
            missed.push(reported.is_none());
            for _ in 0..NUDGES {
                if reported.is_some() {
                    break;
                }
                self.send(signal)?;
                reported = self.reported()?;
            }
            ensure!(
                reported == Some(signal),
                "the receiver reported {reported:?} for signal {signal}; if none, it kept \
                     sleeping after {NUDGES} more"
            );
        }
        Ok(missed)
    }

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
            let mut reported = 0;
            while self.byte()?.is_some() {
                reported += 1;
            }
            ensure!(
                reported == announced,
                "the loop ran {announced} times and reported {reported} times"
            );
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
        send(self.child.child.pid(), signal).during("kill")
    }

    /// Waits for one report. Returns `None` if the receiver sleeps without having reported.
    fn reported(&self) -> Result<Option<libc::c_int>> {
        let since = Instant::now();
        let mut reported = Ok(None);
        self.child.until(Pass::Spin, "the receiver to reply or to sleep", || {
            if self.crowded {
                self.doze(QUIET);
            }
            for _ in 0..READS {
                reported = self.byte();
                if !matches!(reported, Ok(None)) {
                    return true;
                }
            }
            let sleeps = since.elapsed() > QUIET && self.sleeps();
            if sleeps {
                // The receiver may have written between our last read and the moment when it fell
                // asleep.
                reported = self.byte();
            }
            sleeps
        })?;
        reported
    }

    fn rest(&self) -> Result<()> {
        let pass = if self.crowded { Pass::Sleep(BETWEEN_LOOKS) } else { Pass::Spin };
        self.child.until(pass, "the receiver to sleep", || self.sleeps())
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
        match rustix::io::read(&self.reports, &mut signal) {
            Ok(length) => Ok((length == 1).then(|| signal[0].into())),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error).during("read of the receiver's pipe"),
        }
    }

    /// Sleeps until the pipe contains a byte, for at most `at_most`.
    fn doze(&self, at_most: Duration) {
        let time = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&self.reports, PollFlags::IN)], Some(&time));
    }
}
