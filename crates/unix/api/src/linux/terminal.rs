//! New terminals, the controlling terminal, and the groups and attributes of terminals.
//!
//! Exec closes all descriptors that are created here. Opening a terminal never makes it the
//! session's controlling terminal; [`set_controlling`] does.

#![allow(unsafe_code, reason = "termios, whose calls take any descriptor")]

use std::os::fd::IntoRawFd;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use super::convert::{check, to_errno};
use super::groups;
use super::table::named;
use crate::errno::Result;
use crate::process::Pid;
use crate::terminal::{Fd, Modes, Termios};

/// Creates a pseudoterminal: `openpty`.
pub(super) fn open_pair() -> Result<(Fd, Fd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controlling = openpt(flags).map_err(to_errno)?;
    grantpt(&controlling).map_err(to_errno)?;
    unlockpt(&controlling).map_err(to_errno)?;
    let terminal = ioctl_tiocgptpeer(&controlling, flags).map_err(to_errno)?;
    Ok((Fd(controlling.into_raw_fd()), Fd(terminal.into_raw_fd())))
}

/// Opens `/dev/tty`.
pub(super) fn open_own() -> Result<Fd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).map_err(to_errno)?;
    Ok(Fd(terminal.into_raw_fd()))
}

/// Makes a terminal the session's controlling terminal (`TIOCSCTTY`). Does not take it from another
/// session.
pub(super) fn set_controlling(terminal: Fd) -> Result<()> {
    // SAFETY: the request takes an integer.
    check(unsafe { libc::ioctl(terminal.0, libc::TIOCSCTTY, 0) }).map(drop)
}

/// Returns the foreground group: `tcgetpgrp`.
pub(super) fn foreground(terminal: Fd) -> Result<Pid> {
    // SAFETY: the call takes an integer.
    check(unsafe { libc::tcgetpgrp(terminal.0) }).map(named)
}

/// Sets the foreground group: `tcsetpgrp`.
pub(super) fn set_foreground(terminal: Fd, group: Pid) -> Result<()> {
    // For a stale group, the call passes a number that no group has, so the kernel reports other
    // errors first, as it would for any group.
    let group = groups::member_of(group).unwrap_or(i32::MAX);
    // SAFETY: the call takes integers.
    check(unsafe { libc::tcsetpgrp(terminal.0, group) }).map(drop)
}

/// Returns the session: `tcgetsid`.
pub(super) fn session(terminal: Fd) -> Result<Pid> {
    // SAFETY: the call takes an integer.
    check(unsafe { libc::tcgetsid(terminal.0) }).map(named)
}

/// Returns the attributes: `tcgetattr`.
pub(super) fn attributes(terminal: Fd) -> Result<Termios> {
    let kernel = kernel_attributes(terminal)?;
    let mut modes = Modes::empty();
    modes.set(Modes::ICRNL, kernel.c_iflag & libc::ICRNL != 0);
    modes.set(Modes::ONLCR, kernel.c_oflag & ONLCR == ONLCR);
    for (mode, flag) in LOCAL {
        modes.set(mode, kernel.c_lflag & flag != 0);
    }
    let character = |at: usize| kernel.c_cc[at];
    Ok(Termios {
        modes,
        interrupt: character(libc::VINTR),
        quit: character(libc::VQUIT),
        suspend: character(libc::VSUSP),
        end: character(libc::VEOF),
        erase: character(libc::VERASE),
        kill: character(libc::VKILL),
    })
}

/// Sets the attributes immediately: `tcsetattr`. Leaves settings that [`Termios`] lacks unchanged.
pub(super) fn set_attributes(terminal: Fd, termios: &Termios) -> Result<()> {
    let mut kernel = kernel_attributes(terminal)?;
    put(&mut kernel.c_iflag, libc::ICRNL, termios.modes.contains(Modes::ICRNL));
    if termios.modes.contains(Modes::ONLCR) {
        kernel.c_oflag |= ONLCR;
    } else {
        kernel.c_oflag &= !libc::ONLCR;
    }
    for (mode, flag) in LOCAL {
        put(&mut kernel.c_lflag, flag, termios.modes.contains(mode));
    }
    let characters = [
        (libc::VINTR, termios.interrupt),
        (libc::VQUIT, termios.quit),
        (libc::VSUSP, termios.suspend),
        (libc::VEOF, termios.end),
        (libc::VERASE, termios.erase),
        (libc::VKILL, termios.kill),
    ];
    for (at, character) in characters {
        kernel.c_cc[at] = character;
    }
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::tcsetattr(terminal.0, libc::TCSANOW, &raw const kernel) }).map(drop)
}

const ONLCR: libc::tcflag_t = libc::OPOST | libc::ONLCR;

const LOCAL: [(Modes, libc::tcflag_t); 5] = [
    (Modes::ISIG, libc::ISIG),
    (Modes::ICANON, libc::ICANON),
    (Modes::ECHO, libc::ECHO),
    (Modes::TOSTOP, libc::TOSTOP),
    (Modes::NOFLSH, libc::NOFLSH),
];

fn put(flags: &mut libc::tcflag_t, flag: libc::tcflag_t, on: bool) {
    *flags = if on { *flags | flag } else { *flags & !flag };
}

fn kernel_attributes(terminal: Fd) -> Result<libc::termios> {
    // SAFETY: a termios is plain integers, and outlives the call.
    unsafe {
        let mut kernel: libc::termios = std::mem::zeroed();
        check(libc::tcgetattr(terminal.0, &raw mut kernel))?;
        Ok(kernel)
    }
}
