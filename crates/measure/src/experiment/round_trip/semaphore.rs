//! Two unnamed POSIX semaphores in shared memory, and the bit that the seed passes under them.

#![allow(unsafe_code, reason = "POSIX semaphores")]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::harness::{self, End, Plan, Timed};
use super::peer::{Peer, checked};
use crate::os::shared::{Shareable, Shared};
use crate::trouble::{During, Result};

#[repr(C, align(128))]
struct Semaphore(UnsafeCell<libc::sem_t>);

#[repr(C)]
struct Pair {
    /// Posted by the ping; posted by the echo.
    semaphores: [Semaphore; 2],
    bit: AtomicU32,
}

// SAFETY: a semaphore is made for concurrent use; only the C library looks into it.
unsafe impl Sync for Pair {}
// SAFETY: zero bytes are valid for both fields; `run` initialises the semaphores before their use.
unsafe impl Shareable for Pair {}

/// Times it between two threads or two processes.
pub(super) fn run(plan: &Plan, threads: bool) -> Result<Timed> {
    let pair = Shared::<Pair>::posix()?;
    for semaphore in &pair.semaphores {
        // SAFETY: the memory is mapped, ours alone so far, and aligned.
        checked(unsafe { libc::sem_init(semaphore.0.get(), 1, 0) }).setting_up("sem_init")?;
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
        // SAFETY: initialised by `run`, mapped as long as `pair` is borrowed.
        checked(unsafe { libc::sem_post(self.pair.semaphores[self.out].0.get()) })
            .during("sem_post")?;
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        // SAFETY: as in `send`.
        while unsafe { libc::sem_wait(self.pair.semaphores[1 - self.out].0.get()) } != 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error).during("sem_wait");
            }
            self.peer.check()?;
        }
        std::hint::black_box(self.pair.bit.load(Ordering::Relaxed));
        Ok(())
    }
}
