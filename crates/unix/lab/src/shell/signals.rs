//! The signals that the shell ignores or catches: [`ShellSignals`].
//!
//! A handler only records that its signal arrived. The shell checks the record between two
//! commands, before a prompt, and while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tontine_unix::{ActionFlags, Result, SigAction, SigSet, Signal, Sys};

/// The signals that an interactive shell ignores, so that no key typed for its jobs stops or ends
/// the shell.
const IGNORED: SigSet =
    SigSet::of(&[Signal::QUIT, Signal::TERM, Signal::TSTP, Signal::TTIN, Signal::TTOU]);
/// The signals that an interactive shell catches in order to show a new prompt, to end, and to
/// notice a job that changed state.
const CAUGHT: SigSet = SigSet::of(&[Signal::INT, Signal::HUP, Signal::CHLD]);

/// The dispositions of the shell.
#[derive(Debug, Default)]
pub(super) struct ShellSignals {
    /// The signals that the shell catches. They are blocked while it checks whether to wait.
    pub(super) caught: SigSet,
    /// The signals that a child resets to the default.
    pub(super) changed: SigSet,
    /// The signals that arrived, as bits of a [`SigSet`].
    arrived: Arc<AtomicU64>,
}

impl ShellSignals {
    /// Sets the dispositions of a shell; one without a user only catches SIGCHLD.
    pub(super) fn begin(sys: &dyn Sys, interactive: bool) -> Result<Self> {
        let (caught, ignored) = if interactive {
            (CAUGHT, IGNORED)
        } else {
            (SigSet::of(&[Signal::CHLD]), SigSet::EMPTY)
        };
        let arrived = Arc::new(AtomicU64::new(0));
        for signal in caught.iter() {
            let arrived = Arc::clone(&arrived);
            let action = SigAction::handler(move |_, info| {
                arrived.fetch_or(SigSet::of(&[info.signal]).bits(), Ordering::Relaxed);
            });
            let restarts = signal == Signal::CHLD;
            let flags = if restarts { ActionFlags::RESTART } else { ActionFlags::empty() };
            sys.sigaction(signal, Some(action.with_flags(flags)))?;
        }
        for signal in ignored.iter() {
            sys.sigaction(signal, Some(SigAction::IGNORE))?;
        }
        Ok(Self { caught, changed: caught.union(ignored), arrived })
    }

    /// Returns the signals that have arrived.
    pub(super) fn arrived(&self) -> SigSet {
        SigSet::from_bits(self.arrived.load(Ordering::Relaxed))
    }

    /// Returns `true` if SIGINT arrived since the last call.
    pub(super) fn take_interrupt(&self) -> bool {
        let interrupt = SigSet::of(&[Signal::INT]).bits();
        self.arrived.fetch_and(!interrupt, Ordering::Relaxed) & interrupt != 0
    }
}
