//! One futex word in shared memory that says whose turn it is.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;
use tontine_host::os::shared::Shared;
use tontine_host::peer::Peer;
use tontine_host::trouble::{During, Result};

use super::harness::{self, End, Plan, Timed};

/// Times it between two processes.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    let word = Shared::<AtomicU32>::anonymous()?;
    harness::between_processes(
        plan,
        |peer| harness::time(plan, &mut Turn { word: &word, mine: 0, peer }),
        |peer| harness::answer(plan, &mut Turn { word: &word, mine: 1, peer }),
    )
}

struct Turn<'a> {
    word: &'a AtomicU32,
    /// The word's value while it is this end's turn.
    mine: u32,
    peer: Peer<'a>,
}

impl End for Turn<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        // SYNC futex-turn: pairs with the load in `wait`.
        self.word.store(1 - self.mine, Ordering::Release);
        futex::wake(self.word, futex::Flags::empty(), 1).during("futex wake")?;
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        // SYNC futex-turn: pairs with the store in `send`.
        while self.word.load(Ordering::Acquire) != self.mine {
            match futex::wait(self.word, futex::Flags::empty(), 1 - self.mine, None) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => self.peer.check()?,
                Err(error) => return Err(error).during("futex wait"),
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn forget(&mut self) -> Result<()> {
        self.word.store(1 - self.mine, Ordering::Relaxed);
        Ok(())
    }
}
