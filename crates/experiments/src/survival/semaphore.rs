//! Two slots in shared memory, each with a POSIX semaphore that says that it is full.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::rc::Rc;

use tontine_host::os::shared::{Shareable, Shared};
use tontine_host::trouble::Result;
use tontine_mechanisms::semaphore::Semaphore;

use super::message::{Claim, Message};
use super::player::{End, Ended};
use super::slot::Slot;

#[repr(C)]
struct Board {
    /// Posted by the end of that number.
    semaphores: [Semaphore; 2],
    slots: [Slot; 2],
}

// SAFETY: both fields are shareable; `pair` makes the semaphores usable before their use.
unsafe impl Shareable for Board {}

/// Both ends.
pub(super) fn pair() -> Result<(Poster, Poster)> {
    let board = Rc::new(Shared::<Board>::anonymous()?);
    for semaphore in &board.semaphores {
        semaphore.start_at_zero()?;
    }
    Ok((Poster { board: Rc::clone(&board), side: 0 }, Poster { board, side: 1 }))
}

pub(super) struct Poster {
    board: Rc<Shared<Board>>,
    side: usize,
}

impl End for Poster {
    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        self.board.slots[self.side].write(message);
        Ok(self.board.semaphores[self.side].post()?)
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        let other = 1 - self.side;
        while self.board.semaphores[other].wait_or_signal()? {}
        Ok(self.board.slots[other].read())
    }
}
