//! Signals that end their receiver: [`ReceiverSetup`], a child that stamps until it dies.
//!
//! The protocol is that of source 000. The parent forks a child, which writes its counter into
//! shared memory until it dies. The parent waits for the first stamp, sends the signal, stamps,
//! reaps the child, and reads the child's last stamp. One child serves one delivery.

#![allow(unsafe_code, reason = "resets a signal's disposition")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::sender::{PreparedCall, SendCall};
use super::stamps::Stamps;
use super::tally::{DeliveryStamps, WatchedDelivery};
use crate::prelude::*;

/// Number of stamps after which a receiver gives up if no signal has ended it; they take some
/// seconds.
const STAMPS: u64 = 1 << 29;
const NOT_PINNED: i32 = 3;
/// Status of a receiver that no signal ended.
const SURVIVED: i32 = 4;
/// Number of polls without a change after which the parent checks whether the receiver has ended.
const QUIET_LOOKS: u32 = 4096;
const WATCH: Duration = Duration::from_secs(5);

/// Parameters of the receivers: their clock, the signal that ends them, and their processor.
#[derive(Debug)]
pub(crate) struct ReceiverSetup {
    stamps: Stamps,
    signal: Signal,
    processor: Option<usize>,
    line: SharedMapping<AtomicU64>,
}

impl ReceiverSetup {
    /// Creates parameters for receivers that `signal` ends. They are pinned to `processor`, if
    /// given.
    pub(crate) fn new(stamps: Stamps, signal: Signal, processor: Option<usize>) -> Result<Self> {
        let line = SharedMapping::posix()?;
        Ok(Self { stamps, signal, processor, line })
    }

    /// Makes one delivery as source 000 does.
    #[inline]
    pub(crate) fn deliver(&self, call: SendCall) -> Result<DeliveryStamps> {
        let mut child = self.started()?;
        let sender = PreparedCall::to(&child, call)?;
        let before = self.stamps.bare();
        let sent = sender.send(self.signal);
        let returned = self.stamps.bare();
        sent.during(call.name())?;
        self.reap(&mut child)?;
        let last = self.line.load(Ordering::Relaxed);
        Ok(DeliveryStamps { before, returned, last })
    }

    /// Makes one delivery by `kill` and determines, with the sender's counter alone, when the stamp
    /// stops changing.
    pub(super) fn watch(&self) -> Result<WatchedDelivery> {
        let clock = self.stamps.clock();
        let mut child = self.started()?;
        let sender = PreparedCall::to(&child, SendCall::Kill)?;
        let before = clock.start();
        let sent = sender.send(self.signal);
        let returned = clock.stop();
        let (last_change, late) = self.last_change(&child)?;
        sent.during(SendCall::Kill.name())?;
        self.reap(&mut child)?;
        Ok(WatchedDelivery { before, returned, last_change, late })
    }

    /// Returns the time of the last change of the stamp that was observed between now and the
    /// receiver's end, and `true` if only the final check found that change.
    fn last_change(&self, child: &Child) -> Result<(Option<u64>, bool)> {
        let clock = self.stamps.clock();
        let mut seen = self.line.load(Ordering::Relaxed);
        let (mut changed, mut quiet, mut since) = (None, 0, None);
        loop {
            let now = self.line.load(Ordering::Relaxed);
            if now != seen {
                changed = Some(clock.stop());
                (seen, quiet) = (now, 0);
                continue;
            }
            quiet += 1;
            if quiet < QUIET_LOOKS {
                continue;
            }
            quiet = 0;
            if PeerHandle::Child(child.pid()).check().is_err() {
                let late = self.line.load(Ordering::Relaxed) != seen;
                return Ok((if late { Some(clock.stop()) } else { changed }, late));
            }
            if since.get_or_insert_with(Instant::now).elapsed() > WATCH {
                bail!(
                    "expected the receiver to end within {WATCH:?} of signal {}, but it still \
                     lives",
                    self.signal.as_raw()
                );
            }
        }
    }

    fn started(&self) -> Result<Child> {
        self.line.store(0, Ordering::Relaxed);
        let child = Child::fork(|| self.stamp_until_dead())?;
        let line = &self.line;
        // A pinned child begins on our processor, the only one in its inherited mask. If this
        // process spun, the child could not run before the next tick, milliseconds later. Unpinned,
        // this process spins as the source's program did.
        let pass = match self.processor {
            Some(_) => Pass::Yield,
            None => Pass::Spin,
        };
        wait_until(&child, pass, "the receiver's first stamp", || {
            line.load(Ordering::Relaxed) != 0
        })
        .map_err(|error| match error {
            MeasureError::Failed(why) => MeasureError::fail(format!(
                "{why} (status {NOT_PINNED}: it could not pin itself to processor {:?})",
                self.processor
            )),
            skipped => skipped,
        })?;
        Ok(child)
    }

    /// Runs the child. Allocates no memory.
    fn stamp_until_dead(&self) -> i32 {
        default_and_unblocked(self.signal);
        if self.processor.is_some_and(|processor| pin::pin_to(processor).is_err()) {
            return NOT_PINNED;
        }
        let line: &AtomicU64 = &self.line;
        for _ in 0..STAMPS {
            line.store(self.stamps.bare(), Ordering::Relaxed);
        }
        SURVIVED
    }

    fn reap(&self, child: &mut Child) -> Result<()> {
        let status = child.wait()?;
        if status.terminating_signal() == Some(self.signal.as_raw()) {
            Ok(())
        } else {
            Err(MeasureError::fail(format!(
                "expected the receiver to die of signal {}, found {status:?} (status {SURVIVED}: \
                 the signal never ended it)",
                self.signal.as_raw(),
            )))
        }
    }
}

/// Gives `signal` its default action and unblocks it, because this process may have inherited a
/// signal that is ignored or blocked.
pub(super) fn default_and_unblocked(signal: Signal) {
    // SAFETY: SIG_DFL installs none of our code. For SIGKILL the call fails, as intended, because
    // its action cannot be changed.
    unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
    Only::of(&[signal.as_raw()]).unblock();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(signal: Signal, processor: Option<usize>) -> ReceiverSetup {
        ReceiverSetup::new(Stamps::new(Clock::calibrated()), signal, processor).expect("receiver")
    }

    #[test]
    fn ignored_and_blocked_signal_still_ends_the_receiver() {
        in_a_process_of_its_own(|| {
            // SAFETY: SIG_IGN installs none of our code.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
            Only::of(&[libc::SIGINT]).block();
            receiver(Signal::INT, None).deliver(SendCall::Kill).map(drop)
        });
    }

    #[test]
    fn receiver_death_before_first_stamp_is_reported() {
        let nowhere = rustix::thread::CpuSet::MAX_CPU - 1;
        let error = receiver(Signal::INT, Some(nowhere))
            .deliver(SendCall::Kill)
            .expect_err("no such processor");
        assert!(error.why().contains("exited with status 3"), "{error}");
    }

    #[test]
    fn receiver_surviving_its_signal_is_reported() {
        let mut child = Child::fork(|| SURVIVED).expect("fork");
        let error = receiver(Signal::INT, None).reap(&mut child).expect_err("it exited");
        assert!(error.why().contains("status 4"), "{error}");
    }

    #[test]
    fn watch_distinguishes_live_and_ended_receiver() {
        // On a busy machine the receiver may have ended before the watch begins.
        let is_seen = [100, 1_000, 10_000].into_iter().any(watch_sees_receiver_that_lives_for);
        assert!(is_seen, "no change of a living receiver was seen");
    }

    /// Returns `true` if the watch sees a receiver that stamps for some milliseconds and ends.
    fn watch_sees_receiver_that_lives_for(milliseconds: u64) -> bool {
        let receiver = receiver(Signal::INT, None);
        let before = receiver.stamps.clock().start();
        let mut living = Child::fork(|| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(milliseconds) {
                receiver.line.fetch_add(1, Ordering::Relaxed);
            }
            0
        })
        .expect("fork");
        let line = &receiver.line;
        wait_until(&living, Pass::Yield, "a stamp", || line.load(Ordering::Relaxed) != 0)
            .expect("a first stamp");
        let (changed, _) = receiver.last_change(&living).expect("it ends by itself");
        assert!(changed.is_none_or(|changed| changed > before), "{changed:?}");

        // The child has ended but is not reaped: the state in which the watch finds it after a
        // signal that arrived early.
        assert_eq!(receiver.last_change(&living).expect("it has ended"), (None, false));
        assert_eq!(living.wait().expect("wait").exit_status(), Some(0));
        changed.is_some()
    }
}
