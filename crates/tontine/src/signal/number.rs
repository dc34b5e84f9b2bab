//! A signal's number and name: [`Signal`].

use std::fmt;

/// The largest signal number.
pub(super) const MAX_SIGNAL: i32 = 64;

/// A signal: a number from 1 to 64.
///
/// A signal prints as its name. It parses from a name, with or without `SIG`, in upper or lower
/// case, or from a number.
///
/// # Examples
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

/// Defines one constant for each standard signal, and the table of their names.
macro_rules! standard {
    ($($name:ident = $number:ident, $doc:literal;)*) => {
        impl Signal {
            $(#[doc = $doc] pub const $name: Self = Self(libc::$number as u8);)*
        }

        pub(super) const NAMES: &[(Signal, &str)] = &[$((Signal::$name, stringify!($name))),*];
    };
}

standard! {
    HUP = SIGHUP, "Hangup of the terminal, or by convention a request to reload the settings.";
    INT = SIGINT, "Interrupt from the terminal (Ctrl-C).";
    QUIT = SIGQUIT, "Quit from the terminal (`Ctrl-\\`), with a core dump.";
    ILL = SIGILL, "Illegal instruction.";
    TRAP = SIGTRAP, "Trace trap or breakpoint.";
    ABRT = SIGABRT, "`abort(3)`.";
    BUS = SIGBUS, "Bus error: the memory behind a mapped address is missing.";
    FPE = SIGFPE, "Arithmetic error, such as an integer division by zero.";
    KILL = SIGKILL, "Kills the process. No program can block or handle it.";
    USR1 = SIGUSR1, "First user-defined signal.";
    SEGV = SIGSEGV, "Invalid memory reference.";
    USR2 = SIGUSR2, "Second user-defined signal.";
    PIPE = SIGPIPE, "This thread wrote to a pipe or socket without a reader.";
    ALRM = SIGALRM, "Timer of `alarm(2)`.";
    TERM = SIGTERM, "Request to terminate.";
    STKFLT = SIGSTKFLT, "Stack fault of a coprocessor; unused.";
    CHLD = SIGCHLD, "A child ended, stopped or was continued.";
    CONT = SIGCONT, "Continues a stopped process.";
    STOP = SIGSTOP, "Stops the process. No program can block or handle it.";
    TSTP = SIGTSTP, "Stop from the terminal (Ctrl-Z).";
    TTIN = SIGTTIN, "A background process read from its terminal.";
    TTOU = SIGTTOU, "A background process wrote to its terminal.";
    URG = SIGURG, "Urgent data on a socket.";
    XCPU = SIGXCPU, "The limit of processor time is exceeded (`RLIMIT_CPU`).";
    XFSZ = SIGXFSZ, "This thread exceeded the limit of a file's size (`RLIMIT_FSIZE`).";
    VTALRM = SIGVTALRM, "Virtual timer: processor time of the process.";
    PROF = SIGPROF, "Profiling timer.";
    WINCH = SIGWINCH, "The terminal's window was resized.";
    IO = SIGIO, "I/O is possible on a descriptor.";
    PWR = SIGPWR, "Power failure.";
    SYS = SIGSYS, "Bad system call; on Linux, a call that a seccomp filter refuses.";
}

impl Signal {
    /// Returns the signal with this number, or `None` if the number is not between 1 and 64.
    pub fn from_raw(number: i32) -> Option<Self> {
        (1..=MAX_SIGNAL).contains(&number).then_some(Self(number as u8))
    }

    /// Returns the real-time signal `SIGRTMIN + number`, or `None` if it exceeds `SIGRTMAX`.
    ///
    /// Real-time signals queue; standard signals coalesce.
    ///
    /// # Examples
    /// ```
    /// use tontine::signal::Signal;
    ///
    /// let signal = Signal::realtime(0).expect("SIGRTMIN");
    /// assert!(signal.is_realtime());
    /// assert_eq!(Signal::realtime(99), None);
    /// ```
    pub fn realtime(number: u8) -> Option<Self> {
        let raw = libc::SIGRTMIN() + i32::from(number);
        (raw <= libc::SIGRTMAX()).then_some(Self(raw as u8))
    }

    /// Returns the number of the signal.
    pub fn as_raw(self) -> i32 {
        self.0.into()
    }

    /// Returns `true` if this is a real-time signal, which queues.
    pub fn is_realtime(self) -> bool {
        self.as_raw() >= libc::SIGRTMIN()
    }

    /// Returns the reason why no program can take the signal as a value, or `None` if a program
    /// can.
    pub(super) fn refusal(self) -> Option<&'static str> {
        match self {
            Self::KILL | Self::STOP => Some("no program can block or handle it; leave it out"),
            Self::SEGV | Self::BUS | Self::FPE | Self::ILL | Self::TRAP | Self::SYS => {
                Some("it is for the thread whose instruction caused it and no other; leave it out")
            }
            _ if self.is_reserved_by_libc() => {
                Some("the C library uses it for its threads; leave it out")
            }
            _ => None,
        }
    }

    /// Returns `true` if the C library reserves the signal.
    pub(super) fn is_reserved_by_libc(self) -> bool {
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
    fn only_synchronous_and_reserved_signals_are_refused() {
        let refused: Vec<i32> = (1..=MAX_SIGNAL)
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
