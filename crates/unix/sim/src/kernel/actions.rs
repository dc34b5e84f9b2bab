//! The dispositions of a process (§2.1.1): [`Actions`]. A process shares them with its forked
//! children until one of these processes changes them.

use tontine_unix::{DefaultAction, Disposition, SigAction, SigSet, Signal};

/// The action for each signal.
#[derive(Clone)]
pub(super) struct Actions {
    by_number: Vec<SigAction>,
    /// Signals without an effect: ignored, or ignored by default.
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

    /// Replaces the action of a signal.
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

    /// Returns the signals without an effect.
    pub(super) fn nothing(&self) -> SigSet {
        self.nothing
    }

    /// Returns the signals that have a handler.
    pub(super) fn caught(&self) -> SigSet {
        let is_caught =
            |signal: &Signal| matches!(self.of(*signal).disposition, Disposition::Handler(_));
        Signal::all().filter(is_caught).collect()
    }

    /// Applies `exec`: caught signals get the default action; ignored signals stay ignored.
    pub(super) fn executed(&mut self) {
        for signal in self.caught().iter() {
            self.set(signal, SigAction::DEFAULT);
        }
    }
}

/// Returns `true` if delivering a signal with this default action has no effect. SIGCONT takes
/// effect before delivery.
fn is_nothing(action: DefaultAction) -> bool {
    matches!(action, DefaultAction::Ignore | DefaultAction::Continue)
}
