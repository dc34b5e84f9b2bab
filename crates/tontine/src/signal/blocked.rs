//! Signals that every thread blocks, so that one place can take them: [`Blocked`].
//!
//! Neighbours: [`super::thread_masks`] reads the masks of the other threads; [`super::thread`],
//! [`super::channel`], [`super::mail`], [`super::fd`] and `stream` take the signals.

#![allow(unsafe_code, reason = "a child's mask is changed between fork and exec")]

use std::cell::RefCell;
use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use super::disposition::SigchldGuard;
use super::error::SignalError;
use super::kernel::RawSet;
use super::thread::{CallSink, SignalWorker};
use super::{
    Signal, SignalChannel, SignalFd, SignalInfo, SignalSet, SignalThread, channel, mail,
    thread_masks,
};
use crate::mailbox::Sender;

/// Maximum number of signals that [`Blocked::discard`] takes: more than any queue holds.
const MAX_DISCARDED: usize = 1 << 20;

thread_local! {
    /// The sets of this thread's [`Blocked`]s, and the mask before the first of them.
    static HELD: RefCell<BlockedSets> = const { RefCell::new(BlockedSets::new()) };
}

struct BlockedSets {
    /// An entry for each [`Blocked`].
    sets: Vec<SignalSet>,
    /// The signals in `sets` that the thread had blocked before the first [`Blocked`] with them.
    before: SignalSet,
}

/// A set of signals that this thread blocks, as do all threads that start later. When it was
/// created, every other thread of the process blocked the set as well.
///
/// If two places take signals at the same time, each signal goes to only one of them. Take signals
/// in one place. A signal sent to one thread (`tgkill`, `pthread_kill`) reaches that thread alone.
///
/// Dropping a `Blocked` unblocks, in this thread, the signals that it has blocked, and restores the
/// disposition of SIGCHLD if `Blocked::new` had to change it, because SIGCHLD was ignored or had
/// `SA_NOCLDWAIT`. Each pending signal then takes effect according to its disposition, which may
/// terminate the program. Call [`Blocked::discard`] first to take the pending signals.
///
/// A `Blocked` cannot move to another thread, and each value that takes its signals borrows it. If
/// such a value must live as long as the program, leak the `Blocked`:
/// `Box::leak(Box::new(Blocked::new(…)?))`.
///
/// `exec` keeps the mask: see [`Blocked::unblock_in`]. A forked child has the mask too, but lacks
/// the threads that take signals.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use tontine::signal::{Blocked, Signal};
///
/// // First in `main`, before a thread starts.
/// let blocked = Blocked::new([Signal::TERM, Signal::HUP])?;
/// match blocked.wait(Some(Duration::from_millis(10)))? {
///     Some(info) => println!("{} of pid {:?}", info.signal(), info.pid()),
///     None => println!("no signal within 10 ms"),
/// }
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
///
/// Sources: `pthread_sigmask(3)`, `sigwait(3)`.
#[derive(Debug)]
pub struct Blocked {
    set: SignalSet,
    sigchld: Option<SigchldGuard>,
    /// A mask belongs to one thread, so a `Blocked` is not `Send`.
    _not_send: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks the signals of `set` in the calling thread, and checks that all other threads block
    /// them. Call it at the top of `main`, before a thread or a runtime starts.
    ///
    /// # Errors
    /// A call that fails has blocked nothing.
    ///
    /// - [`SignalError::CannotTake`] for SIGKILL and SIGSTOP, for signals that the kernel sends to
    ///   the thread that caused them (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS), and for
    ///   the signals that the C library uses.
    /// - [`SignalError::EmptySet`] if the set is empty.
    /// - [`SignalError::Unblocked`] if another thread runs with one of the signals unblocked.
    /// - [`SignalError::ProcUnavailable`] if `/proc/self/task` cannot be read.
    /// - [`SignalError::System`] if a system call fails.
    ///
    /// # Examples
    /// The call fails if another thread could be interrupted:
    ///
    /// ```
    /// use tontine::signal::{Blocked, Signal, SignalError};
    ///
    /// std::thread::spawn(std::thread::park);
    /// // Too late: a signal would interrupt that thread.
    /// let error = Blocked::new([Signal::HUP, Signal::TERM]).expect_err("another thread runs");
    /// assert!(matches!(error, SignalError::Unblocked { .. }), "{error}");
    /// ```
    pub fn new(set: impl Into<SignalSet>) -> Result<Self, SignalError> {
        let set = set.into();
        if set.is_empty() {
            return Err(SignalError::EmptySet);
        }
        for signal in set.iter() {
            if let Some(reason) = signal.refusal() {
                return Err(SignalError::CannotTake { signal, reason });
            }
        }
        let before = RawSet::of(set).block()?;
        HELD.with_borrow_mut(|held| held.add(set, before));
        // From this point on, dropping `blocked` undoes the changes.
        let mut blocked = Self { set, sigchld: None, _not_send: PhantomData };
        thread_masks::all_block(set)?;
        if set.contains(Signal::CHLD) {
            blocked.sigchld = Some(SigchldGuard::new()?);
        }
        Ok(blocked)
    }

    /// Returns the set of signals that were passed to [`Blocked::new`].
    pub fn set(&self) -> SignalSet {
        self.set
    }

    /// Blocks until a signal of the set is pending and takes it, in this thread. Returns `None`
    /// after `timeout`. Without a timeout, it blocks indefinitely.
    ///
    /// If a handler interrupts the wait, the wait continues with the rest of the timeout.
    ///
    /// # Errors
    /// [`SignalError::System`] if `sigtimedwait(2)` fails.
    ///
    /// # Examples
    /// ```
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::USR1)?;
    /// # unsafe { libc::raise(libc::SIGUSR1) };
    /// // … another process sends SIGUSR1 …
    /// let info = blocked.wait(None)?.expect("without a timeout there is one");
    /// assert_eq!(info.signal(), Signal::USR1);
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<SignalInfo>, SignalError> {
        RawSet::of(self.set).take(timeout)
    }

    /// Takes and drops all pending signals of the set. Returns their count.
    ///
    /// # Errors
    /// [`SignalError::System`] if `sigtimedwait(2)` fails.
    ///
    /// # Examples
    /// ```
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::USR1)?;
    /// # unsafe { libc::raise(libc::SIGUSR1) };
    /// // … another process sends SIGUSR1, which would end this one when `blocked` is dropped …
    /// assert_eq!(blocked.discard()?, 1);
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn discard(&self) -> Result<usize, SignalError> {
        let raw = RawSet::of(self.set);
        let mut taken = 0;
        while taken < MAX_DISCARDED && raw.take(Some(Duration::ZERO))?.is_some() {
            taken += 1;
        }
        Ok(taken)
    }

    /// Returns a signalfd of the set: a descriptor for an event loop, readable while a signal of
    /// the set is pending. See [`SignalFd`] for an example.
    ///
    /// # Errors
    /// [`SignalError::System`] if `signalfd(2)` fails, for example because the process has too many
    /// descriptors.
    pub fn signal_fd(&self) -> Result<SignalFd<'_>, SignalError> {
        SignalFd::new(self.set)
    }

    /// Starts a thread that calls `deliver` for each signal, one after another, until the returned
    /// handle is dropped. Threads and programs that `deliver` starts inherit the mask.
    ///
    /// # Errors
    /// [`SignalError::System`] if the system refuses a thread.
    ///
    /// # Examples
    /// ```no_run
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::HUP)?;
    /// let thread = blocked.thread(|info| println!("reload, requested by pid {:?}", info.pid()))?;
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn thread(
        &self,
        deliver: impl FnMut(SignalInfo) + Send + 'static,
    ) -> Result<SignalThread<'_>, SignalError> {
        SignalWorker::start(self.set, CallSink(deliver)).map(SignalThread::new)
    }

    /// Starts a thread that puts each signal into a queue, and returns the queue.
    ///
    /// The queue holds up to `bound` real-time signals and one entry for each standard signal.
    /// Further real-time signals stay pending in the kernel. See [`SignalChannel`] for an example.
    ///
    /// # Errors
    /// [`SignalError::System`] if the system refuses a thread.
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    pub fn channel(&self, bound: usize) -> Result<SignalChannel<'_>, SignalError> {
        channel::start(self.set, bound)
    }

    /// Starts a thread that sends each signal to another process, through `sender`. The message is
    /// [`SignalInfo::to_bytes`], which the receiver decodes with [`SignalInfo::from_bytes`]. While
    /// the mailbox is full, the thread waits, and further signals stay pending in the kernel.
    ///
    /// If a signal cannot be sent, the thread calls `undelivered` with the signal and the error. It
    /// then tries to send the next signal, because the sender may have found a successor by then.
    ///
    /// # Errors
    /// [`SignalError::System`] if the system refuses a thread.
    ///
    /// # Examples
    /// ```no_run
    /// use tontine::mailbox::Sender;
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::TERM)?;
    /// let sender = Sender::connect("/run/supervisor")?;
    /// let thread = blocked.mailbox(sender, |info, error| {
    ///     eprintln!("{} was not delivered: {error}", info.signal());
    ///     info.terminate_process()
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mailbox(
        &self,
        sender: Sender,
        undelivered: impl FnMut(SignalInfo, crate::Error) + Send + 'static,
    ) -> Result<SignalThread<'_>, SignalError> {
        mail::start(self.set, sender, undelivered).map(SignalThread::new)
    }

    /// Returns an async stream of the signals, in the current tokio runtime. See
    /// [`SignalStream`](super::SignalStream) for an example.
    ///
    /// # Errors
    /// [`SignalError::System`] if `signalfd(2)` fails, or the runtime cannot watch the descriptor.
    ///
    /// # Panics
    /// Panics if called outside a tokio runtime or in a runtime without its I/O driver.
    #[cfg(feature = "tokio")]
    pub fn stream(&self) -> Result<super::SignalStream<'_>, SignalError> {
        super::SignalStream::new(self.signal_fd()?)
    }

    /// Makes the program that `command` starts begin with the signal mask and the disposition of
    /// SIGCHLD that were in effect before this `Blocked`. Returns `command`.
    ///
    /// Without this call, the program would begin with these signals blocked, and most programs
    /// never unblock signals.
    ///
    /// # Examples
    /// ```
    /// use std::process::Command;
    ///
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::TERM)?;
    /// let status = blocked.unblock_in(&mut Command::new("true")).status()?;
    /// assert!(status.success());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unblock_in<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let ours = self.set - HELD.with_borrow(|held| held.before);
        let raw = RawSet::of(ours);
        let disposition = self.sigchld.as_ref().and_then(SigchldGuard::before);
        let restore = move || {
            if let Some(disposition) = disposition {
                // The kernel has returned this disposition for this signal, so the call cannot
                // fail.
                let _ = disposition.install(Signal::CHLD);
            }
            raw.unblock().map_err(|error| std::io::Error::from_raw_os_error(error.errno()))
        };
        // SAFETY: between fork and exec, the closure makes two system calls. It neither allocates
        // nor locks, because an error of `unblock` has no heap data.
        unsafe { command.pre_exec(restore) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.sigchld = None;
        // If the thread-local value has already been destroyed, the thread is exiting.
        let ours = HELD.try_with(|held| held.borrow_mut().remove(self.set)).unwrap_or_default();
        // The kernel accepts this set and this operation, so the call cannot fail.
        let _ = RawSet::of(ours).unblock();
    }
}

impl BlockedSets {
    const fn new() -> Self {
        Self { sets: Vec::new(), before: SignalSet::new() }
    }

    fn add(&mut self, set: SignalSet, before: SignalSet) {
        let fresh = set - self.union();
        self.before = self.before | (fresh & before);
        self.sets.push(set);
    }

    /// Removes the set of a dropped [`Blocked`]. Returns the signals to unblock.
    fn remove(&mut self, set: SignalSet) -> SignalSet {
        if let Some(at) = self.sets.iter().rposition(|&one| one == set) {
            self.sets.swap_remove(at);
        }
        let free = set - self.union();
        let ours = free - self.before;
        self.before = self.before - free;
        ours
    }

    fn union(&self) -> SignalSet {
        self.sets.iter().fold(SignalSet::new(), |all, &one| all | one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_set_keeps_signals_of_other_sets_blocked() {
        let [int, term, hup] = [Signal::INT, Signal::TERM, Signal::HUP].map(SignalSet::from);
        let mut held = BlockedSets::new();
        held.add(int | hup, hup);
        held.add(int | term, int | hup);
        assert_eq!(
            held.remove(int | hup),
            SignalSet::new(),
            "the other has SIGINT, the thread SIGHUP"
        );
        assert_eq!(held.remove(int | term), int | term);
        assert!(held.sets.is_empty() && held.before.is_empty());
    }
}
