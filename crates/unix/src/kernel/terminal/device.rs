//! A terminal among processes: [`Terminal`], its session and its foreground group, and job control.

use std::sync::Arc;

use super::line::{Effects, Line, Read};
use crate::action::SignalInfo;
use crate::errno::{Errno, Result};
use crate::executor::{self, Fiber};
use crate::kernel::Kernel;
use crate::kernel::call::{Call, Stop};
use crate::kernel::files::End;
use crate::kernel::pgrp::{HeldPgrp, Pgrp, PgrpRef, Session};
use crate::kernel::proc::Proc;
use crate::kernel::sleepers::Sleepers;
use crate::lock::SimpleLock;
use crate::lock::lock_order::TLock;
use crate::mutation::Mutation;
use crate::process::Pid;
use crate::signal::Signal;
use crate::terminal::{Fd, Modes, Termios};

/// A terminal.
#[derive(Debug)]
pub(in crate::kernel) struct Terminal {
    /// `t_lock`.
    state: SimpleLock<TLock, State>,
}

#[derive(Debug, Default)]
struct State {
    line: Line,
    session: Option<Arc<Session>>,
    /// The foreground process group.
    foreground: Option<HeldPgrp>,
    /// Open files for the end where processes sit.
    open: u32,
    /// Those that wait for it to change, at either end.
    sleepers: Sleepers,
}

/// Whether a call is to go on.
enum Background {
    /// The caller is in the foreground, or may act as if it were.
    Allowed,
    /// It has been sent a signal, which it sees to first.
    Signalled,
}

impl Terminal {
    pub(in crate::kernel) fn new(instance: u32) -> Arc<Self> {
        Arc::new(Self { state: SimpleLock::new(instance, State::default()) })
    }

    /// Makes it a session's, with this group in the foreground, unless it is somebody's or the
    /// session has one.
    ///
    /// # Errors
    /// `EPERM`; `EIO`: it is hung up.
    pub(in crate::kernel) fn become_controlling(
        self: &Arc<Self>,
        kernel: &Kernel,
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
        drop(own);
        state.session = Some(session);
        state.foreground = Some(kernel.hold(group));
        Ok(())
    }

    /// Somebody types; says how many bytes there was room for. Where there was none, `sleeper` is
    /// woken when there may be some.
    ///
    /// # Errors
    /// `EIO`: it is hung up.
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
        if let Some(group) = group {
            for signal in effects.signals.iter() {
                kernel.pgsignal(&group, SignalInfo::kernel(signal));
            }
            kernel.await_generated();
        }
        Ok(effects.taken)
    }

    /// Takes what is to be seen; `None` where there is nothing and nobody who could write.
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

    /// One more file for the end where processes sit.
    pub(in crate::kernel) fn open(&self, kernel: &Kernel) {
        self.state.lock(&kernel.locks).open += 1;
    }

    /// One less.
    pub(in crate::kernel) fn close(&self, kernel: &Kernel) {
        let mut state = self.state.lock(&kernel.locks);
        state.open -= 1;
        state.sleepers.wake();
    }

    /// The controlling end is closed: who reads finds the end, and the session's leader is told.
    /// Its foreground group is told when the leader exits.
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
            kernel.psignal_found(&leader, SignalInfo::kernel(Signal::HUP));
            kernel.psignal_found(&leader, SignalInfo::kernel(Signal::CONT));
        }
    }

    /// Its session's leader exits: it is nobody's, and its foreground group is told.
    fn disown(&self, kernel: &Kernel) {
        let foreground = {
            let mut state = self.state.lock(&kernel.locks);
            state.session = None;
            state.foreground.take()
        };
        if let Some(held) = foreground {
            let group = held.refer(kernel);
            kernel.pgsignal_inthread(&group, SignalInfo::kernel(Signal::HUP));
        }
    }
}

impl Call<'_> {
    pub(in crate::kernel) fn open_pty(&self) -> Result<(Fd, Fd)> {
        self.guarded(|| {
            let terminal = Terminal::new(self.kernel.instance());
            self.add_two(End::Controlling(Arc::clone(&terminal)), End::Terminal(terminal))
        })
    }

    pub(in crate::kernel) fn open_controlling(&self) -> Result<Fd> {
        self.guarded(|| {
            self.check_room()?;
            let session = self.own_session()?;
            let terminal = session.state.lock(&self.kernel.locks).terminal.clone();
            self.add(End::Terminal(terminal.ok_or(Errno::ENXIO)?))
        })
    }

    pub(in crate::kernel) fn take_terminal(&self, descriptor: Fd) -> Result<()> {
        self.guarded(|| {
            let (terminal, _) = self.terminal(descriptor)?;
            let group = self.own_group()?;
            if group.session.id.number() != self.proc.number() {
                return Err(Errno::EPERM);
            }
            terminal.become_controlling(self.kernel, &group)
        })
    }

    pub(in crate::kernel) fn foreground(&self, descriptor: Fd) -> Result<Pid> {
        self.guarded(|| {
            let terminal = self.own_terminal(descriptor)?;
            let state = terminal.state.lock(&self.kernel.locks);
            Ok(state.foreground.as_ref().map_or(Pid::number_only(0), |held| held.group().id))
        })
    }

    pub(in crate::kernel) fn set_foreground(&self, descriptor: Fd, group: Pid) -> Result<()> {
        self.guarded_stops(|| {
            // From where it can do nothing the terminal is as good as none.
            let not_here = |stop| match stop {
                Stop::Errno(Errno::EIO) => Stop::Errno(Errno::ENOTTY),
                stop => stop,
            };
            let found = self.terminal(descriptor).map_err(Stop::from);
            let (terminal, _) = found.map_err(not_here)?;
            let background = self.check_background(&terminal, Signal::TTOU);
            if let Background::Signalled = background.map_err(not_here)? {
                return Err(Stop::Interrupted);
            }
            if group.number() < 0 {
                return Err(Errno::EINVAL.into());
            }
            let session = self.own_session()?;
            let own = session.state.lock(&self.kernel.locks).terminal.clone();
            if !own.is_some_and(|own| Arc::ptr_eq(&own, &terminal)) {
                return Err(Errno::ENOTTY.into());
            }
            // Let go after the lock.
            let found;
            let coarse = self.kernel.coarse();
            found = self.kernel.find_group(group);
            let Some(group) = &found else {
                let somebody = self.kernel.find(group).is_some();
                return Err(if somebody { Errno::EPERM } else { Errno::ESRCH }.into());
            };
            if !Arc::ptr_eq(&group.session, &session) {
                return Err(Errno::EPERM.into());
            }
            let before = {
                let mut state = terminal.state.lock(&self.kernel.locks);
                state.foreground.replace(self.kernel.hold(group))
            };
            drop(coarse);
            drop(before.map(|held| held.refer(self.kernel)));
            Ok(())
        })
    }

    pub(in crate::kernel) fn terminal_session(&self, descriptor: Fd) -> Result<Pid> {
        self.guarded(|| {
            let terminal = self.own_terminal(descriptor)?;
            let state = terminal.state.lock(&self.kernel.locks);
            state.session.as_ref().map(|session| session.id).ok_or(Errno::ENOTTY)
        })
    }

    pub(in crate::kernel) fn termios(&self, descriptor: Fd) -> Result<Termios> {
        self.guarded(|| {
            let (terminal, _) = self.terminal(descriptor)?;
            let state = terminal.state.lock(&self.kernel.locks);
            Ok(state.line.termios())
        })
    }

    pub(in crate::kernel) fn set_termios(&self, descriptor: Fd, termios: Termios) -> Result<()> {
        self.guarded_stops(|| {
            let (terminal, _) = self.terminal(descriptor)?;
            if let Background::Signalled = self.check_background(&terminal, Signal::TTOU)? {
                return Err(Stop::Interrupted);
            }
            let mut state = terminal.state.lock(&self.kernel.locks);
            state.line.set_termios(termios);
            state.sleepers.wake();
            Ok(())
        })
    }

    pub(in crate::kernel) fn read_terminal(
        &self,
        terminal: &Arc<Terminal>,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, Stop> {
        if let Background::Signalled = self.check_background(terminal, Signal::TTIN)? {
            return Err(Stop::Interrupted);
        }
        loop {
            {
                let mut state = terminal.state.lock(&self.kernel.locks);
                match state.line.read(buffer) {
                    Read::Bytes(n) => {
                        state.sleepers.wake();
                        return Ok(n);
                    }
                    Read::End => return Ok(0),
                    Read::Nothing => state.sleepers.add(executor::current()),
                }
            }
            self.nap()?;
        }
    }

    pub(in crate::kernel) fn write_terminal(
        &self,
        terminal: &Arc<Terminal>,
        bytes: &[u8],
        written: &mut usize,
    ) -> std::result::Result<usize, Stop> {
        let stops = terminal.state.lock(&self.kernel.locks).line.termios().modes;
        if stops.contains(Modes::TOSTOP)
            && let Background::Signalled = self.check_background(terminal, Signal::TTOU)?
        {
            return Err(Stop::Interrupted);
        }
        while *written < bytes.len() {
            let wrote = {
                let mut state = terminal.state.lock(&self.kernel.locks);
                let wrote = state.line.output(&bytes[*written..])?;
                if wrote == 0 {
                    state.sleepers.add(executor::current());
                } else {
                    state.sleepers.wake();
                }
                wrote
            };
            *written += wrote;
            if wrote == 0
                && let Err(stop) = self.nap()
            {
                if *written > 0 {
                    break;
                }
                return Err(stop);
            }
        }
        Ok(*written)
    }

    /// Types at the controlling end; sleeps where there is no room.
    pub(in crate::kernel) fn write_input(
        &self,
        terminal: &Terminal,
        bytes: &[u8],
        written: &mut usize,
    ) -> std::result::Result<usize, Stop> {
        while *written < bytes.len() {
            let taken = terminal.input(self.kernel, &bytes[*written..], executor::current())?;
            *written += taken;
            if taken == 0
                && let Err(stop) = self.nap()
            {
                if *written > 0 {
                    break;
                }
                return Err(stop);
            }
        }
        Ok(*written)
    }

    pub(in crate::kernel) fn read_output(
        &self,
        terminal: &Terminal,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, Stop> {
        loop {
            match terminal.output(self.kernel, buffer, Some(executor::current())) {
                None => return Err(Errno::EIO.into()),
                Some(0) if !buffer.is_empty() => self.nap()?,
                Some(n) => return Ok(n),
            }
        }
    }

    /// What job control says to a call that a foreground process may make: a background process
    /// gets `signal`, and so does its group.
    ///
    /// # Errors
    /// `EIO`: its group is orphaned, or it reads and blocks or ignores SIGTTIN.
    fn check_background(
        &self,
        terminal: &Arc<Terminal>,
        signal: Signal,
    ) -> std::result::Result<Background, Stop> {
        let kernel = self.kernel;
        let mut group = self.own_group()?;
        let foreground = {
            let state = terminal.state.lock(&kernel.locks);
            let own =
                state.session.as_ref().is_some_and(|session| Arc::ptr_eq(session, &group.session));
            if own { state.foreground.as_ref().map(|held| Arc::clone(held.group())) } else { None }
        };
        let Some(foreground) = foreground else { return Ok(Background::Allowed) };
        if Arc::ptr_eq(&foreground, &group) {
            return Ok(Background::Allowed);
        }
        let unmoved = {
            let state = self.state();
            self.thread.mask().contains(signal) || Kernel::ignores(&state, signal)
        };
        match (unmoved, signal) {
            (true, Signal::TTIN) => Err(Errno::EIO.into()),
            (true, _) => Ok(Background::Allowed),
            (false, _) => {
                // A group that another thread has left for this process looks orphaned.
                while group.is_orphaned() {
                    let now = self.own_group()?;
                    if Arc::ptr_eq(&now, &group) {
                        return Err(Errno::EIO.into());
                    }
                    group = now;
                }
                let group = kernel.refer(&group);
                // The group, and this process whatever its group is by then (§7.2.3).
                if kernel.mutates(Mutation::SelfUnnamed) {
                    kernel.pgsignal(&group, SignalInfo::kernel(signal));
                } else {
                    kernel.pgsignal_self(&group, self.proc, SignalInfo::kernel(signal));
                }
                kernel.await_generated();
                Ok(Background::Signalled)
            }
        }
    }

    fn own_group(&self) -> Result<Arc<Pgrp>> {
        self.state().pgrp.clone().ok_or(Errno::ESRCH)
    }

    fn own_session(&self) -> Result<Arc<Session>> {
        self.own_group().map(|group| Arc::clone(&group.session))
    }

    /// The terminal, and whether the descriptor is for its controlling end.
    ///
    /// # Errors
    /// `EIO`: it is hung up.
    fn terminal(&self, descriptor: Fd) -> Result<(Arc<Terminal>, bool)> {
        let file = self.file(descriptor)?;
        let (terminal, controlling) = file.terminal()?;
        let hung_up = terminal.state.lock(&self.kernel.locks).line.is_hung_up();
        if hung_up { Err(Errno::EIO) } else { Ok((Arc::clone(terminal), controlling)) }
    }

    /// The terminal, which has to be the caller's session's unless it is seen from its controlling
    /// end.
    fn own_terminal(&self, descriptor: Fd) -> Result<Arc<Terminal>> {
        let (terminal, controlling) = self.terminal(descriptor)?;
        let session = self.own_session()?;
        let own = {
            let state = terminal.state.lock(&self.kernel.locks);
            state.session.as_ref().is_some_and(|its| Arc::ptr_eq(its, &session))
        };
        if own || controlling { Ok(terminal) } else { Err(Errno::ENOTTY) }
    }
}

impl Kernel {
    /// A session leader that exits leaves its terminal behind.
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
        if let Some(held) = left {
            let group = held.refer(self);
            self.pgsignal_inthread(&group, SignalInfo::kernel(Signal::HUP));
            self.pgsignal_inthread(&group, SignalInfo::kernel(Signal::CONT));
        }
    }
}
