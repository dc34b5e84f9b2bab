//! A slot under a process-shared pthread mutex, and a condition variable. The mutex is not robust.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::os::shared::{Shareable, Shared};
use tontine_host::trouble::Result;
use tontine_mechanisms::monitor::Monitor;

use super::message::{Claim, Message};
use super::player::{End, Ended};
use super::slot::Slot;

#[derive(Debug)]
#[repr(C)]
struct Guarded {
    /// Whose turn to send it is.
    turn: AtomicU32,
    slot: Slot,
}

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Guarded {}

/// Both ends.
pub(super) fn pair() -> Result<(Turn, Turn)> {
    let monitor = Rc::new(Shared::<Monitor<Guarded>>::anonymous()?);
    monitor.initialise()?;
    Ok((Turn { monitor: Rc::clone(&monitor), side: 0 }, Turn { monitor, side: 1 }))
}

pub(super) struct Turn {
    monitor: Rc<Shared<Monitor<Guarded>>>,
    side: u32,
}

impl End for Turn {
    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        self.monitor.lock()?;
        self.monitor.guarded.slot.write(message);
        self.monitor.guarded.turn.store(1 - self.side, Ordering::Relaxed);
        self.monitor.signal()?;
        Ok(self.monitor.unlock()?)
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        self.monitor.lock()?;
        while self.monitor.guarded.turn.load(Ordering::Relaxed) != self.side {
            self.monitor.wait()?;
        }
        let claim = self.monitor.guarded.slot.read();
        self.monitor.unlock()?;
        Ok(claim)
    }
}
