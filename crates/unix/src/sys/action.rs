//! What a process does about a signal, and what it learns of one: [`SigAction`], [`SigInfo`].

use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;

use super::Sys;
use crate::signal::{SigSet, Signal};

/// What is done about a signal, as `struct sigaction` has it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SigAction {
    /// What happens.
    pub disposition: Disposition,
    /// What is blocked, beside the signal itself, while a handler runs.
    pub mask: SigSet,
    /// How it happens.
    pub flags: ActionFlags,
}

impl SigAction {
    /// The signal's default.
    pub const DEFAULT: Self = Self {
        disposition: Disposition::Default,
        mask: SigSet::EMPTY,
        flags: ActionFlags::empty(),
    };
    /// Nothing happens.
    pub const IGNORE: Self =
        Self { disposition: Disposition::Ignore, mask: SigSet::EMPTY, flags: ActionFlags::empty() };

    /// `handler` runs, with nothing else blocked and no flag set.
    pub fn handler(handler: impl Fn(&dyn Sys, &SigInfo) + Send + Sync + 'static) -> Self {
        Self { disposition: Disposition::Handler(Handler::new(handler)), ..Self::DEFAULT }
    }

    /// The same with these flags.
    #[must_use]
    pub fn with_flags(self, flags: ActionFlags) -> Self {
        Self { flags, ..self }
    }

    /// The same with this mask.
    #[must_use]
    pub fn with_mask(self, mask: SigSet) -> Self {
        Self { mask, ..self }
    }
}

/// What 4.3BSD's `struct sigvec` says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SigVec {
    /// Disposition and mask; of its flags those that 4.3BSD has.
    pub action: SigAction,
}

/// What happens when a signal is delivered.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Disposition {
    /// [`Signal::default_action`].
    #[default]
    Default,
    /// Nothing; the signal is thrown away.
    Ignore,
    /// A function runs.
    Handler(Handler),
}

/// A function that runs when a signal is delivered.
///
/// On [`Linux`](crate::Linux) it runs in a real handler, at any instruction of the program: it may
/// store to atomics and make those system calls that signal-safety(7) names, and nothing else.
#[derive(Clone)]
pub struct Handler(Arc<HandlerFn>);

type HandlerFn = dyn Fn(&dyn Sys, &SigInfo) + Send + Sync;

impl Handler {
    /// Makes one of a function.
    pub fn new(handler: impl Fn(&dyn Sys, &SigInfo) + Send + Sync + 'static) -> Self {
        Self(Arc::new(handler))
    }

    /// Runs it.
    pub fn call(&self, sys: &dyn Sys, info: &SigInfo) {
        (self.0)(sys, info);
    }
}

impl PartialEq for Handler {
    /// Whether both are the same function object.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler(..)")
    }
}

bitflags! {
    /// The flags of `sigaction`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ActionFlags: u32 {
        /// `SA_NOCLDSTOP`: no SIGCHLD for a child that stops or continues.
        const NOCLDSTOP = 1 << 0;
        /// `SA_NOCLDWAIT`: children leave nothing to wait for.
        const NOCLDWAIT = 1 << 1;
        /// `SA_SIGINFO`: the handler wants to know more. Handlers here always do; kept for
        /// `sigaction` to give back.
        const SIGINFO = 1 << 2;
        /// `SA_ONSTACK`: on the alternate stack, where there is one.
        const ONSTACK = 1 << 3;
        /// `SA_RESTART`: what the handler interrupted starts again, where it can.
        const RESTART = 1 << 4;
        /// `SA_NODEFER`: the signal is not blocked in its own handler.
        const NODEFER = 1 << 5;
        /// `SA_RESETHAND`: once, then the default again.
        const RESETHAND = 1 << 6;
    }
}

/// What a handler or `sigwait` learns of a signal, as `siginfo_t` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigInfo {
    /// Which.
    pub signal: Signal,
    /// Why.
    pub code: SigCode,
    /// The sender, or the child that it is about; 0 from the system.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// What `sigqueue` was given.
    pub value: i32,
    /// The child's exit status, or the signal that ended, stopped or continued it.
    pub status: i32,
}

impl SigInfo {
    /// From the system, about nobody.
    pub const fn kernel(signal: Signal) -> Self {
        Self { signal, code: SigCode::Kernel, pid: 0, uid: 0, value: 0, status: 0 }
    }

    /// SIGCHLD, about this child of this user.
    #[doc(hidden)]
    pub const fn child(pid: i32, uid: u32, code: SigCode, status: i32) -> Self {
        Self { signal: Signal::CHLD, code, pid, uid, value: 0, status }
    }
}

/// Why a signal was sent, as `si_code` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SigCode {
    /// `SI_USER`: by `kill`.
    User,
    /// `SI_QUEUE`: by `sigqueue`.
    Queue,
    /// `SI_TKILL`: by `tgkill`.
    Tkill,
    /// `SI_KERNEL`: by the system.
    Kernel,
    /// A fault of the thread itself.
    Fault,
    /// `CLD_EXITED`.
    Exited,
    /// `CLD_KILLED`.
    Killed,
    /// `CLD_DUMPED`.
    Dumped,
    /// `CLD_TRAPPED`.
    Trapped,
    /// `CLD_STOPPED`.
    Stopped,
    /// `CLD_CONTINUED`.
    Continued,
}

/// How [`Sys::sigprocmask`] changes the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigmaskHow {
    /// `SIG_BLOCK`: these too.
    Block,
    /// `SIG_UNBLOCK`: these no longer.
    Unblock,
    /// `SIG_SETMASK`: these and no others.
    Set,
}

impl SigmaskHow {
    /// The mask that `mask` becomes with `set`.
    pub const fn apply(self, mask: SigSet, set: SigSet) -> SigSet {
        let new = match self {
            Self::Block => mask.union(set),
            Self::Unblock => mask.difference(set),
            Self::Set => set,
        };
        new.difference(SigSet::UNBLOCKABLE)
    }
}
