//! The signal calls of System V (`sighold`, `sigrelse`, `sigignore`, `sigset`), and C's `signal`.
//!
//! The calls are composed of [`Sys::sigaction`] and [`Sys::sigprocmask`], so both backends provide
//! them. System V's `sigpause`, which takes one signal, is not included, because the name denotes
//! 4.3BSD's call ([`Sys::sigpause`]); `sigsuspend(mask.without(signal))` is equivalent.

use crate::errno::Result;
use crate::signal::{SigSet, Signal};
use crate::sys::{ActionFlags, Disposition, SigAction, SigmaskHow, Sys};

impl dyn Sys + '_ {
    /// Blocks a signal.
    ///
    /// # Errors
    /// Like [`Sys::sigprocmask`].
    pub fn sighold(&self, signal: Signal) -> Result<()> {
        self.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[signal])))).map(drop)
    }

    /// Unblocks a signal.
    ///
    /// # Errors
    /// Like [`Sys::sigprocmask`].
    pub fn sigrelse(&self, signal: Signal) -> Result<()> {
        self.sigprocmask(Some((SigmaskHow::Unblock, SigSet::of(&[signal])))).map(drop)
    }

    /// Sets the disposition of a signal to `SIG_IGN`.
    ///
    /// # Errors
    /// Like [`Sys::sigaction`].
    pub fn sigignore(&self, signal: Signal) -> Result<()> {
        self.sigaction(signal, Some(SigAction::IGNORE)).map(drop)
    }

    /// Sets the disposition of a signal and unblocks it. With `None`, which is `SIG_HOLD`, blocks
    /// the signal and leaves its disposition unchanged. Returns the previous disposition, or `None`
    /// if the signal was blocked.
    ///
    /// ```
    /// use tontine_unix::{Disposition, Linux, Signal, Sys};
    ///
    /// let linux: &dyn Sys = &Linux::new()?;
    /// linux.fork(|sys| {
    ///     assert_eq!(sys.sigset(Signal::USR1, None), Ok(Some(Disposition::Default)));
    ///     sys.raise(Signal::USR1).expect("it is held");
    ///     assert_eq!(sys.sigset(Signal::USR1, Some(Disposition::Ignore)), Ok(None));
    ///     0
    /// })?;
    /// assert_eq!(linux.wait()?.status.exited(), Some(0));
    /// # Ok::<(), tontine_unix::Errno>(())
    /// ```
    ///
    /// # Errors
    /// Like [`Sys::sigaction`].
    pub fn sigset(
        &self,
        signal: Signal,
        disposition: Option<Disposition>,
    ) -> Result<Option<Disposition>> {
        let how = if disposition.is_some() { SigmaskHow::Unblock } else { SigmaskHow::Block };
        let action = disposition.map(|disposition| SigAction { disposition, ..SigAction::DEFAULT });
        let before = self.sigaction(signal, action)?.disposition;
        let mask = self.sigprocmask(Some((how, SigSet::of(&[signal]))))?;
        Ok(if mask.contains(signal) { None } else { Some(before) })
    }

    /// Sets the disposition of a signal, and returns the previous one. A handler stays installed,
    /// and calls that it interrupts restart, as with Linux's C libraries.
    ///
    /// # Errors
    /// Like [`Sys::sigaction`].
    pub fn signal(&self, signal: Signal, disposition: Disposition) -> Result<Disposition> {
        let action = SigAction { disposition, ..SigAction::DEFAULT };
        let action = action.with_flags(ActionFlags::RESTART);
        Ok(self.sigaction(signal, Some(action))?.disposition)
    }
}
