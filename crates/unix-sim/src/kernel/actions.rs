//! The dispositions of a process (§2.1.1), shared by those that it forks until one changes:
//! [`Actions`].

use tontine_unix::{DefaultAction, Disposition, SigAction, SigSet, Signal};

/// What is done about each signal.
#[derive(Debug, Clone)]
pub(super) struct Actions {
    by_number: Vec<SigAction>,
    /// Those that nothing happens for: ignored, or ignored by default.
    nothing: SigSet,
}

impl Default for Actions {
    fn default() -> Self {
        let nothing = Signal::all().filter(|signal| is_nothing(signal.default_action())).collect();
        Self { by_number: vec![SigAction::DEFAULT; 65], nothing }
    }
}

impl Actions {
    pub(super) fn of(&self, signal: Signal) -> &SigAction {
        &self.by_number[signal.number() as usize]
    }

    /// Replaces one.
    pub(super) fn set(&mut self, signal: Signal, action: SigAction) {
        let nothing = match action.disposition {
            Disposition::Default => is_nothing(signal.default_action()),
            Disposition::Ignore => true,
            Disposition::Handler(_) => false,
        };
        self.nothing =
            if nothing { self.nothing.with(signal) } else { self.nothing.without(signal) };
        self.by_number[signal.number() as usize] = action;
    }

    /// Signals for which nothing happens.
    pub(super) fn nothing(&self) -> SigSet {
        self.nothing
    }

    /// Signals that have a handler.
    pub(super) fn caught(&self) -> SigSet {
        let is_caught =
            |signal: &Signal| matches!(self.of(*signal).disposition, Disposition::Handler(_));
        Signal::all().filter(is_caught).collect()
    }

    /// As `exec` leaves them: what was caught has its default, what was ignored is ignored.
    pub(super) fn executed(&mut self) {
        for signal in self.caught().iter() {
            self.set(signal, SigAction::DEFAULT);
        }
    }
}

/// Whether nothing happens when a signal is delivered that does this; SIGCONT continues before.
fn is_nothing(action: DefaultAction) -> bool {
    matches!(action, DefaultAction::Ignore | DefaultAction::Continue)
}
