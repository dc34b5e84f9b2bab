//! A terminal's session (§2.1.4) and its foreground group. [`calls`](super::calls)
//! implements the system calls and job control.

use std::sync::Arc;

use tontine_unix::{Errno, Result, SigInfo, Signal};

use crate::executor::{self, At, Fiber};
use crate::kernel::Kernel;
use crate::kernel::line::Effects;
use crate::kernel::pgrp::PgrpRef;
use crate::kernel::proc::Proc;
use crate::kernel::session::{Pgrp, Terminal, TerminalState};
use crate::lock::SimpleLock;

impl Terminal {
    pub(in crate::kernel) fn new(instance: u32) -> Arc<Self> {
        Arc::new(Self { state: SimpleLock::new(instance, TerminalState::default()) })
    }

    /// Returns the instance number of the terminal's lock.
    pub(in crate::kernel) fn instance(&self) -> u32 {
        self.state.instance()
    }

    /// Makes this terminal the controlling terminal of a session and its leader, with this group in
    /// the foreground, unless the terminal belongs to another session or the session has another
    /// terminal. Fails with `EPERM`, or with `EIO` if the terminal is hung up.
    pub(in crate::kernel) fn become_controlling(
        self: &Arc<Self>,
        kernel: &Kernel,
        leader: &Proc,
        group: &Arc<Pgrp>,
    ) -> Result<()> {
        let mut state = self.state.lock(&kernel.locks);
        let session = Arc::clone(&group.session);
        let mut own = session.state.lock(&kernel.locks);
        if state.line.is_hung_up() {
            return Err(Errno::EIO);
        }
        match (&state.session, &own.terminal) {
            (Some(its), _) if Arc::ptr_eq(its, &session) => return Ok(()),
            (None, None) => {}
            _ => return Err(Errno::EPERM),
        }
        own.terminal = Some(Arc::clone(self));
        // The old terminal was hung up. As on Linux, its foreground group receives no further
        // signals for that hang-up.
        let left = own.left.take();
        leader.set_terminal(self.instance());
        drop(own);
        state.session = Some(session);
        state.foreground = Some(kernel.hold(group));
        drop(state);
        drop(left.map(|left| left.refer(kernel)));
        Ok(())
    }

    /// Types bytes. Returns the number of bytes for which there was space. If there was no space,
    /// `sleeper` is woken when there may be some. Fails with `EIO` if the terminal is hung up.
    pub(in crate::kernel) fn input(
        &self,
        kernel: &Kernel,
        bytes: &[u8],
        sleeper: Fiber,
    ) -> Result<usize> {
        let (effects, group): (Effects, Option<PgrpRef<'_>>) = {
            let mut state = self.state.lock(&kernel.locks);
            if state.line.is_hung_up() {
                return Err(Errno::EIO);
            }
            let effects = state.line.input(bytes);
            state.sleepers.wake();
            if effects.taken == 0 {
                state.sleepers.add(sleeper);
            }
            (effects, state.foreground.as_ref().map(|held| kernel.refer(held.group())))
        };
        let group = match group {
            Some(held) if !effects.signals.is_empty() => kernel.made_again(held),
            held => held,
        };
        if let Some(group) = group {
            for signal in effects.signals.iter() {
                kernel.pgsignal(&group, SigInfo::kernel(signal));
            }
            kernel.await_generated();
        }
        Ok(effects.taken)
    }

    /// Takes output. Returns `None` if there is no output and no process is left that could write
    /// any.
    pub(in crate::kernel) fn output(
        &self,
        kernel: &Kernel,
        buffer: &mut [u8],
        sleeper: Option<Fiber>,
    ) -> Option<usize> {
        let mut state = self.state.lock(&kernel.locks);
        let n = state.line.take_output(buffer);
        if n > 0 {
            state.sleepers.wake();
            return Some(n);
        }
        if let Some(sleeper) = sleeper {
            state.sleepers.add(sleeper);
        }
        (state.open > 0).then_some(0)
    }

    /// Increments the count of open files for the end that processes use.
    pub(in crate::kernel) fn open(&self, kernel: &Kernel) {
        self.state.lock(&kernel.locks).open += 1;
    }

    /// Decrements the count of open files for the end that processes use.
    pub(in crate::kernel) fn close(&self, kernel: &Kernel) {
        let mut state = self.state.lock(&kernel.locks);
        state.open -= 1;
        state.sleepers.wake();
    }

    /// Closes the controlling end: readers reach end-of-file, and the session's leader is
    /// signalled. The foreground group is signalled when the leader exits.
    pub(in crate::kernel) fn hang_up(&self, kernel: &Kernel) {
        let (session, foreground) = {
            let mut state = self.state.lock(&kernel.locks);
            state.line.hang_up();
            state.sleepers.wake();
            (state.session.take(), state.foreground.take())
        };
        let Some(session) = session else { return };
        {
            let mut own = session.state.lock(&kernel.locks);
            own.terminal = None;
            own.left = foreground;
        }
        if let Some(leader) = kernel.find(session.id) {
            kernel.psignal_found(&leader, SigInfo::kernel(Signal::HUP));
            kernel.psignal_found(&leader, SigInfo::kernel(Signal::CONT));
            may_sleep();
        }
    }

    /// Detaches the terminal from its session, whose leader is exiting, and signals the foreground
    /// group.
    fn disown(&self, kernel: &Kernel) {
        let foreground = {
            let mut state = self.state.lock(&kernel.locks);
            state.session = None;
            state.foreground.take()
        };
        if let Some(group) = foreground.and_then(|held| kernel.made_again(held.refer(kernel))) {
            kernel.pgsignal_inthread(&group, SigInfo::kernel(Signal::HUP));
            may_sleep();
        }
    }
}

impl Kernel {
    /// Releases the terminal of a session leader that exits.
    pub(in crate::kernel) fn leave_session(&self, proc: &Proc) {
        if proc.ids().session != proc.number() {
            return;
        }
        let group = proc.lock(&self.locks).pgrp.clone();
        let Some(session) = group.map(|group| Arc::clone(&group.session)) else { return };
        let (terminal, left) = {
            let mut state = session.state.lock(&self.locks);
            (state.terminal.take(), state.left.take())
        };
        if let Some(terminal) = terminal {
            terminal.disown(self);
        }
        if let Some(group) = left.and_then(|held| self.made_again(held.refer(self))) {
            self.pgsignal_inthread(&group, SigInfo::kernel(Signal::HUP));
            self.pgsignal_inthread(&group, SigInfo::kernel(Signal::CONT));
            may_sleep();
        }
    }
}

/// Marks a point at which a process that was hung up may run before the caller continues, even if
/// calls are single steps, because on Linux the caller sleeps until the terminal is unused.
fn may_sleep() {
    executor::point(At::Within);
}
