//! System calls on terminals, and job control (§2.1.3): the check that a process may read, write
//! or change a terminal, and the signals for a rejected attempt ([`Background`]).

use std::sync::Arc;

use tontine_unix::{Errno, Fd, Modes, Pid, Result, SigInfo, Signal, Termios};

use crate::executor;
use crate::kernel::Kernel;
use crate::kernel::call::{Caller, Partial, Unfinished};
use crate::kernel::descriptors::FileEnd;
use crate::kernel::line::Read;
use crate::kernel::session::{Pgrp, Session, Terminal};
use crate::kernel::thread::AstFlags;

/// The decision whether a call may continue.
enum Background {
    /// The caller is in the foreground, or may act as if it were.
    Allowed,
    /// The caller has been sent a signal, which it must handle first.
    Signalled,
}

impl Caller<'_> {
    pub(in crate::kernel) fn open_pty(&self) -> Result<(Fd, Fd)> {
        self.guarded(|| {
            let terminal = Terminal::new(self.kernel.instance());
            self.add_two(FileEnd::Controlling(Arc::clone(&terminal)), FileEnd::Terminal(terminal))
        })
    }

    pub(in crate::kernel) fn open_controlling(&self) -> Result<Fd> {
        self.guarded(|| {
            self.check_space()?;
            let session = self.own_session()?;
            let terminal = session.state.lock(&self.kernel.locks).terminal.clone();
            let own = terminal.filter(|terminal| self.proc.has_terminal(terminal.instance()));
            self.add(FileEnd::Terminal(own.ok_or(Errno::ENXIO)?))
        })
    }

    pub(in crate::kernel) fn take_terminal(&self, descriptor: Fd) -> Result<()> {
        self.guarded(|| {
            let (terminal, _) = self.terminal(descriptor)?;
            let group = self.own_group()?;
            if group.session.id.number() != self.proc.number() {
                return Err(Errno::EPERM);
            }
            terminal.become_controlling(self.kernel, self.proc, &group)
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
            // The caller would take `EIO` to mean that this call finds no terminal.
            let not_here = |stop| match stop {
                Unfinished::Errno(Errno::EIO) => Unfinished::Errno(Errno::ENOTTY),
                stop => stop,
            };
            let found = self.terminal(descriptor).map_err(Unfinished::from);
            let (terminal, _) = found.map_err(not_here)?;
            let background = self.check_background(&terminal, Signal::TTOU);
            if let Background::Signalled = background.map_err(not_here)? {
                return Err(Unfinished::Interrupted);
            }
            if group.number() < 0 {
                return Err(Errno::EINVAL.into());
            }
            let session = self.own_session()?;
            let own = session.state.lock(&self.kernel.locks).terminal.clone();
            if !own.is_some_and(|own| Arc::ptr_eq(&own, &terminal)) {
                return Err(Errno::ENOTTY.into());
            }
            let found = self.kernel.find_group(group);
            let held = match &found {
                Some(group) if Arc::ptr_eq(&group.session, &session) => self.kernel.hold(group),
                Some(_) => return Err(Errno::EPERM.into()),
                None => self.kernel.hold_unmade(group, &session)?,
            };
            let before = terminal.state.lock(&self.kernel.locks).foreground.replace(held);
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
                return Err(Unfinished::Interrupted);
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
    ) -> Partial<usize> {
        if let Background::Signalled = self.check_background(terminal, Signal::TTIN)? {
            return Err(Unfinished::Interrupted);
        }
        let mut slept = false;
        loop {
            {
                let mut state = terminal.state.lock(&self.kernel.locks);
                match state.line.read(buffer) {
                    Read::Bytes(n) => {
                        state.sleepers.wake();
                        return Ok(n);
                    }
                    // As on Linux, a reader that slept while the user hung up receives the error. A
                    // later reader receives end-of-file.
                    Read::End if slept && state.line.is_hung_up() => return Err(Errno::EIO.into()),
                    Read::End => return Ok(0),
                    Read::Nothing => state.sleepers.add(executor::current()),
                }
            }
            self.sleep_once()?;
            slept = true;
        }
    }

    pub(in crate::kernel) fn write_terminal(
        &self,
        terminal: &Arc<Terminal>,
        bytes: &[u8],
        written: &mut usize,
    ) -> Partial<usize> {
        let modes = terminal.state.lock(&self.kernel.locks).line.termios().modes;
        if modes.contains(Modes::TOSTOP)
            && let Background::Signalled = self.check_background(terminal, Signal::TTOU)?
        {
            return Err(Unfinished::Interrupted);
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
            if wrote == 0 && !self.sleep_for_space(*written)? {
                break;
            }
        }
        Ok(*written)
    }

    /// Writes input at the controlling end. Sleeps if there is no space.
    pub(in crate::kernel) fn write_input(
        &self,
        terminal: &Terminal,
        bytes: &[u8],
        written: &mut usize,
    ) -> Partial<usize> {
        while *written < bytes.len() {
            let taken = terminal.input(self.kernel, &bytes[*written..], executor::current())?;
            *written += taken;
            if taken == 0 && !self.sleep_for_space(*written)? {
                break;
            }
        }
        Ok(*written)
    }

    pub(in crate::kernel) fn read_output(
        &self,
        terminal: &Terminal,
        buffer: &mut [u8],
    ) -> Partial<usize> {
        loop {
            match terminal.output(self.kernel, buffer, Some(executor::current())) {
                None => return Err(Errno::EIO.into()),
                Some(0) if !buffer.is_empty() => self.sleep_once()?,
                Some(n) => return Ok(n),
            }
        }
    }

    /// Applies job control to a call that a foreground process may make: a background process gets
    /// `signal`, and so does its group. Fails with `EIO` if its group is orphaned, or if it reads
    /// and blocks or ignores SIGTTIN.
    fn check_background(&self, terminal: &Arc<Terminal>, signal: Signal) -> Partial<Background> {
        let kernel = self.kernel;
        let mut group = self.own_group()?;
        let foreground = {
            let state = terminal.state.lock(&kernel.locks);
            let own =
                state.session.as_ref().is_some_and(|session| Arc::ptr_eq(session, &group.session));
            if own && self.proc.has_terminal(terminal.instance()) {
                state.foreground.as_ref().map(|held| Arc::clone(held.group()))
            } else {
                None
            }
        };
        let Some(foreground) = foreground else { return Ok(Background::Allowed) };
        // The numbers are compared, because the foreground group may have been emptied and created
        // again.
        if foreground.id == group.id {
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
                // Another thread may have moved the process since its group was looked up. The move
                // may have orphaned the old group; in that case the new group counts.
                while group.is_orphaned() {
                    let now = self.own_group()?;
                    if Arc::ptr_eq(&now, &group) {
                        return Err(Errno::EIO.into());
                    }
                    group = now;
                }
                let group = kernel.refer(&group);
                // Signals the group, and also this process in whichever group it is by then
                // (§7.2.3).
                kernel.pgsignal_self(&group, self.proc, SigInfo::kernel(signal));
                kernel.await_generated();
                // As on Linux, the caller itself checks for signals, even if another thread was
                // chosen to deliver this one. Otherwise the caller could repeat the call
                // indefinitely before that thread has taken the signal.
                self.thread.demand(AstFlags::SIGNAL);
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

    /// Returns the terminal, and `true` if the descriptor refers to its controlling end. Fails with
    /// `EIO` if the terminal is hung up.
    fn terminal(&self, descriptor: Fd) -> Result<(Arc<Terminal>, bool)> {
        let file = self.file(descriptor)?;
        let (terminal, controlling) = file.terminal()?;
        let hung_up = terminal.state.lock(&self.kernel.locks).line.is_hung_up();
        if hung_up { Err(Errno::EIO) } else { Ok((Arc::clone(terminal), controlling)) }
    }

    /// Returns the terminal, which must be the caller's own unless the descriptor refers to its
    /// controlling end.
    fn own_terminal(&self, descriptor: Fd) -> Result<Arc<Terminal>> {
        let (terminal, controlling) = self.terminal(descriptor)?;
        let session = self.own_session()?;
        let own = self.proc.has_terminal(terminal.instance()) && {
            let state = terminal.state.lock(&self.kernel.locks);
            state.session.as_ref().is_some_and(|its| Arc::ptr_eq(its, &session))
        };
        if own || controlling {
            return Ok(terminal);
        }
        Err(Errno::ENOTTY)
    }
}
