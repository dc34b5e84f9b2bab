//! The process of one end: [`PairEnd::run`] passes messages through the mechanism. [`EndProgress`]
//! records its progress for the parent, which reads the record after the process's death. The
//! process does not monitor its peer: only the mechanism can notify it.
//!
//! Message 1 goes from the first end to the second, message 2 back, and so on. An end records the
//! number of a message right after the call that sent or received the message has returned. If the
//! process dies before that, the message counts as not sent or as not received. This is correct for
//! a receiver too, because it did not act on the message before it died.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tontine_mechanisms::about::Carries;
use tontine_mechanisms::end::{TransferError, TwoWay};

use super::message::{ReceivedContents, claim, message};
use crate::prelude::*;

/// The progress of an end, written only by that end.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct EndProgress {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// Time when the end noticed the death of the other end; 0 until then.
    pub(super) noticed: AtomicU64,
    pub(super) torn: AtomicU32,
    /// 1 if the mechanism returned the end's last message.
    pub(super) taken_back: AtomicU32,
    pub(super) words: ChildError,
}

// SAFETY: the fields are atomics and child errors, which are atomics; zero is a valid value.
unsafe impl Shareable for EndProgress {}

pub(super) type BothProgress = [EndProgress; 2];

/// One of the two processes: its side, its processor, and what its mechanism carries.
#[derive(Debug, Clone, Copy)]
pub(super) struct PairEnd {
    pub(super) side: usize,
    pub(super) processor: usize,
    pub(super) carries: Carries,
    pub(super) clock: Clock,
}

impl PairEnd {
    /// Opens an end and passes messages until the other end is dead. Returns the exit status: 0
    /// if the end noticed the death, 1 if an error occurred.
    pub(super) fn run<E: TwoWay>(
        self,
        open: impl FnOnce() -> Result<E>,
        progress: &EndProgress,
    ) -> i32 {
        let opened = pin::pin_to(self.processor).and_then(|()| open());
        let ended = opened.map(|mut open| (self.pass_messages(&mut open, progress), open));
        let error = match ended {
            Ok((TransferError::Gone, mut open)) => {
                let noticed = self.clock.stop();
                let taken_back = !open.take_back().is_empty();
                progress.taken_back.store(u32::from(taken_back), Ordering::Relaxed);
                // SYNC survival-noticed: pairs with `Survivor::outcome`; the record is stored.
                progress.noticed.store(noticed, Ordering::Release);
                return 0;
            }
            Ok((TransferError::Broken(error), open)) => {
                // Not closed, because a library may wait for a dead peer.
                std::mem::forget(open);
                error
            }
            Err(error) => error,
        };
        progress.words.say(&error);
        1
    }

    fn pass_messages(self, end: &mut impl TwoWay, progress: &EndProgress) -> TransferError {
        let mut number = 0;
        loop {
            number += 1;
            let passed = if number % 2 == (1 - self.side as u64) {
                let sent = end.send(&message(number), &[]);
                sent.map(|()| progress.sent.store(number, Ordering::Relaxed))
            } else {
                let received = end.receive(&[], |bytes| claim(bytes, self.carries));
                received.and_then(|claim| take(claim, number, progress))
            };
            if let Err(ended) = passed {
                return ended;
            }
        }
    }
}

/// Records a message. Fails if a whole message has the wrong number.
fn take(
    claim: ReceivedContents,
    expected: u64,
    progress: &EndProgress,
) -> Result<(), TransferError> {
    match claim {
        ReceivedContents::Whole(number) if number != expected => Err(TransferError::Broken(
            MeasureError::fail(format!("expected message {expected}, received {number}")),
        )),
        ReceivedContents::Torn => {
            progress.torn.store(1, Ordering::Relaxed);
            Ok(())
        }
        ReceivedContents::Whole(_) | ReceivedContents::Bare => {
            progress.received.store(expected, Ordering::Relaxed);
            Ok(())
        }
    }
}
