//! Two slots and a futex word in shared memory that records whose turn it is: `futex`.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;
use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::os::shared::{Shareable, SharedMapping};

use crate::about::{AfterKill, Death, Listing, Mechanism, RowKind};
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Inlet, Outlet, Peers, Transfer, TransferError, TwoWay, check};
use crate::region::Common;
use crate::slot::{CAPACITY, MessageWords};

/// `futex`, and also one of its ends.
pub struct FutexEnd {
    board: Common<FutexShared>,
    /// Value of the word while it is this end's turn.
    mine: u32,
    bytes: usize,
}

pub const MECHANISM: Mechanism = Mechanism::new(
    "futex",
    Death::LeavesOne { row: "futex", survivor: AfterKill::Wedged },
    &[
        Listing::new(RowKind::RoundTrip, "a futex word in shared memory; two processes"),
        Listing::new(RowKind::Survival, "two slots and a futex word that says whose turn it is"),
        Listing::new(RowKind::WakeUp, "a futex word in shared memory"),
    ],
);

#[derive(Debug)]
#[repr(C)]
struct FutexShared {
    word: AtomicU32,
    slots: [MessageWords; 2],
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for FutexShared {}

impl PairDriver for FutexEnd {
    type Half = Self;
    type End<const BYTES: usize> = Self;

    fn pair(bytes: usize) -> Result<PairHalves<Self>> {
        let (one, two) = Common::two(SharedMapping::<FutexShared>::anonymous()?);
        let end = |board, mine| Self { board, mine, bytes };
        Ok(PairHalves::of((end(one, 0), end(two, 1))))
    }

    fn open<const BYTES: usize>(half: Self, _: Peers<'_>) -> Result<Self> {
        Ok(half)
    }
}

impl Outlet for FutexEnd {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: Peers<'_>) -> Transfer<()> {
        self.board.slots[self.mine as usize].write(message);
        // SYNC futex-turn: pairs with the load in `receive`; carries the slot.
        self.board.word.store(1 - self.mine, Ordering::Release);
        futex::wake(&self.board.word, futex::Flags::empty(), 1).during("futex wake")?;
        Ok(())
    }
}

impl Inlet for FutexEnd {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let (word, other) = (&self.board.word, 1 - self.mine);
        // SYNC futex-turn: pairs with the store in `send`.
        while word.load(Ordering::Acquire) != self.mine {
            match futex::wait(word, futex::Flags::empty(), other, None) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => check(peers)?,
                Err(error) => return Err(error).during("futex wait").map_err(TransferError::from),
            }
        }
        Ok(look(self.board.slots[other as usize].read(self.bytes, &mut [0; CAPACITY])))
    }
}

impl TwoWay for FutexEnd {
    #[inline(always)]
    fn forget(&mut self) -> Result<()> {
        self.board.word.store(1 - self.mine, Ordering::Relaxed);
        Ok(())
    }
}
