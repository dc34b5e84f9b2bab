//! What the checker, its keeper and the processes of a scenario share: [`Region`], a mapping that
//! every fork inherits, of memory that exec leaves open.
//!
//! | part | written by | read by |
//! | --- | --- | --- |
//! | [`Order`]: the scenario and how to run it | the checker | the keeper |
//! | [`SeatWords`], one a thread | the thread, its maker, the keeper | the keeper |
//! | the log | everybody, each a part of its own | the conductor (its length), the checker |
//! | steps and the ending | the keeper | the checker |

#![allow(unsafe_code, reason = "memory that processes share")]

use std::cell::UnsafeCell;
use std::fmt::{self, Write as _};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::time::now_ns;

/// Threads of a run.
pub(super) const SEATS: usize = 512;
/// Steps of a run.
pub(super) const STEPS: usize = 1 << 16;
/// Bytes of a scenario's text.
pub(super) const TEXT: usize = 1 << 20;
/// Lines of a scenario that make a step.
pub(super) const LINES: usize = 1 << 16;
/// Bytes of a log.
pub(super) const LOG: usize = 1 << 24;
/// The number by which every process of a scenario has the memory open: above any that a scenario
/// counts on, and above the first of those that hold children. A process begins with a table of
/// descriptors that has room for its highest one; were that below them, the first child would make
/// the table grow, for which one that has threads waits for all processors, ten milliseconds long.
pub(super) const REGION: i32 = 767;
/// Bytes of a call's text that are kept for who waits in it.
const CALL: usize = 120;

/// Where a thread is.
pub(super) mod place {
    /// It was asked for and does not run yet.
    pub(in super::super) const EXPECTED: u32 = 1;
    /// It was never made.
    pub(in super::super) const REFUSED: u32 = 2;
    /// It goes its way: in a call, or between one and the next gate.
    pub(in super::super) const THROUGH: u32 = 3;
    /// It stands at a gate.
    pub(in super::super) const AT_GATE: u32 = 4;
    /// It does something that soon ends by itself. It is not quiescent, although it sleeps.
    pub(in super::super) const SETTLES: u32 = 5;
}

/// Whether a thread may leave its gate.
pub(super) mod go {
    /// It may not. It sleeps as long as that is so.
    pub(in super::super) const CLOSED: u32 = 0;
    /// It may.
    pub(in super::super) const OPEN: u32 = 1;
    /// It has: what it says of itself may be of another gate than the one it sleeps at next.
    pub(in super::super) const PASSED: u32 = 2;
}

/// A thread.
#[repr(C)]
pub(super) struct SeatWords {
    /// One of [`place`].
    pub(super) place: AtomicU32,
    /// One of [`go`]. It waits here.
    pub(super) go: AtomicU32,
    /// The seat that asked for it.
    pub(super) maker: AtomicU32,
    /// 1 for a thread, 0 for a process.
    pub(super) is_thread: AtomicU32,
    /// Its process's number, and its own.
    pub(super) pid: AtomicI32,
    pub(super) tid: AtomicI32,
    pub(super) line: AtomicU32,
    /// 1: its process is about to be executed, and will sit down here.
    pub(super) executes: AtomicU32,
    /// The terminal from which its call reads (`typing::to_word`); 0 if it reads from none.
    pub(super) reads: AtomicU32,
    /// The terminal that it has typed to while there was unread input, until the bytes have arrived
    /// (`typing::to_word`); else 0.
    pub(super) typed: AtomicU32,
    /// When its call ends by itself; 0 if never.
    pub(super) ends: Timer,
    /// When its process gets SIGALRM; 0 if never. Of a process's first thread.
    pub(super) alarm: Timer,
    pub(super) call: CallText,
}

/// A time to come.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Timer {
    /// On the monotonic clock.
    pub(super) real_ns: AtomicU64,
    /// On the run's own clock, which goes on only while everybody sleeps.
    pub(super) due_ns: AtomicU64,
}

/// The text of a call: written by its thread, mostly read while that is at rest. A handler of that
/// thread may write in the middle of it; a torn text is a text of other bytes. What the gate stores
/// behind it (`gates.rs`) publishes it to who finds the thread at rest.
#[repr(C)]
pub(super) struct CallText([AtomicU8; CALL]);

impl CallText {
    /// Puts a text down. Allocates nothing.
    pub(super) fn put(&self, what: &dyn fmt::Display) {
        let mut short = Short { bytes: &self.0, length: 0 };
        let _ = write!(short, "{what}");
        self.0[short.length..].iter().for_each(|byte| byte.store(0, Relaxed));
    }

    pub(super) fn get(&self) -> String {
        let bytes = self.0.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }
}

/// A text that is cut where there is no room for more.
struct Short<'b> {
    bytes: &'b [AtomicU8; CALL],
    length: usize,
}

impl fmt::Write for Short<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(CALL - self.length);
        let places = &self.bytes[self.length..self.length + fits];
        places.iter().zip(text.bytes()).for_each(|(place, byte)| place.store(byte, Relaxed));
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// What the keeper is asked for.
#[repr(C)]
pub(super) struct Order {
    pub(super) seed: AtomicU64,
    pub(super) max_steps: AtomicU32,
    /// The processor that the checker is on: there everybody runs.
    pub(super) processor: AtomicU32,
    /// How far timers are apart at least.
    pub(super) spacing_ns: AtomicU64,
    /// How long it may take, in milliseconds.
    pub(super) patience_ms: AtomicU32,
    pub(super) text_length: AtomicU32,
    pub(super) lines_length: AtomicU32,
}

/// See the module.
#[repr(C)]
pub(super) struct Shared {
    pub(super) order: Order,
    /// How many threads have been let through.
    pub(super) step: AtomicU32,
    /// How often somebody came to a gate or passed one.
    pub(super) arrivals: AtomicU32,
    pub(super) seats_taken: AtomicU32,
    /// Bytes of the log, those that did not fit among them.
    pub(super) log_length: AtomicU32,
    /// The run's own clock.
    pub(super) clock_ns: AtomicU64,
    /// The due time of the last timer to which time has passed.
    pub(super) passed_due_ns: AtomicU64,
    /// Whether a timer could not be set so that it ends in its turn.
    pub(super) late: AtomicU32,
    /// 1: a thread wrote in this step, and the bytes may be in flight to a terminal.
    pub(super) wrote: AtomicU32,
    /// 1: a thread has typed and waits until the bytes have arrived.
    pub(super) settling: AtomicU32,
    /// How it ended, and how many steps there were.
    pub(super) ending: AtomicU32,
    pub(super) seats: [SeatWords; SEATS],
    /// Seat in the upper half, line in the lower one.
    pub(super) steps: [AtomicU64; STEPS],
    text: UnsafeCell<[u8; TEXT]>,
    pub(super) lines: [AtomicU32; LINES],
    /// See `log.rs`.
    pub(super) log: [AtomicU32; LOG / size_of::<AtomicU32>()],
    /// Who waits for ever, or what went wrong.
    words: UnsafeCell<[u8; 1 << 16]>,
}

// SAFETY: the texts are written and read by turns.
unsafe impl Sync for Shared {}

impl Shared {
    /// Returns `true` if a timer has expired before its turn: within a step, not while time passed.
    pub(super) fn has_come_early(&self, timer: &Timer) -> bool {
        let real = timer.real_ns.load(SeqCst);
        let due = timer.due_ns.load(SeqCst);
        real != 0 && real <= now_ns() && self.passed_due_ns.load(SeqCst) < due
    }

    /// Puts the scenario's text down.
    pub(super) fn put_text(&self, text: &str) {
        // SAFETY: the keeper reads when it is told to, which comes later.
        unsafe { (&mut *self.text.get())[..text.len()].copy_from_slice(text.as_bytes()) };
    }

    /// The scenario's text.
    pub(super) fn text(&self, length: usize) -> &str {
        // SAFETY: written before the keeper was told to read.
        let bytes = unsafe { &(&*self.text.get())[..length.min(TEXT)] };
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Puts the keeper's words down; what is too long is cut.
    pub(super) fn put_words(&self, text: &str) {
        // SAFETY: the checker reads when it is told to, which comes later.
        let words = unsafe { &mut *self.words.get() };
        let length = text.floor_char_boundary(words.len() - 1);
        words[..length].copy_from_slice(&text.as_bytes()[..length]);
        words[length] = 0;
    }

    /// The keeper's words.
    pub(super) fn words(&self) -> String {
        // SAFETY: written before the checker was told to read.
        let words = unsafe { &*self.words.get() };
        let text = words.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// The mapping.
#[derive(Debug)]
pub(super) struct Region(NonNull<Shared>);

// SAFETY: what it points to is shared by design.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A new one, and its memory.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let memory = memfd_create("tontine-check", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, size_of::<Shared>() as u64)?;
        Ok((Self::map(memory.as_fd())?, memory))
    }

    /// The one whose memory this process has open by its number.
    pub(super) fn inherited() -> io::Result<Self> {
        // SAFETY: nobody closes it while it is looked at and mapped.
        Self::map(unsafe { BorrowedFd::borrow_raw(REGION) })
    }

    fn map(memory: BorrowedFd<'_>) -> io::Result<Self> {
        let (length, access) = (size_of::<Shared>(), ProtFlags::READ | ProtFlags::WRITE);
        if fstat(memory)?.st_size.unsigned_abs() < length as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: a new mapping, of memory that is at least so long; zeroes are a value of what is
        // there at first.
        let at = unsafe { mmap(null_mut(), length, access, MapFlags::SHARED, memory, 0) }?;
        NonNull::new(at.cast()).map(Self).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Gives this process a region's memory by its number, and whoever it makes and executes.
pub(super) fn pass_on(memory: OwnedFd) -> io::Result<()> {
    // A copy by another number: to duplicate a descriptor to itself changes nothing.
    let copy = fcntl_dupfd_cloexec(memory, REGION + 1)?;
    // SAFETY: it takes integers; the caller says that nobody uses what had the number.
    match unsafe { libc::dup2(copy.as_raw_fd(), REGION) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Deref for Region {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: mapped until this goes.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody refers to it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
    }
}
