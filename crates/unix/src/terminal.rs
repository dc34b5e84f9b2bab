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
    /// The modes of a terminal that are known here.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Modes: u32 {
        /// `ICRNL`: a carriage return becomes a newline.
        const ICRNL = 1 << 0;
        /// `OPOST` with `ONLCR`: a newline is written as carriage return and newline.
        const ONLCR = 1 << 1;
        /// `ISIG`: the characters that make signals do.
        const ISIG = 1 << 2;
        /// `ICANON`: lines, with erase and kill.
        const ICANON = 1 << 3;
        /// `ECHO`: what is typed is shown.
        const ECHO = 1 << 4;
        /// `TOSTOP`: who writes in the background gets SIGTTOU.
        const TOSTOP = 1 << 5;
        /// `NOFLSH`: a character that makes a signal throws no input away.
        const NOFLSH = 1 << 6;
    }
}

/// How a terminal behaves, as `struct termios` has it. A character of 0 is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termios {
    /// What is on.
    pub modes: Modes,
    /// `VINTR`: SIGINT; ^C.
    pub interrupt: u8,
    /// `VQUIT`: SIGQUIT; ^\.
    pub quit: u8,
    /// `VSUSP`: SIGTSTP; ^Z.
    pub suspend: u8,
    /// `VEOF`: the end of input; ^D.
    pub end: u8,
    /// `VERASE`: takes a character back; delete.
    pub erase: u8,
    /// `VKILL`: takes the line back; ^U.
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
