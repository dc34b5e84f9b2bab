//! One of the two processes: [`End`] is its end of the mechanism, [`play`] what it does, [`Diary`]
//! what it writes down for the referee, who reads it after its death.
//!
//! Message 1 goes from the first player to the second, message 2 back, and so on. A number is
//! written into the diary right after the call that sent or received it has returned. Died in
//! between, a message counts as not sent, or as not received: a receiver that never got to write
//! it down never got to act on it either.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::any::Any;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tontine_host::clock::Clock;
use tontine_host::os::pin;
use tontine_host::os::shared::Shareable;
use tontine_host::peer::LastWords;
use tontine_host::trouble::Trouble;

use super::message::{Claim, Message, message};

/// Why a call of an end brought no message through.
#[derive(Debug)]
pub(super) enum Ended {
    /// The mechanism says that the other end is gone.
    Gone,
    /// Something that a death does not explain.
    Broken(Trouble),
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Self::Broken(trouble)
    }
}

/// One end of a mechanism. Nothing in it asks for the peer but what the mechanism itself does.
pub(super) trait End {
    /// Makes ready what has to be made in the process that uses it. Returns when messages can be
    /// sent.
    ///
    /// # Errors
    /// Skipped, where the machine lacks it.
    fn open(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// What has to stay, in the process that made both ends, until both have died: a folder, say.
    fn belongings(&self) -> Option<Rc<dyn Any>> {
        None
    }

    /// Sends a message; mechanisms that carry less send less.
    ///
    /// # Errors
    /// [`Ended`].
    fn send(&mut self, number: u64, message: &Message) -> Result<(), Ended>;

    /// Waits for a message.
    ///
    /// # Errors
    /// [`Ended`].
    fn receive(&mut self) -> Result<Claim, Ended>;

    /// Takes back what was sent and will not be read, once the other end is gone. Whether anything
    /// came back.
    fn take_back(&mut self) -> bool {
        false
    }
}

/// What a player has done; only it writes.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Diary {
    /// Number of the last message whose `send` returned.
    pub(super) sent: AtomicU64,
    /// Number of the last message that was received.
    pub(super) received: AtomicU64,
    /// When it noticed that the other one is gone; 0 before.
    pub(super) noticed: AtomicU64,
    /// 1 after a torn message.
    pub(super) torn: AtomicU32,
    /// 1 where the mechanism gave its last message back.
    pub(super) taken_back: AtomicU32,
    pub(super) words: LastWords,
}

// SAFETY: atomics and last words, which are atomics; zero is valid.
unsafe impl Shareable for Diary {}

/// Both diaries.
pub(super) type Diaries = [Diary; 2];

/// Plays one side until the other one is gone. The exit status: 0 noticed, 1 broken.
pub(super) fn play(
    end: &mut impl End,
    side: usize,
    diary: &Diary,
    processor: usize,
    clock: Clock,
) -> i32 {
    let ended = match pin::pin_to(processor).and_then(|()| end.open()) {
        Ok(()) => pass_messages(end, side, diary),
        Err(trouble) => Ended::Broken(trouble),
    };
    match ended {
        Ended::Gone => {
            let noticed = clock.stop();
            diary.taken_back.store(u32::from(end.take_back()), Ordering::Relaxed);
            // SYNC survival-noticed: pairs with the referee's load; the diary comes before.
            diary.noticed.store(noticed, Ordering::Release);
            0
        }
        Ended::Broken(trouble) => {
            diary.words.say(&trouble);
            1
        }
    }
}

fn pass_messages(end: &mut impl End, side: usize, diary: &Diary) -> Ended {
    let mut number = 0;
    loop {
        number += 1;
        let passed = if number % 2 == (1 - side as u64) {
            end.send(number, &message(number)).map(|()| diary.sent.store(number, Ordering::Relaxed))
        } else {
            end.receive().and_then(|claim| take(claim, number, diary))
        };
        if let Err(ended) = passed {
            return ended;
        }
    }
}

/// Enters a message; a wrong one that is whole breaks the game.
fn take(claim: Claim, expected: u64, diary: &Diary) -> Result<(), Ended> {
    match claim {
        Claim::Whole(number) if number != expected => Err(Ended::Broken(Trouble::fail(format!(
            "expected message {expected}, received {number}"
        )))),
        Claim::Torn => {
            diary.torn.store(1, Ordering::Relaxed);
            Ok(())
        }
        Claim::Whole(_) | Claim::Bare => {
            diary.received.store(expected, Ordering::Relaxed);
            Ok(())
        }
    }
}
