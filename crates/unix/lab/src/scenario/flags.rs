//! The words for the flags of `sigaction`, the options of `wait` and the modes of terminals.

use tontine_unix::{ActionFlags, Modes, WaitOptions};

/// The flags of a handler.
pub(super) const ACTION_FLAGS: &[(&str, ActionFlags)] = &[
    ("nocldstop", ActionFlags::NOCLDSTOP),
    ("nocldwait", ActionFlags::NOCLDWAIT),
    ("siginfo", ActionFlags::SIGINFO),
    ("onstack", ActionFlags::ONSTACK),
    ("restart", ActionFlags::RESTART),
    ("nodefer", ActionFlags::NODEFER),
    ("resethand", ActionFlags::RESETHAND),
];

pub(super) const WAIT_OPTIONS: &[(&str, WaitOptions)] = &[
    ("nohang", WaitOptions::NOHANG),
    ("exited", WaitOptions::EXITED),
    ("stopped", WaitOptions::STOPPED),
    ("continued", WaitOptions::CONTINUED),
    ("nowait", WaitOptions::NOWAIT),
];

/// The modes of a terminal.
pub(super) const MODES: &[(&str, Modes)] = &[
    ("icrnl", Modes::ICRNL),
    ("onlcr", Modes::ONLCR),
    ("isig", Modes::ISIG),
    ("icanon", Modes::ICANON),
    ("echo", Modes::ECHO),
    ("tostop", Modes::TOSTOP),
    ("noflsh", Modes::NOFLSH),
];
