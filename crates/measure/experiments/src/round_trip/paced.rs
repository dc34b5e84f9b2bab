//! Single one-way messages, with a pause before each: [`Paced`].
//!
//! The sender runs { spin for the pause; stamp; send; spin until the receipt arrives }, the
//! receiver { wait; stamp; write the receipt }. The receipt is a word in shared memory, so only the
//! message itself passes through the mechanism. The sender never sleeps, so the figure contains
//! only the receiver's wake-up. The two stamps come from the counters of different processors; the
//! middle of the band of their offset is subtracted.
//!
//! The loop is closed: the next pause begins when the last message has arrived. If a short pause
//! ends before the receiver is asleep, the receiver finds the message without being woken.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::end::{RoundTripEnd, Timed};
use crate::prelude::*;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of polls of the receipt between two reads of the clock.
const SPINS: u32 = 1 << 16;

/// A number of messages, each sent after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PauseRun {
    /// Time from the receipt of one message to the sending of the next.
    pub(crate) pause_us: u64,
    pub(crate) messages: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Paced<'a> {
    /// Number of warm-up messages, with the first step's pause.
    pub(super) warm_up: usize,
    pub(super) steps: &'a [PauseRun],
    pub(super) receipts: &'a Receipts,
    pub(super) clock: Clock,
    /// The receiver's counter minus the sender's, in ticks.
    pub(super) offset: i64,
    /// `true` if both ends run on one processor.
    pub(super) shared: bool,
}

#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Receipts {
    received: AtomicU64,
    stamp: AtomicU64,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for Receipts {}

impl Paced<'_> {
    /// Sends all messages. Returns the time of each in ns, except those of the warm-up.
    pub(super) fn send(&self, end: &mut impl RoundTripEnd) -> Result<Timed> {
        let warm_up = self.steps.iter().take(1);
        let warm_up = warm_up.map(|first| PauseRun { messages: self.warm_up, ..*first });
        let mut one_way = Vec::with_capacity(self.warm_up + self.messages());
        for step in warm_up.chain(self.steps.iter().copied()) {
            for _ in 0..step.messages {
                spin_for(&self.clock, step.pause_us);
                one_way.push(self.send_one(one_way.len() as u64 + 1, end)?);
            }
        }
        one_way.drain(..self.warm_up);
        Ok(Timed { one_way, batch: 1, single: Vec::new() })
    }

    #[inline(never)]
    fn send_one(&self, number: u64, end: &mut impl RoundTripEnd) -> Result<f64> {
        let sent = self.clock.start();
        end.send()?;
        await_receipt(|| {
            if self.shared {
                // The receiver cannot run until this thread yields.
                thread::yield_now();
            }
            // SYNC paced-receipt: pairs with the store in `receive`.
            self.receipts.received.load(Ordering::Acquire) == number
        })?;
        let arrived = self.receipts.stamp.load(Ordering::Relaxed);
        Ok(self.clock.ns_between(sent, arrived) - self.clock.ns(self.offset))
    }

    pub(super) fn receive(&self, end: &mut impl RoundTripEnd) -> Result<()> {
        for number in 1..=(self.warm_up + self.messages()) as u64 {
            end.wait()?;
            let arrived = self.clock.stop();
            end.forget()?;
            self.receipts.stamp.store(arrived, Ordering::Relaxed);
            // SYNC paced-receipt: pairs with the load in `send_one`; the stamp is stored before
            // this store.
            self.receipts.received.store(number, Ordering::Release);
        }
        Ok(())
    }

    fn messages(&self) -> usize {
        self.steps.iter().map(|step| step.messages).sum()
    }
}

/// Spins until `seen` returns `true`. If the receiver has ended in the meantime, the process that
/// started it reports the end.
#[inline(always)]
fn await_receipt(seen: impl Fn() -> bool) -> Result<()> {
    let mut began = None;
    loop {
        for _ in 0..SPINS {
            if seen() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if began.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            bail!("a message did not arrive within {TIMEOUT:?}");
        }
    }
}

/// Keeps the processor busy: a sleeping sender would itself need a wake-up.
fn spin_for(clock: &Clock, us: u64) {
    let from = clock.start();
    while clock.ns_between(from, clock.stop()) < us as f64 * 1e3 {
        std::hint::spin_loop();
    }
}
