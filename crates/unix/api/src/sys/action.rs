//! The action for a signal, [`SigAction`], and information about a received signal, [`SigInfo`].

use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;

use super::Sys;
use crate::signal::{SigSet, Signal};

/// The action for a signal, as in `struct sigaction`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SigAction {
    /// The disposition of the signal.
    pub disposition: Disposition,
    /// The signals that are blocked while a handler runs, in addition to the signal itself.
    pub mask: SigSet,
    /// The flags.
    pub flags: ActionFlags,
}

impl SigAction {
    /// The default action.
    pub const DEFAULT: Self = Self {
        disposition: Disposition::Default,
        mask: SigSet::EMPTY,
        flags: ActionFlags::empty(),
    };
    /// The action that ignores the signal.
    pub const IGNORE: Self =
        Self { disposition: Disposition::Ignore, mask: SigSet::EMPTY, flags: ActionFlags::empty() };

    /// Returns an action that runs `handler`, with an empty mask and no flags.
    pub fn handler(handler: impl Fn(&dyn Sys, &SigInfo) + Send + Sync + 'static) -> Self {
        Self { disposition: Disposition::Handler(Handler::new(handler)), ..Self::DEFAULT }
    }

    /// Returns the action with these flags.
    #[must_use]
    pub fn with_flags(self, flags: ActionFlags) -> Self {
        Self { flags, ..self }
    }

    /// Returns the action with this mask.
    #[must_use]
    pub fn with_mask(self, mask: SigSet) -> Self {
        Self { mask, ..self }
    }
}

/// The action for a signal, as in 4.3BSD's `struct sigvec`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SigVec {
    /// The disposition, the mask, and the flags that 4.3BSD supports.
    pub action: SigAction,
}

/// The effect of a signal's delivery.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Disposition {
    /// The effect is [`Signal::default_action`].
    #[default]
    Default,
    /// The signal is discarded.
    Ignore,
    /// A handler runs.
    Handler(Handler),
}

/// A function that runs when a signal is delivered.
///
/// On [`Linux`](crate::Linux) it runs in a real handler, at any instruction of the program: it may
/// only store to atomics and make the system calls that signal-safety(7) lists.
#[derive(Clone)]
pub struct Handler(Arc<HandlerFn>);

type HandlerFn = dyn Fn(&dyn Sys, &SigInfo) + Send + Sync;

impl Handler {
    /// Creates a handler from a function.
    pub fn new(handler: impl Fn(&dyn Sys, &SigInfo) + Send + Sync + 'static) -> Self {
        Self(Arc::new(handler))
    }

    /// Calls the function.
    pub fn call(&self, sys: &dyn Sys, info: &SigInfo) {
        (self.0)(sys, info);
    }
}

impl PartialEq for Handler {
    /// Returns `true` if both are the same function object.
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
        /// `SA_NOCLDWAIT`: children do not become zombies, so they cannot be waited for.
        const NOCLDWAIT = 1 << 1;
        /// `SA_SIGINFO`: the handler receives a `siginfo_t`. Handlers of this crate always receive
        /// a [`SigInfo`]; `sigaction` only stores and returns the flag.
        const SIGINFO = 1 << 2;
        /// `SA_ONSTACK`: the handler runs on the alternate stack, if one is set.
        const ONSTACK = 1 << 3;
        /// `SA_RESTART`: a restartable call that the handler interrupts restarts.
        const RESTART = 1 << 4;
        /// `SA_NODEFER`: the signal is not blocked in its own handler.
        const NODEFER = 1 << 5;
        /// `SA_RESETHAND`: the handler runs once; then the signal has its default action again.
        const RESETHAND = 1 << 6;
    }
}

/// Information about a received signal, for a handler or `sigwait`, as in `siginfo_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SigInfo {
    /// The signal.
    pub signal: Signal,
    /// The reason why the signal was sent.
    pub code: SigCode,
    /// The sending process, or the child that changed; 0 if the system sent the signal.
    pub pid: i32,
    /// The user of that process.
    pub uid: u32,
    /// The value that the sender passed to `sigqueue`.
    pub value: i32,
    /// The child's exit status, or the signal that terminated, stopped or continued it.
    pub status: i32,
}

impl SigInfo {
    /// Returns the information about a signal that the system sent on behalf of no process.
    pub const fn kernel(signal: Signal) -> Self {
        Self { signal, code: SigCode::Kernel, pid: 0, uid: 0, value: 0, status: 0 }
    }

    /// Returns the information of SIGCHLD about this child of this user.
    #[doc(hidden)]
    pub const fn child(pid: i32, uid: u32, code: SigCode, status: i32) -> Self {
        Self { signal: Signal::CHLD, code, pid, uid, value: 0, status }
    }
}

/// The reason why a signal was sent, as in `si_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SigCode {
    /// `SI_USER`: sent by `kill`.
    User,
    /// `SI_QUEUE`: sent by `sigqueue`.
    Queue,
    /// `SI_TKILL`: sent by `tgkill`.
    Tkill,
    /// `SI_KERNEL`: sent by the system.
    Kernel,
    /// Caused by a fault of the thread itself.
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

/// The way in which [`Sys::sigprocmask`] changes the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigmaskHow {
    /// `SIG_BLOCK`: adds the signals to the mask.
    Block,
    /// `SIG_UNBLOCK`: removes the signals from the mask.
    Unblock,
    /// `SIG_SETMASK`: replaces the mask with the signals.
    Set,
}

impl SigmaskHow {
    /// Returns `mask`, changed by `set` in this way.
    pub const fn apply(self, mask: SigSet, set: SigSet) -> SigSet {
        let new = match self {
            Self::Block => mask.union(set),
            Self::Unblock => mask.difference(set),
            Self::Set => set,
        };
        new.difference(SigSet::UNBLOCKABLE)
    }
}
