//! Two unnamed POSIX semaphores in shared memory, and the bit that the seed passes under them.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::os::shared::{Shareable, Shared};
use tontine_host::peer::Peer;
use tontine_host::trouble::Result;
use tontine_mechanisms::semaphore::Semaphore;

use super::harness::{self, End, Plan, Timed};

#[repr(C)]
struct Pair {
    /// Posted by the ping; posted by the echo.
    semaphores: [Semaphore; 2],
    bit: AtomicU32,
}

// SAFETY: both fields are shareable; `run` makes the semaphores usable before their use.
unsafe impl Shareable for Pair {}

/// Times it between two threads or two processes.
pub(super) fn run(plan: &Plan, threads: bool) -> Result<Timed> {
    let pair = Shared::<Pair>::posix()?;
    for semaphore in &pair.semaphores {
        semaphore.start_at_zero()?;
    }
    let ping = |peer: Peer<'_>| harness::time(plan, &mut Poster { pair: &pair, out: 0, peer });
    let echo = |peer: Peer<'_>| harness::answer(plan, &mut Poster { pair: &pair, out: 1, peer });
    if threads {
        harness::between_threads(plan, ping, echo)
    } else {
        harness::between_processes(plan, ping, echo)
    }
}

struct Poster<'a> {
    pair: &'a Pair,
    /// The semaphore that this end posts.
    out: usize,
    peer: Peer<'a>,
}

impl End for Poster<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.pair.bit.store(1 - self.out as u32, Ordering::Relaxed);
        self.pair.semaphores[self.out].post()
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        while self.pair.semaphores[1 - self.out].wait_or_signal()? {
            self.peer.check()?;
        }
        std::hint::black_box(self.pair.bit.load(Ordering::Relaxed));
        Ok(())
    }
}
