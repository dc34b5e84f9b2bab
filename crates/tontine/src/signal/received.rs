//! A signal that was taken: [`Received`], and what became of a [`Child`].
//!
//! [`Received::to_bytes`] is its plain-data form, for mailboxes and files.

use super::error::{Error, Result};
use super::number::Signal;

/// A signal that was taken, with all that the kernel said of it.
///
/// Source: `sigaction(2)` on `siginfo_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub(super) signal: Signal,
    pub(super) code: i32,
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// The sender's value, as wide as a pointer.
    pub(super) value: u64,
    pub(super) status: i32,
    pub(super) merged: u32,
}

/// What became of a child, as SIGCHLD tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// It exited, with this status.
    Exited(i32),
    /// This signal ended it; and whether it dumped core.
    Killed(Signal, bool),
    /// This signal stopped it; or it trapped, traced.
    Stopped(Signal),
    /// It goes on.
    Continued,
}

/// Of the bytes' form.
const VERSION: u8 = 1;

impl Received {
    /// Which signal.
    #[inline]
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// Why it was sent: `SI_USER` (0) for `kill`, `SI_QUEUE` for `sigqueue`, and others.
    #[inline]
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Who sent it, or which child it is about; 0 for a process of another PID namespace.
    ///
    /// None where no process did: a timer, the kernel, a descriptor. The kernel's word for `kill`
    /// and for the end of a child; for `sigqueue`, what the sender says.
    pub fn pid(&self) -> Option<u32> {
        self.has_sender().then_some(self.pid)
    }

    /// That process's real user, as [`Received::pid`].
    pub fn uid(&self) -> Option<u32> {
        self.has_sender().then_some(self.uid)
    }

    /// The number that came with it: of `sigqueue`, a timer or a message queue.
    pub fn value(&self) -> Option<i32> {
        // `sival_int` and `sival_ptr` begin at the same byte.
        let bytes = (self.value as usize).to_ne_bytes();
        let (first, _) = bytes.split_first_chunk().expect("a pointer has four bytes");
        self.has_value().then_some(i32::from_ne_bytes(*first))
    }

    /// The same as wide as a pointer, where the sender gave so much.
    pub fn wide_value(&self) -> Option<u64> {
        self.has_value().then_some(self.value)
    }

    /// What became of the child, where this is SIGCHLD and the kernel says so.
    pub fn child(&self) -> Option<Child> {
        if !self.is_about_a_child() {
            return None;
        }
        let by = Signal::from_raw(self.status);
        match self.code {
            libc::CLD_EXITED => Some(Child::Exited(self.status)),
            libc::CLD_KILLED => by.map(|signal| Child::Killed(signal, false)),
            libc::CLD_DUMPED => by.map(|signal| Child::Killed(signal, true)),
            libc::CLD_STOPPED | libc::CLD_TRAPPED => by.map(Child::Stopped),
            _ => Some(Child::Continued),
        }
    }

    /// How many more it stands for, as far as that is known: expirations of a timer, and standard
    /// signals that the library had taken already and the program had not.
    ///
    /// 0 says nothing of those that the kernel merged: it tells nobody how many there were.
    pub fn merged(&self) -> u32 {
        self.merged
    }

    fn is_about_a_child(&self) -> bool {
        let told = libc::CLD_EXITED..=libc::CLD_CONTINUED;
        self.signal == Signal::CHLD && told.contains(&self.code)
    }

    fn has_sender(&self) -> bool {
        // Negative codes other than these are what some process gave to `rt_sigqueueinfo`.
        self.is_about_a_child()
            || self.code == libc::SI_USER
            || (self.code < 0 && ![libc::SI_TIMER, libc::SI_SIGIO].contains(&self.code))
    }

    fn has_value(&self) -> bool {
        self.code < 0 && ![libc::SI_TKILL, libc::SI_SIGIO].contains(&self.code)
    }

    /// How many bytes [`Received::to_bytes`] makes.
    pub const BYTES: usize = 32;

    /// Its plain-data form, little-endian:
    ///
    /// | offset | what |
    /// | --: | --- |
    /// | 0 | 1, the version of this form |
    /// | 1 | signal |
    /// | 2 | two bytes of 0 |
    /// | 4 | code, signed |
    /// | 8 | pid, or which timer |
    /// | 12 | uid |
    /// | 16 | value, 8 bytes |
    /// | 24 | the child's status, signed |
    /// | 28 | merged |
    ///
    /// ```
    /// # use tontine::signal::Received;
    /// # let mut bytes = [0; Received::BYTES];
    /// # (bytes[0], bytes[1]) = (1, 15);
    /// let one = Received::from_bytes(&bytes)?;
    /// assert_eq!(one.to_bytes(), bytes);
    /// # Ok::<(), tontine::signal::Error>(())
    /// ```
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[1]) = (VERSION, self.signal.as_raw() as u8);
        bytes[4..8].copy_from_slice(&self.code.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.uid.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.status.to_le_bytes());
        bytes[28..].copy_from_slice(&self.merged.to_le_bytes());
        bytes
    }

    /// What [`Received::to_bytes`] made, such as a message of [`Blocked::mailbox`]'s.
    ///
    /// It is a claim of whoever sent the bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`] for anything else.
    ///
    /// [`Blocked::mailbox`]: super::Blocked::mailbox
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let malformed = |why| Error::Malformed { why };
        let bytes: &[u8; Self::BYTES] =
            bytes.try_into().map_err(|_| malformed("a signal has 32 bytes"))?;
        if bytes[0] != VERSION || bytes[2..4] != [0, 0] {
            return Err(malformed("version 1 was expected; build both ends from one release"));
        }
        let signal = Signal::from_raw(bytes[1].into());
        let signal = signal.ok_or(malformed("a signal has a number from 1 to 64"))?;
        let word = |at: usize| bytes[at..at + 4].try_into().expect("four bytes");
        let value = bytes[16..24].try_into().expect("eight bytes");
        Ok(Self {
            signal,
            code: i32::from_le_bytes(word(4)),
            pid: u32::from_le_bytes(word(8)),
            uid: u32::from_le_bytes(word(12)),
            value: u64::from_le_bytes(value),
            status: i32::from_le_bytes(word(24)),
            merged: u32::from_le_bytes(word(28)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUED: Received = Received {
        signal: Signal::USR1,
        code: libc::SI_QUEUE,
        pid: 4711,
        uid: 1000,
        value: 0x1_0000_0002,
        status: -3,
        merged: 9,
    };

    #[test]
    fn every_byte_is_where_the_table_says() {
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
        assert_eq!(Received::from_bytes(&bytes), Ok(QUEUED));
    }

    #[test]
    fn the_guide_has_the_same_table() {
        let page = include_str!("../../../../docs/signal.md");
        let rows = include_str!("received.rs").lines().filter_map(|line| {
            let row = line.trim().strip_prefix("/// | ")?;
            row.starts_with(|first: char| first.is_ascii_digit()).then(|| format!("| {row}"))
        });
        let rows: Vec<String> = rows.collect();
        assert_eq!(rows.len(), 9);
        for row in rows {
            assert!(page.lines().any(|line| line == row), "docs/signal.md lacks {row}");
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let bytes = QUEUED.to_bytes();
        for (at, byte) in [(0, 0), (0, 2), (1, 0), (1, 65), (2, 1), (3, 1)] {
            let mut spoilt = bytes;
            spoilt[at] = byte;
            let error = Received::from_bytes(&spoilt).expect_err("spoilt");
            assert_eq!(error.errno(), libc::EBADMSG, "{at}: {error}");
        }
        assert!(Received::from_bytes(&bytes[1..]).is_err());
        assert!(Received::from_bytes(&[]).is_err());
    }

    #[test]
    fn what_the_kernel_did_not_say_is_not_made_up() {
        assert_eq!((QUEUED.pid(), QUEUED.uid()), (Some(4711), Some(1000)));
        assert_eq!((QUEUED.value(), QUEUED.wide_value()), (Some(2), Some(0x1_0000_0002)));
        assert_eq!(QUEUED.child(), None);
        for code in [libc::SI_TIMER, libc::SI_KERNEL, libc::SI_SIGIO] {
            let other = Received { code, ..QUEUED };
            assert_eq!((other.pid(), other.uid()), (None, None), "{code}");
        }
        let killed = Received { code: libc::SI_USER, ..QUEUED };
        assert_eq!((killed.pid(), killed.value()), (Some(4711), None));
        let child = Received { signal: Signal::CHLD, code: libc::CLD_KILLED, status: 9, ..QUEUED };
        assert_eq!(child.child(), Some(Child::Killed(Signal::KILL, false)));
        assert_eq!(child.pid(), Some(4711));
        // SIGIO's codes have the same numbers.
        assert_eq!(Received { signal: Signal::IO, ..child }.pid(), None);
    }
}
