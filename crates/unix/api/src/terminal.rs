//! Descriptors and terminals: [`Fd`], [`Termios`].

use bitflags::bitflags;

/// A descriptor of the calling process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fd(pub i32);

impl Fd {
    /// Standard input.
    pub const STDIN: Self = Self(0);
    /// Standard output.
    pub const STDOUT: Self = Self(1);
    /// Standard error.
    pub const STDERR: Self = Self(2);
}

bitflags! {
    /// The terminal modes that [`Termios`] supports.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Modes: u32 {
        /// `ICRNL`: a carriage return becomes a newline.
        const ICRNL = 1 << 0;
        /// `OPOST` with `ONLCR`: a newline is written as a carriage return and a newline.
        const ONLCR = 1 << 1;
        /// `ISIG`: the INTR, QUIT and SUSP characters generate their signals.
        const ISIG = 1 << 2;
        /// `ICANON`: input is read line by line, and the ERASE and KILL characters edit the line.
        const ICANON = 1 << 3;
        /// `ECHO`: typed characters are shown.
        const ECHO = 1 << 4;
        /// `TOSTOP`: a background process that writes to the terminal receives SIGTTOU.
        const TOSTOP = 1 << 5;
        /// `NOFLSH`: a character that generates a signal does not discard pending input.
        const NOFLSH = 1 << 6;
    }
}

/// The attributes of a terminal, as in `struct termios`. The value 0 disables a control character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termios {
    /// The modes that are set.
    pub modes: Modes,
    /// `VINTR`: sends SIGINT; ^C.
    pub interrupt: u8,
    /// `VQUIT`: sends SIGQUIT; ^\.
    pub quit: u8,
    /// `VSUSP`: sends SIGTSTP; ^Z.
    pub suspend: u8,
    /// `VEOF`: ends the input; ^D.
    pub end: u8,
    /// `VERASE`: erases a character; DEL.
    pub erase: u8,
    /// `VKILL`: erases the line; ^U.
    pub kill: u8,
}

impl Default for Termios {
    fn default() -> Self {
        Self {
            modes: Modes::all().difference(Modes::TOSTOP.union(Modes::NOFLSH)),
            interrupt: 0x03,
            quit: 0x1c,
            suspend: 0x1a,
            end: 0x04,
            erase: 0x7f,
            kill: 0x15,
        }
    }
}
