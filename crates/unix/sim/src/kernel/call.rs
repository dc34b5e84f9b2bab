//! The entry to each system call (`sig_lock_or_return`, §4.1) and the exit from it: [`Caller`], the
//! handle through which the program of a thread makes system calls.

use std::cell::Cell;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use tontine_unix::{Errno, Handler, Pid, Result, SigInfo, SigSet, SigStack, WaitStatus};

use super::Kernel;
use super::proc::{Proc, ProcState, ThreadEntry};
use super::siglock::{Marked, SigLocked};
use super::thread::{AstFlags, Thread};
use crate::costs::CostKind;
use crate::executor::{self, At};
use crate::lock::SimpleGuard;
use crate::lock::lock_order::PLock;
use crate::mode::LockingMode;

/// The calling thread.
pub(super) struct Caller<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) proc: &'k Proc,
    pub(super) thread: Arc<Thread>,
    /// The saved mask (§4.2): the mask before `sigsuspend`. The handler that ends `sigsuspend`
    /// restores it.
    pub(super) saved_mask: Cell<Option<SigSet>>,
    /// Handlers that are set up and have not run yet.
    pub(super) frames: Cell<Vec<HandlerFrame>>,
    /// The reason why the stack is being unwound, if it is.
    pub(super) leaving: Cell<Option<ExitReason>>,
    /// Number of times that the program caught the panic that unwinds its stack.
    swallowed: Cell<u32>,
    /// The program's current position, for `profil`.
    pub(super) at: Cell<usize>,
    /// The counters of `profil`.
    pub(super) profile: Cell<Option<Profile>>,
    /// The alternate stack, as set by `sigstack`.
    pub(super) alternate: Cell<SigStack>,
    /// Number of times that the thread took a signal, or was stopped with its process.
    pub(super) wakings: Cell<u32>,
}

/// The counters of [`Sys::profil`](tontine_unix::Sys::profil).
type Profile = Arc<[AtomicU32]>;

/// A handler that is set up: it runs before the program, or the frame below it, continues.
pub(super) struct HandlerFrame {
    pub(super) handler: Handler,
    pub(super) info: SigInfo,
    /// The mask that is restored after the handler.
    pub(super) mask: SigSet,
    pub(super) alternate: SigStack,
}

/// The result of delivery on the way to user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivered {
    /// No handler ran.
    Nothing,
    /// The first handler was installed with `SA_RESTART`.
    Restart,
    /// The first handler was installed without `SA_RESTART`.
    Interrupt,
}

/// The reason why a thread leaves its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitReason {
    /// The process exits, and this thread performs the exit.
    Exit,
    /// Another thread exits or calls exec.
    Halt,
    /// Another program replaces this one.
    Exec,
}

/// The panic payload that unwinds a program's stack.
pub(super) struct Unwind;

/// The reason why a call does not return a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// The call fails with this error.
    Errno(Errno),
    /// Pending work must be handled before the call can begin; the call then begins.
    Again,
    /// Pending work must be handled before the call can continue.
    Interrupted,
}

/// The result of a call that may be unfinished.
pub(super) type Partial<T> = std::result::Result<T, Unfinished>;

impl From<Errno> for Unfinished {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Marked> for Unfinished {
    fn from(_: Marked) -> Self {
        Self::Again
    }
}

/// The behaviour of an interrupted call after a handler has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartRule {
    /// The call restarts, if each handler was installed with `SA_RESTART`.
    Restart,
    /// The call restarts.
    Always,
    /// The call returns `EINTR`.
    Interrupt,
}

/// Number of times that a program may catch that panic before its stack is abandoned.
const MOST_SWALLOWED: u32 = 16;

/// A time that no clock reaches (292 years): a sleep until this time or later has no deadline.
const FOR_EVER: Duration = Duration::from_nanos(u64::MAX / 2);

impl<'k> Caller<'k> {
    pub(super) fn new(kernel: &'k Kernel, proc: &'k Proc, thread: Arc<Thread>) -> Self {
        let alternate = Cell::new(thread.first_alternate());
        Self {
            kernel,
            proc,
            thread,
            saved_mask: Cell::default(),
            frames: Cell::default(),
            leaving: Cell::default(),
            swallowed: Cell::default(),
            at: Cell::default(),
            profile: Cell::default(),
            alternate,
            wakings: Cell::default(),
        }
    }

    /// Takes `p_lock` of the caller's process.
    pub(super) fn state(&self) -> SimpleGuard<'_, PLock, ProcState> {
        self.proc.lock(&self.kernel.locks)
    }

    /// Returns the caller's entry in the list of its process.
    pub(super) fn member<'s>(&self, state: &'s mut ProcState) -> &'s mut ThreadEntry {
        state.member(self.thread.tid()).expect("a thread that runs is in its process's list")
    }

    /// Returns the process that `pid` denotes as an argument; 0 denotes the caller's process.
    pub(super) fn or_self(&self, pid: Pid) -> Pid {
        if pid.number() == 0 { self.proc.pid() } else { pid }
    }

    /// Calls `sig_lock_or_return` (§4.1).
    pub(super) fn sig_lock_or_return(&self) -> std::result::Result<SigLocked<'_>, Marked> {
        self.proc.siglock.sig_lock_or_return(&self.kernel.locks, &self.thread)
    }

    /// Performs a system call that neither sleeps nor fails. `refused` is the result for a
    /// destructor that makes the call while the stack is unwound.
    pub(super) fn plain<T>(&self, refused: T, body: impl FnOnce() -> T) -> T {
        if self.enter().is_err() {
            return refused;
        }
        let result = self.kernel.on_master(body);
        self.return_to_user();
        result
    }

    /// Performs a system call that may fail and that manipulates processes. `sig_lock_or_return`
    /// guards it (§4.1).
    pub(super) fn guarded<T>(&self, mut body: impl FnMut() -> Result<T>) -> Result<T> {
        self.interruptible(RestartRule::Restart, || {
            self.sig_lock_or_return()?.unlock();
            Ok(body()?)
        })
    }

    /// Like [`Caller::guarded`], for a body that may find pending work that must be handled first.
    pub(super) fn guarded_stops<T>(&self, mut body: impl FnMut() -> Partial<T>) -> Result<T> {
        self.interruptible(RestartRule::Restart, || {
            self.sig_lock_or_return()?.unlock();
            body()
        })
    }

    /// Performs a system call that may sleep.
    pub(super) fn interruptible<T>(
        &self,
        after: RestartRule,
        mut body: impl FnMut() -> Partial<T>,
    ) -> Result<T> {
        self.retry(after, || self.kernel.on_master(&mut body))
    }

    fn retry<T>(&self, after: RestartRule, mut body: impl FnMut() -> Partial<T>) -> Result<T> {
        loop {
            self.enter()?;
            let result = body();
            let delivered = self.return_to_user();
            match result {
                Ok(value) => return Ok(value),
                Err(Unfinished::Errno(errno)) => return Err(errno),
                Err(Unfinished::Again) => {}
                Err(Unfinished::Interrupted) if self.restarts(delivered, after) => {}
                Err(Unfinished::Interrupted) => return Err(Errno::EINTR),
            }
        }
    }

    /// Returns `true` if an interrupted call restarts after the pending work was handled.
    fn restarts(&self, delivered: Delivered, after: RestartRule) -> bool {
        matches!(
            (delivered, after),
            (_, RestartRule::Always)
                | (Delivered::Nothing, _)
                | (Delivered::Restart, RestartRule::Restart)
        )
    }

    /// Enters the kernel. A signal that arrives before the call begins is delivered first, because
    /// the processor is still in user mode. Fails with `EINTR` while the stack is unwound, because
    /// destructors cannot make system calls.
    fn enter(&self) -> Result<()> {
        if self.leaving.get().is_some() || std::thread::panicking() {
            return self.refuse();
        }
        executor::enter_kernel();
        executor::spend(CostKind::Call);
        loop {
            executor::point(At::Call);
            // A restarted `sigsuspend` first restores the saved mask.
            if !self.has_pending_ast() || self.saved_mask.get().is_some() {
                return Ok(());
            }
            self.return_to_user();
            executor::enter_kernel();
        }
    }

    /// Handles pending work of a program that computes. This runs on the program's own processor,
    /// unlike a call, which runs on the master.
    pub(super) fn look_up(&self) {
        if self.enter().is_ok() {
            self.return_to_user();
        }
    }

    #[cold]
    fn refuse(&self) -> Result<()> {
        if std::thread::panicking() {
            return Err(Errno::EINTR);
        }
        // The program caught the panic that unwinds its stack, and made another call.
        let swallowed = self.swallowed.get() + 1;
        self.swallowed.set(swallowed);
        if swallowed > MOST_SWALLOWED {
            self.end();
            executor::abandon();
        }
        panic::resume_unwind(Box::new(Unwind));
    }

    /// Ends the process.
    pub(super) fn leave_with(&self, status: WaitStatus) -> ! {
        if std::thread::panicking() {
            // The caller is a destructor. A second unwinding cannot leave it. A fiber that is
            // abandoned here would leave the thread of its processor panicking, which would affect
            // all other fibers of that thread.
            eprintln!(
                "tontine-unix: process {}: exit in a destructor while the stack is unwound",
                self.proc.number()
            );
            std::process::abort();
        }
        if self.enter().is_ok() {
            self.kernel.on_master(|| self.end_with(status));
        }
        self.leave(self.leaving.get().unwrap_or(ExitReason::Halt))
    }

    /// Unwinds the program's stack.
    pub(super) fn leave(&self, why: ExitReason) -> ! {
        self.leaving.set(Some(why));
        panic::resume_unwind(Box::new(Unwind))
    }

    /// Like [`Caller::interruptible`], but on the caller's current processor (`exec`, `spawn`).
    pub(super) fn interruptible_anywhere<T>(
        &self,
        after: RestartRule,
        body: impl FnMut() -> Partial<T>,
    ) -> Result<T> {
        self.retry(after, body)
    }

    /// Records the fiber on which the thread is about to park: in mode `Master`, a fiber of
    /// processor 0.
    pub(super) fn parks_here(&self, state: &mut ProcState) {
        if self.kernel.config.mode == LockingMode::Master {
            self.member(state).fiber = Some(executor::current());
        }
    }

    /// Records that the thread sleeps interruptibly, and the fiber on which it sleeps.
    fn sleeps(&self, state: &mut ProcState) {
        self.parks_here(state);
        self.thread.set_sleeping(true);
    }

    /// Sleeps once, until this fiber is unparked. The caller must then check its condition again.
    /// Fails if pending work must be handled first.
    pub(super) fn sleep_once(&self) -> Partial<()> {
        {
            let mut state = self.state();
            if self.has_pending_ast() {
                return Err(Unfinished::Interrupted);
            }
            self.sleeps(&mut state);
        }
        executor::park();
        let _state = self.state();
        self.thread.set_sleeping(false);
        Ok(())
    }

    /// Sleeps until there may be space for the rest of a write. Returns `false` if a signal arrives
    /// after a part was `written`; the call then returns the length of that part. Fails if pending
    /// work must be handled first and nothing was written.
    pub(super) fn sleep_for_space(&self, written: usize) -> Partial<bool> {
        match self.sleep_once() {
            Ok(()) => Ok(true),
            Err(_) if written > 0 => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    /// Sleeps until there is pending work. `prepare` runs under the process's `p_lock`, so that
    /// nothing happens between `prepare` and the sleep.
    pub(super) fn sleep_for_handler(&self, prepare: impl FnOnce(&mut ProcState)) -> Partial<()> {
        {
            let mut state = self.state();
            prepare(&mut state);
            if self.has_pending_ast() {
                return Err(Unfinished::Interrupted);
            }
            self.sleeps(&mut state);
        }
        loop {
            executor::park();
            if self.has_pending_ast() {
                break;
            }
        }
        // This needs no `p_lock`: a poster that reads the old value merely unparks this thread once
        // more, and every sleep checks its condition again.
        self.thread.set_sleeping(false);
        Err(Unfinished::Interrupted)
    }

    /// Returns `true` if pending work must be handled before the thread continues.
    pub(super) fn has_pending_ast(&self) -> bool {
        !self.thread.attention().difference(AstFlags::TICK).is_empty()
    }

    /// Sleeps until `ready` returns a value, pending work must be handled, or the deadline passes
    /// (returns `None`). `ready` is called under the process's `p_lock`.
    pub(super) fn sleep<T>(
        &self,
        deadline: Option<Duration>,
        mut ready: impl FnMut(&mut ProcState) -> Option<T>,
    ) -> Partial<Option<T>> {
        let deadline = deadline.filter(|deadline| *deadline < FOR_EVER);
        let mut timer = None;
        let result = loop {
            {
                let mut state = self.state();
                if let Some(value) = ready(&mut state) {
                    self.thread.set_sleeping(false);
                    break Ok(Some(value));
                }
                if self.has_pending_ast() {
                    self.thread.set_sleeping(false);
                    break Err(Unfinished::Interrupted);
                }
                if deadline.is_some_and(|deadline| self.kernel.executor.now() >= deadline) {
                    self.thread.set_sleeping(false);
                    break Ok(None);
                }
                self.sleeps(&mut state);
            }
            if let (Some(deadline), None) = (deadline, &timer) {
                let fiber = executor::current();
                let wake = Box::new(move || fiber.unpark());
                timer = Some(self.kernel.executor.at(deadline, wake));
            }
            executor::park();
        };
        if let Some(timer) = timer {
            timer.cancel();
        }
        result
    }
}
