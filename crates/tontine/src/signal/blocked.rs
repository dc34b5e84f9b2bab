//! Signals that all threads block, so that one place can take them: [`Blocked`].
//!
//! Neighbours: [`super::census`] looks at the other threads; [`super::worker`],
//! [`super::channel`], [`super::mail`], [`super::descriptor`] and `stream` take for it.

#![allow(unsafe_code, reason = "a child's mask is changed between fork and exec")]

use std::cell::RefCell;
use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use super::disposition::Reaped;
use super::error::{Error, Result};
use super::kernel::Raw;
use super::worker::{Each, Worker};
use super::{Channel, Descriptor, Received, Set, Signal, Thread, census, channel, mail};
use crate::mailbox::Sender;

/// Most that [`Blocked::discard`] takes; more than any queue holds.
const MOST_DISCARDED: usize = 1 << 20;

thread_local! {
    /// What this thread's [`Blocked`]s hold, one entry each, and what it had blocked before each.
    static HELD: RefCell<Held> = const { RefCell::new(Held::new()) };
}

struct Held {
    sets: Vec<Set>,
    /// Of those in `sets`, what the thread itself had blocked before the first that names it.
    before: Set,
}

/// A set of signals that this thread blocks and all that start later, and that it has found every
/// other thread to block.
///
/// Each signal goes to one of those who take at the same time; take in one place. Signals that are
/// sent to one thread (`tgkill`, `pthread_kill`) are seen by that thread alone.
///
/// Dropped, it unblocks what it has blocked, in this thread, and puts back the disposition of
/// SIGCHLD, if that had to be changed (`docs/signal.md` says when). What is pending then does what
/// its disposition says, which may be to end the program: [`Blocked::discard`] takes it first. It
/// cannot leave its thread. What takes for it borrows it; where that must live as long as the
/// program, leak it: `Box::leak(Box::new(Blocked::new(…)?))`.
///
/// `exec` keeps the mask: see [`Blocked::unblock_in`]. A forked child has the mask too, and nobody
/// who takes.
///
/// Source: seed 003; `pthread_sigmask(3)`, `sigwait(3)`.
#[derive(Debug)]
pub struct Blocked {
    set: Set,
    reaped: Option<Reaped>,
    /// A mask is a thread's.
    _here: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks them. The place for it is the top of `main`, before a thread or a runtime starts.
    ///
    /// ```
    /// use tontine::signal::{Blocked, Error, Signal};
    ///
    /// std::thread::spawn(std::thread::park);
    /// // Too late: that one would be interrupted.
    /// let refused = Blocked::new([Signal::HUP, Signal::TERM]).expect_err("another thread runs");
    /// assert!(matches!(refused, Error::Unblocked { .. }), "{refused}");
    /// ```
    ///
    /// # Errors
    /// [`Error::CannotTake`] for SIGKILL and SIGSTOP, for what means one thread (SIGSEGV and its
    /// like), and for the C library's own; [`Error::Nothing`] for an empty set;
    /// [`Error::Unblocked`] where another thread runs with one of them unblocked, and
    /// [`Error::NoProc`] where that cannot be seen; [`Error::System`]. Nothing is blocked then.
    pub fn new(set: impl Into<Set>) -> Result<Self> {
        let set = set.into();
        if set.is_empty() {
            return Err(Error::Nothing);
        }
        for signal in set.iter() {
            if let Some(why) = signal.refusal() {
                return Err(Error::CannotTake { signal, why });
            }
        }
        let before = Raw::of(set).block()?;
        HELD.with_borrow_mut(|held| held.add(set, before));
        // From here on dropping it undoes what was done.
        let mut blocked = Self { set, reaped: None, _here: PhantomData };
        census::all_block(set)?;
        if set.contains(Signal::CHLD) {
            blocked.reaped = Some(Reaped::new()?);
        }
        Ok(blocked)
    }

    /// Which signals.
    pub fn set(&self) -> Set {
        self.set
    }

    /// Takes one, in this thread; none where the time is over first. No time: for ever.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        Raw::of(self.set).take(timeout)
    }

    /// Takes all that is pending and forgets it; how many that were.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn discard(&self) -> Result<usize> {
        let raw = Raw::of(self.set);
        let mut taken = 0;
        while taken < MOST_DISCARDED && raw.take(Some(Duration::ZERO))?.is_some() {
            taken += 1;
        }
        Ok(taken)
    }

    /// A descriptor that is readable while one of them is pending, for a loop that waits for
    /// descriptors.
    ///
    /// # Errors
    /// [`Error::System`], where the process has too many descriptors.
    pub fn descriptor(&self) -> Result<Descriptor<'_>> {
        Descriptor::new(self.set)
    }

    /// Starts a thread that calls `deliver` for each, one after another, until what this returns is
    /// dropped. What `deliver` starts (threads, programs) inherits the mask.
    ///
    /// ```no_run
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::HUP)?;
    /// let thread = blocked.thread(|one| println!("again, says pid {:?}", one.pid()))?;
    /// # Ok::<(), tontine::signal::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::System`], where the system refuses a thread.
    pub fn thread(&self, deliver: impl FnMut(Received) + Send + 'static) -> Result<Thread<'_>> {
        Worker::start(self.set, Each(deliver)).map(Thread::new)
    }

    /// Starts a thread that puts each into a queue of at most `bound` real-time signals and one of
    /// each standard signal; what does not fit stays with the kernel.
    ///
    /// # Errors
    /// As [`Blocked::thread`].
    ///
    /// # Panics
    /// Where `bound` is 0.
    pub fn channel(&self, bound: usize) -> Result<Channel<'_>> {
        channel::start(self.set, bound)
    }

    /// Starts a thread that sends each to another process, as [`Received::to_bytes`]; that one
    /// reads it by [`Received::from_bytes`]. Where the mailbox is full the thread waits, and the
    /// signals stay with the kernel.
    ///
    /// What cannot be sent is handed to `undelivered`, with the reason; the next one is tried
    /// again, for a sender may have found a successor by then.
    ///
    /// ```no_run
    /// use tontine::mailbox::Sender;
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::TERM)?;
    /// let sender = Sender::connect("/run/supervisor")?;
    /// let thread = blocked.mailbox(sender, |one, error| {
    ///     eprintln!("{} reached nobody: {error}", one.signal());
    ///     one.die()
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Blocked::thread`].
    pub fn mailbox(
        &self,
        sender: Sender,
        undelivered: impl FnMut(Received, crate::Error) + Send + 'static,
    ) -> Result<Thread<'_>> {
        mail::start(self.set, sender, undelivered).map(Thread::new)
    }

    /// An async stream of them, in the current tokio runtime.
    ///
    /// # Errors
    /// As [`Blocked::descriptor`], and where the runtime cannot watch the descriptor.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and in one without its I/O driver.
    #[cfg(feature = "tokio")]
    pub fn stream(&self) -> Result<super::Stream<'_>> {
        super::Stream::new(self.descriptor()?)
    }

    /// Lets a program that `command` starts begin with the mask of before, and with SIGCHLD as it
    /// was. Without it the program would have these signals blocked, and most never unblock any.
    pub fn unblock_in<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let ours = self.set - HELD.with_borrow(|held| held.before);
        let raw = Raw::of(ours);
        let disposition = self.reaped.as_ref().and_then(Reaped::before);
        let restore = move || {
            if let Some(disposition) = disposition {
                // It fails for no signal that the kernel has returned it for.
                let _ = disposition.install(Signal::CHLD);
            }
            raw.unblock().map_err(|error| std::io::Error::from_raw_os_error(error.errno()))
        };
        // SAFETY: between fork and exec it makes two system calls, and allocates and locks nothing:
        // an error of `unblock` is a number.
        unsafe { command.pre_exec(restore) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.reaped = None;
        // Where the thread's own data are gone already, so is the thread, soon.
        let ours = HELD.try_with(|held| held.borrow_mut().remove(self.set)).unwrap_or_default();
        // A set and a way that the kernel knows: it does not fail.
        let _ = Raw::of(ours).unblock();
    }
}

impl Held {
    const fn new() -> Self {
        Self { sets: Vec::new(), before: Set::new() }
    }

    fn add(&mut self, set: Set, before: Set) {
        let fresh = set - self.union();
        self.before = self.before | (fresh & before);
        self.sets.push(set);
    }

    /// What is to be unblocked now that one with this set has gone.
    fn remove(&mut self, set: Set) -> Set {
        if let Some(at) = self.sets.iter().rposition(|&one| one == set) {
            self.sets.swap_remove(at);
        }
        let free = set - self.union();
        let ours = free - self.before;
        self.before = self.before - free;
        ours
    }

    fn union(&self) -> Set {
        self.sets.iter().fold(Set::new(), |all, &one| all | one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_blocks_stays_blocked_whoever_goes_first() {
        let [int, term, hup] = [Signal::INT, Signal::TERM, Signal::HUP].map(Set::from);
        let mut held = Held::new();
        held.add(int | hup, hup);
        held.add(int | term, int | hup);
        assert_eq!(held.remove(int | hup), Set::new(), "the other has SIGINT, the thread SIGHUP");
        assert_eq!(held.remove(int | term), int | term);
        assert!(held.sets.is_empty() && held.before.is_empty());
    }
}
