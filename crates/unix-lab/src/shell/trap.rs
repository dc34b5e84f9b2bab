//! Which signals the shell ignores and catches, and what `trap` makes of them: [`Traps`].
//!
//! A handler only notes that its signal arrived; the shell looks at the notes between two commands,
//! before a prompt, and while it waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tontine_unix::{ActionFlags, Result, SigAction, SigSet, Signal, Sys};

/// What a shell ignores that a user talks to: nothing typed for its jobs stops or ends it.
const IGNORED: SigSet =
    SigSet::of(&[Signal::QUIT, Signal::TERM, Signal::TSTP, Signal::TTIN, Signal::TTOU]);
/// What such a shell catches: a new prompt, the end, a job that changed.
const CAUGHT: SigSet = SigSet::of(&[Signal::INT, Signal::HUP, Signal::CHLD]);

/// What is done about signals.
#[derive(Debug, Default)]
pub(super) struct Traps {
    /// Whether a user talks to the shell. If not, only a child's change is caught.
    interactive: bool,
    /// Bit n−1 is set when signal n was caught. Handlers run in the shell's own thread.
    arrived: Arc<AtomicU64>,
    /// The commands of `trap`; none for a signal that is to be ignored.
    commands: BTreeMap<Signal, String>,
}

impl Traps {
    /// Ignores and catches what a shell does.
    ///
    /// # Errors
    /// As [`Sys::sigaction`].
    pub(super) fn begin(sys: &dyn Sys, interactive: bool) -> Result<Self> {
        let traps = Self { interactive, ..Self::default() };
        for signal in traps.own().iter() {
            traps.reset(sys, signal)?;
        }
        Ok(traps)
    }

    /// `trap 'commands' signal`.
    ///
    /// # Errors
    /// As [`Sys::sigaction`].
    pub(super) fn set(&mut self, sys: &dyn Sys, signal: Signal, commands: &str) -> Result<()> {
        let action = if commands.is_empty() { SigAction::IGNORE } else { self.catch(signal) };
        sys.sigaction(signal, Some(action))?;
        self.commands.insert(signal, commands.to_owned());
        Ok(())
    }

    /// `trap - signal`.
    ///
    /// # Errors
    /// As [`Sys::sigaction`].
    pub(super) fn unset(&mut self, sys: &dyn Sys, signal: Signal) -> Result<()> {
        self.reset(sys, signal)?;
        self.commands.remove(&signal);
        Ok(())
    }

    /// What was set, as `trap` takes it again.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |(signal, commands): (&Signal, &String)| {
            format!("trap '{}' {signal}", commands.replace('\'', r"'\''"))
        };
        self.commands.iter().map(line)
    }

    /// What arrived, and the commands for it; once.
    pub(super) fn due(&self) -> (SigSet, Vec<String>) {
        let arrived = self.arrived.fetch_and(self.hang_up_bits(), Ordering::Relaxed);
        let arrived = SigSet::from_bits(arrived);
        let commands = arrived.iter().filter_map(|signal| self.commands.get(&signal).cloned());
        (arrived, commands.collect())
    }

    /// What was caught and not yet seen to, but for a child's change.
    pub(super) fn arrived(&self) -> SigSet {
        let arrived = SigSet::from_bits(self.arrived.load(Ordering::Relaxed));
        if self.commands.contains_key(&Signal::CHLD) {
            arrived
        } else {
            arrived.without(Signal::CHLD)
        }
    }

    /// Whether SIGHUP arrived, and nobody asked for anything else than to end.
    pub(super) fn hung_up(&self) -> bool {
        self.arrived.load(Ordering::Relaxed) & self.hang_up_bits() != 0
    }

    /// What the shell catches, to be blocked while it looks whether there is something to wait for.
    pub(super) fn caught(&self) -> SigSet {
        let trapped = self.commands.iter().filter(|(_, commands)| !commands.is_empty());
        let own = self.own().intersection(CAUGHT);
        own.union(trapped.map(|(signal, _)| *signal).collect())
    }

    /// What a child begins with the default of: all but what the user wants ignored.
    pub(super) fn child_defaults(&self) -> SigSet {
        let ignored = self.commands.iter().filter(|(_, commands)| commands.is_empty());
        self.own().union(self.caught()).difference(ignored.map(|(signal, _)| *signal).collect())
    }

    /// What is not as it was when the shell began.
    fn own(&self) -> SigSet {
        let all = IGNORED.union(CAUGHT);
        if self.interactive { all } else { all.intersection(SigSet::of(&[Signal::CHLD])) }
    }

    fn hang_up_bits(&self) -> u64 {
        if self.commands.contains_key(&Signal::HUP) { 0 } else { SigSet::of(&[Signal::HUP]).bits() }
    }

    fn reset(&self, sys: &dyn Sys, signal: Signal) -> Result<()> {
        let action = match signal {
            Signal::CHLD => self.catch(signal).with_flags(ActionFlags::RESTART),
            _ if !self.interactive => SigAction::DEFAULT,
            _ if IGNORED.contains(signal) => SigAction::IGNORE,
            _ if CAUGHT.contains(signal) => self.catch(signal),
            _ => SigAction::DEFAULT,
        };
        sys.sigaction(signal, Some(action)).map(drop)
    }

    fn catch(&self, signal: Signal) -> SigAction {
        let arrived = Arc::clone(&self.arrived);
        let bit = SigSet::of(&[signal]).bits();
        SigAction::handler(move |_, _| {
            arrived.fetch_or(bit, Ordering::Relaxed);
        })
    }
}
