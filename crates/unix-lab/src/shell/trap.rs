//! The signals that the shell ignores or catches, and the effect of `trap`: [`Traps`].
//!
//! A handler only records that its signal arrived. The shell checks the record between two
//! commands, before a prompt, and while it waits.

use std::collections::BTreeMap;
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
pub(super) struct Traps {
    /// `true` if a user types the commands. Otherwise only SIGCHLD is caught.
    interactive: bool,
    /// Bit n−1 is set once signal n was caught. Handlers run in the shell's only thread.
    arrived: Arc<AtomicU64>,
    /// The commands of `trap`; an empty text for a signal that is ignored.
    commands: BTreeMap<Signal, String>,
}

impl Traps {
    /// Sets the dispositions of a shell.
    ///
    /// # Errors
    /// The errors of [`Sys::sigaction`].
    pub(super) fn begin(sys: &dyn Sys, interactive: bool) -> Result<Self> {
        let traps = Self { interactive, ..Self::default() };
        for signal in traps.own().iter() {
            traps.reset(sys, signal)?;
        }
        Ok(traps)
    }

    /// Runs `trap 'commands' signal`.
    ///
    /// # Errors
    /// The errors of [`Sys::sigaction`].
    pub(super) fn set(&mut self, sys: &dyn Sys, signal: Signal, commands: &str) -> Result<()> {
        let action = if commands.is_empty() { SigAction::IGNORE } else { self.catch(signal) };
        sys.sigaction(signal, Some(action))?;
        self.commands.insert(signal, commands.to_owned());
        Ok(())
    }

    /// Runs `trap - signal`.
    ///
    /// # Errors
    /// The errors of [`Sys::sigaction`].
    pub(super) fn unset(&mut self, sys: &dyn Sys, signal: Signal) -> Result<()> {
        self.reset(sys, signal)?;
        self.commands.remove(&signal);
        Ok(())
    }

    /// Returns the settings, as `trap` accepts them.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |(signal, commands): (&Signal, &String)| {
            format!("trap '{}' {signal}", commands.replace('\'', r"'\''"))
        };
        self.commands.iter().map(line)
    }

    /// Returns the signals that arrived, and the commands for them. Clears the record.
    pub(super) fn due(&self) -> (SigSet, Vec<String>) {
        let arrived = self.arrived.fetch_and(self.hang_up_bits(), Ordering::Relaxed);
        let arrived = SigSet::from_bits(arrived);
        let commands = arrived.iter().filter_map(|signal| self.commands.get(&signal).cloned());
        (arrived, commands.collect())
    }

    /// Returns the signals that have arrived but have not been handled yet, excluding SIGCHLD
    /// unless commands are set for it.
    pub(super) fn arrived(&self) -> SigSet {
        let arrived = SigSet::from_bits(self.arrived.load(Ordering::Relaxed));
        if self.commands.contains_key(&Signal::CHLD) {
            arrived
        } else {
            arrived.without(Signal::CHLD)
        }
    }

    /// Returns `true` if SIGHUP arrived, and no commands are set for it.
    pub(super) fn hung_up(&self) -> bool {
        self.arrived.load(Ordering::Relaxed) & self.hang_up_bits() != 0
    }

    /// Returns the signals that the shell catches. They are blocked while the shell checks whether
    /// to wait.
    pub(super) fn caught(&self) -> SigSet {
        let trapped = self.commands.iter().filter(|(_, commands)| !commands.is_empty());
        let own = self.own().intersection(CAUGHT);
        own.union(trapped.map(|(signal, _)| *signal).collect())
    }

    /// Returns the signals that a child resets to the default: all except the signals that the user
    /// has set to be ignored.
    pub(super) fn child_defaults(&self) -> SigSet {
        let ignored = self.commands.iter().filter(|(_, commands)| commands.is_empty());
        self.own().union(self.caught()).difference(ignored.map(|(signal, _)| *signal).collect())
    }

    /// Returns the signals whose dispositions the shell has changed.
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
