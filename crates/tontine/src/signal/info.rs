//! A signal that was taken: [`SignalInfo`], and the state of a child that it reports:
//! [`ChildStatus`].
//!
//! [`SignalInfo::to_bytes`] returns its plain-data form, for mailboxes and files.

use super::error::SignalError;
use super::number::Signal;

/// A signal that was taken, with the information that the kernel reports about it.
///
/// # Examples
/// ```
/// use tontine::signal::{Blocked, Signal};
///
/// let blocked = Blocked::new(Signal::USR1)?;
/// # unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
/// // … another process sends SIGUSR1 …
/// let info = blocked.wait(None)?.expect("without a timeout there is one");
/// assert_eq!(info.signal(), Signal::USR1);
/// println!("sent by pid {:?} of uid {:?}", info.pid(), info.uid());
/// # assert_eq!(info.pid(), Some(std::process::id()));
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
///
/// Source: `sigaction(2)` on `siginfo_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalInfo {
    pub(super) signal: Signal,
    pub(super) code: i32,
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// The sender's value, as wide as a pointer.
    pub(super) value: u64,
    pub(super) status: i32,
    pub(super) coalesced: u32,
}

/// The change of a child's state that a SIGCHLD reports: [`SignalInfo::child_status`].
///
/// Source: `sigaction(2)` on `CLD_EXITED` and the other codes of SIGCHLD.
///
/// # Examples
/// ```
/// use tontine::signal::ChildStatus;
///
/// fn succeeded(status: ChildStatus) -> bool {
///     matches!(status, ChildStatus::Exited(0))
/// }
/// assert!(!succeeded(ChildStatus::Exited(1)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildStatus {
    /// The child exited, with this status.
    Exited(i32),
    /// A signal killed the child.
    Killed {
        /// The signal.
        signal: Signal,
        /// The child dumped core.
        core_dumped: bool,
    },
    /// This signal stopped the child, or a trap stopped it while it was traced.
    Stopped(Signal),
    /// The child was continued.
    Continued,
}

/// The version of the bytes of [`SignalInfo::to_bytes`].
const VERSION: u8 = 1;

impl SignalInfo {
    /// Returns the signal.
    #[inline]
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// Returns the number that says why the signal was sent, `si_code`: `SI_USER` (0) for `kill`,
    /// `SI_QUEUE` for `sigqueue`, and others.
    #[inline]
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Returns the process id of the sender, or of the child that a SIGCHLD reports. The id is 0
    /// for a process of another PID namespace.
    ///
    /// Returns `None` if a timer, the kernel or a descriptor sent the signal instead of a process.
    /// For `kill` and for the end of a child, the kernel provides the id. For `sigqueue`, the
    /// sender chooses the id, which is therefore an untrusted value.
    pub fn pid(&self) -> Option<u32> {
        self.has_sender().then_some(self.pid)
    }

    /// Returns the real user id of the process whose id [`SignalInfo::pid`] returns.
    pub fn uid(&self) -> Option<u32> {
        self.has_sender().then_some(self.uid)
    }

    /// Returns the number that came with the signal from `sigqueue`, a timer or a message queue.
    pub fn value(&self) -> Option<i32> {
        // `sival_int` and `sival_ptr` begin at the same byte.
        let bytes = (self.value as usize).to_ne_bytes();
        let (first, _) = bytes.split_first_chunk().expect("a pointer has four bytes");
        self.has_value().then_some(i32::from_ne_bytes(*first))
    }

    /// Returns the value that came with the signal, like [`SignalInfo::value`], but at the full
    /// width of a pointer. The upper bytes are valid only if the sender set them.
    pub fn wide_value(&self) -> Option<u64> {
        self.has_value().then_some(self.value)
    }

    /// Returns the change of the child's state, if this is a SIGCHLD for which the kernel reports
    /// the change.
    ///
    /// # Examples
    /// ```
    /// use std::process::Command;
    ///
    /// use tontine::signal::{Blocked, ChildStatus, Signal};
    ///
    /// let blocked = Blocked::new(Signal::CHLD)?;
    /// let mut child = blocked.unblock_in(Command::new("sh").args(["-c", "exit 3"])).spawn()?;
    /// let info = blocked.wait(None)?.expect("without a timeout there is one");
    /// assert_eq!(info.child_status(), Some(ChildStatus::Exited(3)));
    /// child.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn child_status(&self) -> Option<ChildStatus> {
        if !self.is_about_a_child() {
            return None;
        }
        let by = Signal::from_raw(self.status);
        let killed = |core_dumped| by.map(|signal| ChildStatus::Killed { signal, core_dumped });
        match self.code {
            libc::CLD_EXITED => Some(ChildStatus::Exited(self.status)),
            libc::CLD_KILLED => killed(false),
            libc::CLD_DUMPED => killed(true),
            libc::CLD_STOPPED | libc::CLD_TRAPPED => by.map(ChildStatus::Stopped),
            _ => Some(ChildStatus::Continued),
        }
    }

    /// Returns the known number of further signals that this signal represents: expirations of its
    /// timer, and standard signals that the library had taken before the program received this
    /// signal.
    ///
    /// Even if the number is 0, the kernel may have coalesced signals, because it never reports how
    /// many.
    pub fn coalesced(&self) -> u32 {
        self.coalesced
    }

    fn is_about_a_child(&self) -> bool {
        let reported = libc::CLD_EXITED..=libc::CLD_CONTINUED;
        self.signal == Signal::CHLD && reported.contains(&self.code)
    }

    fn has_sender(&self) -> bool {
        // Every other negative code was passed to `rt_sigqueueinfo` by a process.
        self.is_about_a_child()
            || self.code == libc::SI_USER
            || (self.code < 0 && ![libc::SI_TIMER, libc::SI_SIGIO].contains(&self.code))
    }

    fn has_value(&self) -> bool {
        self.code < 0 && ![libc::SI_TKILL, libc::SI_SIGIO].contains(&self.code)
    }

    /// Length of [`SignalInfo::to_bytes`] in bytes.
    pub const BYTES: usize = 32;

    /// Returns the plain-data form of the signal, little-endian:
    ///
    /// | offset | content |
    /// | --: | --- |
    /// | 0 | 1, the version of this form |
    /// | 1 | signal |
    /// | 2 | two bytes of 0 |
    /// | 4 | code, signed |
    /// | 8 | pid of the sender, or id of the timer |
    /// | 12 | uid |
    /// | 16 | value, 8 bytes |
    /// | 24 | the child's status, signed |
    /// | 28 | coalesced |
    ///
    /// # Examples
    /// ```
    /// # use tontine::signal::SignalInfo;
    /// # let mut bytes = [0; SignalInfo::BYTES];
    /// # (bytes[0], bytes[1]) = (1, 15);
    /// let info = SignalInfo::from_bytes(&bytes)?;
    /// assert_eq!(info.to_bytes(), bytes);
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[1]) = (VERSION, self.signal.as_raw() as u8);
        bytes[4..8].copy_from_slice(&self.code.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.uid.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.status.to_le_bytes());
        bytes[28..].copy_from_slice(&self.coalesced.to_le_bytes());
        bytes
    }

    /// Returns the signal that [`SignalInfo::to_bytes`] encoded, such as a message of
    /// [`Blocked::mailbox`].
    ///
    /// The whole value is untrusted, because the sender of the bytes chooses them.
    ///
    /// # Errors
    /// [`SignalError::Malformed`] if the bytes have another form: their number is not 32, the
    /// version is not 1, or the signal is not between 1 and 64.
    ///
    /// # Examples
    /// ```no_run
    /// use tontine::mailbox::Mailbox;
    /// use tontine::signal::SignalInfo;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut mailbox = Mailbox::bind("/run/supervisor")?;
    /// let info = SignalInfo::from_bytes(&mailbox.recv()?)?;
    /// println!("a worker received {}", info.signal());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Blocked::mailbox`]: super::Blocked::mailbox
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SignalError> {
        let malformed = |reason| SignalError::Malformed { reason };
        let bytes: &[u8; Self::BYTES] = bytes
            .try_into()
            .map_err(|_| malformed("it must have 32 bytes, the form of SignalInfo::to_bytes"))?;
        if bytes[0] != VERSION || bytes[2..4] != [0, 0] {
            return Err(malformed(
                "its first bytes are not those of version 1; build both ends from one release",
            ));
        }
        let signal = Signal::from_raw(bytes[1].into());
        let signal = signal.ok_or(malformed("byte 1 must be a signal's number, 1 to 64"))?;
        let word = |at: usize| bytes[at..at + 4].try_into().expect("four bytes");
        let value = bytes[16..24].try_into().expect("eight bytes");
        Ok(Self {
            signal,
            code: i32::from_le_bytes(word(4)),
            pid: u32::from_le_bytes(word(8)),
            uid: u32::from_le_bytes(word(12)),
            value: u64::from_le_bytes(value),
            status: i32::from_le_bytes(word(24)),
            coalesced: u32::from_le_bytes(word(28)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUED: SignalInfo = SignalInfo {
        signal: Signal::USR1,
        code: libc::SI_QUEUE,
        pid: 4711,
        uid: 1000,
        value: 0x1_0000_0002,
        status: -3,
        coalesced: 9,
    };

    #[test]
    fn signal_info_bytes_match_documented_table() {
        let bytes = QUEUED.to_bytes();
        let mut expected = [0; 32];
        expected[..4].copy_from_slice(&[1, 10, 0, 0]);
        expected[4..8].copy_from_slice(&[0xff; 4]);
        expected[8..12].copy_from_slice(&[0x67, 0x12, 0, 0]);
        expected[12..16].copy_from_slice(&[0xe8, 3, 0, 0]);
        expected[16..24].copy_from_slice(&[2, 0, 0, 0, 1, 0, 0, 0]);
        expected[24..28].copy_from_slice(&[0xfd, 0xff, 0xff, 0xff]);
        expected[28..].copy_from_slice(&[9, 0, 0, 0]);
        assert_eq!(bytes, expected);
        assert_eq!(SignalInfo::from_bytes(&bytes), Ok(QUEUED));
    }

    #[test]
    fn signal_guide_table_matches_source() {
        let page = include_str!("../../../../docs/guides/signal.md");
        let rows = include_str!("info.rs").lines().filter_map(|line| {
            let row = line.trim().strip_prefix("/// | ")?;
            row.starts_with(|first: char| first.is_ascii_digit()).then(|| format!("| {row}"))
        });
        let rows: Vec<String> = rows.collect();
        assert_eq!(rows.len(), 9);
        for row in rows {
            assert!(page.lines().any(|line| line == row), "docs/guides/signal.md lacks {row}");
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let bytes = QUEUED.to_bytes();
        for (at, byte) in [(0, 0), (0, 2), (1, 0), (1, 65), (2, 1), (3, 1)] {
            let mut spoilt = bytes;
            spoilt[at] = byte;
            let error = SignalInfo::from_bytes(&spoilt).expect_err("spoilt");
            assert_eq!(error.errno(), libc::EBADMSG, "{at}: {error}");
        }
        assert!(SignalInfo::from_bytes(&bytes[1..]).is_err());
        assert!(SignalInfo::from_bytes(&[]).is_err());
    }

    #[test]
    fn absent_signal_info_fields_are_none() {
        assert_eq!((QUEUED.pid(), QUEUED.uid()), (Some(4711), Some(1000)));
        assert_eq!((QUEUED.value(), QUEUED.wide_value()), (Some(2), Some(0x1_0000_0002)));
        assert_eq!(QUEUED.child_status(), None);
        for code in [libc::SI_TIMER, libc::SI_KERNEL, libc::SI_SIGIO] {
            let other = SignalInfo { code, ..QUEUED };
            assert_eq!((other.pid(), other.uid()), (None, None), "{code}");
        }
        let killed = SignalInfo { code: libc::SI_USER, ..QUEUED };
        assert_eq!((killed.pid(), killed.value()), (Some(4711), None));
        let child =
            SignalInfo { signal: Signal::CHLD, code: libc::CLD_KILLED, status: 9, ..QUEUED };
        assert_eq!(
            child.child_status(),
            Some(ChildStatus::Killed { signal: Signal::KILL, core_dumped: false })
        );
        assert_eq!(child.pid(), Some(4711));
        // The codes of SIGIO have the same numbers.
        assert_eq!(SignalInfo { signal: Signal::IO, ..child }.pid(), None);
    }
}
