//! A slot under a spinlock, and the bit that says whose turn it is.
//!
//! The lock is as in `round-trip`: an end that waits takes it, looks, and releases it. Whoever is
//! killed with the lock in hand keeps it.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::os::shared::{Shareable, Shared};
use tontine_host::trouble::Result;

use super::message::{Claim, Message};
use super::player::{End, Ended};
use super::slot::Slot;

#[derive(Debug)]
#[repr(C, align(128))]
struct Locked {
    lock: AtomicU32,
    /// Whose turn to send it is.
    turn: AtomicU32,
    slot: Slot,
}

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Locked {}

/// Both ends; `TTAS` looks before it swaps, and pauses.
pub(super) fn pair<const TTAS: bool>() -> Result<(Holder<TTAS>, Holder<TTAS>)> {
    let state = Rc::new(Shared::<Locked>::anonymous()?);
    Ok((Holder { state: Rc::clone(&state), side: 0 }, Holder { state, side: 1 }))
}

pub(super) struct Holder<const TTAS: bool> {
    state: Rc<Shared<Locked>>,
    side: u32,
}

impl<const TTAS: bool> Holder<TTAS> {
    fn lock(&self) {
        let lock = &self.state.lock;
        // SYNC survival-lock: pairs with `unlock`.
        while lock.swap(1, Ordering::Acquire) != 0 {
            while TTAS && lock.load(Ordering::Relaxed) != 0 {
                std::hint::spin_loop();
            }
        }
    }

    fn unlock(&self) {
        // SYNC survival-lock: pairs with the swap in `lock`.
        self.state.lock.store(0, Ordering::Release);
    }
}

impl<const TTAS: bool> End for Holder<TTAS> {
    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        self.lock();
        self.state.slot.write(message);
        self.state.turn.store(1 - self.side, Ordering::Relaxed);
        self.unlock();
        Ok(())
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        loop {
            self.lock();
            let mine = self.state.turn.load(Ordering::Relaxed) == self.side;
            let claim = mine.then(|| self.state.slot.read());
            self.unlock();
            if let Some(claim) = claim {
                return Ok(claim);
            }
        }
    }
}
