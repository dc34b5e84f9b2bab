//! Two slots and one futex word that says whose turn it is.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;
use tontine_host::os::shared::{Shareable, Shared};
use tontine_host::trouble::{During, Result};

use super::message::{Claim, Message};
use super::player::{End, Ended};
use super::slot::Slot;

#[derive(Debug)]
#[repr(C)]
struct Board {
    word: AtomicU32,
    slots: [Slot; 2],
}

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Board {}

/// Both ends.
pub(super) fn pair() -> Result<(Turn, Turn)> {
    let board = Rc::new(Shared::<Board>::anonymous()?);
    Ok((Turn { board: Rc::clone(&board), side: 0 }, Turn { board, side: 1 }))
}

pub(super) struct Turn {
    board: Rc<Shared<Board>>,
    /// The word's value while it is this end's turn.
    side: u32,
}

impl End for Turn {
    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        let (mine, other) = (self.side, 1 - self.side);
        self.board.slots[mine as usize].write(message);
        // SYNC survival-turn: pairs with the load in `receive`; carries the slot.
        self.board.word.store(other, Ordering::Release);
        futex::wake(&self.board.word, futex::Flags::empty(), 1).during("futex wake")?;
        Ok(())
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        let (mine, other) = (self.side, 1 - self.side);
        // SYNC survival-turn: pairs with the store in `send`.
        while self.board.word.load(Ordering::Acquire) != mine {
            match futex::wait(&self.board.word, futex::Flags::empty(), other, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error).during("futex wait").map_err(Ended::from),
            }
        }
        Ok(self.board.slots[other as usize].read())
    }
}
