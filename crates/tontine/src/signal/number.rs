//! One signal's number, by name: [`Signal`].

use std::fmt;

/// The greatest number of a signal.
pub(super) const MOST: i32 = 64;

/// A signal's number: 1 to 64.
///
/// ```
/// use tontine::signal::Signal;
///
/// assert_eq!(Signal::TERM.to_string(), "SIGTERM");
/// assert_eq!("SIGRTMIN+3".parse(), Ok(Signal::realtime(3).expect("there are thirty")));
/// assert_eq!("usr1".parse(), Ok(Signal::USR1));
/// ```
///
/// Source: `signal(7)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

/// A constant a standard signal, and their names.
macro_rules! standard {
    ($($name:ident = $number:ident, $doc:literal;)*) => {
        impl Signal {
            $(#[doc = $doc] pub const $name: Self = Self(libc::$number as u8);)*
        }

        pub(super) const NAMES: &[(Signal, &str)] = &[$((Signal::$name, stringify!($name))),*];
    };
}

standard! {
    HUP = SIGHUP, "The terminal has gone, or *read your configuration again*.";
    INT = SIGINT, "Ctrl-C.";
    QUIT = SIGQUIT, "Ctrl-\\: end, and dump core.";
    ILL = SIGILL, "An instruction that there is not.";
    TRAP = SIGTRAP, "A breakpoint.";
    ABRT = SIGABRT, "`abort`.";
    BUS = SIGBUS, "Memory that is not there behind its address.";
    FPE = SIGFPE, "A division by zero.";
    KILL = SIGKILL, "End at once. Nobody can take it.";
    USR1 = SIGUSR1, "The program's own.";
    SEGV = SIGSEGV, "An address that means nothing.";
    USR2 = SIGUSR2, "The program's own.";
    PIPE = SIGPIPE, "Nobody reads what this thread writes.";
    ALRM = SIGALRM, "`alarm`.";
    TERM = SIGTERM, "Please end.";
    STKFLT = SIGSTKFLT, "Unused.";
    CHLD = SIGCHLD, "A child has ended, stopped or gone on.";
    CONT = SIGCONT, "Go on.";
    STOP = SIGSTOP, "Stop. Nobody can take it.";
    TSTP = SIGTSTP, "Ctrl-Z.";
    TTIN = SIGTTIN, "A background process has read its terminal.";
    TTOU = SIGTTOU, "A background process has written to its terminal.";
    URG = SIGURG, "Urgent data on a socket.";
    XCPU = SIGXCPU, "Too much processor time.";
    XFSZ = SIGXFSZ, "This thread writes too large a file.";
    VTALRM = SIGVTALRM, "A timer of processor time.";
    PROF = SIGPROF, "A profiler's timer.";
    WINCH = SIGWINCH, "The terminal has another size.";
    IO = SIGIO, "A descriptor is ready.";
    PWR = SIGPWR, "The power fails.";
    SYS = SIGSYS, "A system call that there is not, or that a filter refuses.";
}

impl Signal {
    /// The signal of that number, where there is one.
    pub fn from_raw(number: i32) -> Option<Self> {
        (1..=MOST).contains(&number).then_some(Self(number as u8))
    }

    /// Real-time signal `SIGRTMIN + number`, where there is one. They queue, instead of merging.
    pub fn realtime(number: u8) -> Option<Self> {
        let raw = libc::SIGRTMIN() + i32::from(number);
        (raw <= libc::SIGRTMAX()).then_some(Self(raw as u8))
    }

    /// Its number.
    pub fn as_raw(self) -> i32 {
        self.0.into()
    }

    /// Whether it queues: a real-time signal.
    pub fn is_realtime(self) -> bool {
        self.as_raw() >= libc::SIGRTMIN()
    }

    /// Why nobody can take it as a value, if that is so.
    pub(super) fn refusal(self) -> Option<&'static str> {
        match self {
            Self::KILL | Self::STOP => Some("no program can block or handle it; leave it out"),
            Self::SEGV | Self::BUS | Self::FPE | Self::ILL | Self::TRAP | Self::SYS => {
                Some("it means the thread whose instruction made it, and no other; leave it out")
            }
            _ if self.is_the_library_s() => {
                Some("it is the C library's own, for its threads; leave it out")
            }
            _ => None,
        }
    }

    /// Whether the C library keeps it for itself.
    pub(super) fn is_the_library_s(self) -> bool {
        (libc::SIGSYS + 1..libc::SIGRTMIN()).contains(&self.as_raw())
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, name)) = NAMES.iter().find(|(signal, _)| signal == self) {
            return write!(f, "SIG{name}");
        }
        match self.as_raw() - libc::SIGRTMIN() {
            0 => f.write_str("SIGRTMIN"),
            above @ 1.. => write!(f, "SIGRTMIN+{above}"),
            _ => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_one_place_may_take_for_all_is_taken() {
        let refused: Vec<i32> = (1..=MOST)
            .filter(|&number| Signal::from_raw(number).is_some_and(|one| one.refusal().is_some()))
            .collect();
        let mut expected = vec![
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGKILL,
            libc::SIGSEGV,
            libc::SIGSTOP,
            libc::SIGSYS,
        ];
        expected.extend(32..libc::SIGRTMIN());
        expected.sort_unstable();
        assert_eq!(refused, expected);
    }
}
