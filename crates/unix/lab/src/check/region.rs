//! The memory that the checker, its init process and the processes of a scenario share:
//! [`CheckRegion`], a mapping of a memfd. Every fork inherits the mapping, and exec leaves the
//! memfd open.
//!
//! | part | written by | read by |
//! | --- | --- | --- |
//! | [`RunRequest`]: the scenario and the settings of the run | the checker | the init process |
//! | [`ThreadWords`], per thread | the thread, its creator, the init process | the init process |
//! | the log | all threads, each in its own parts | the stepper (its length), the checker |
//! | steps and the ending | the init process | the checker |

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
use crate::scenario::wire::whole_chars;

/// Maximum number of threads of a run.
pub(super) const MAX_THREADS: usize = 512;
/// Maximum number of steps of a run.
pub(super) const STEPS: usize = 1 << 16;
/// Maximum size of a scenario's text in bytes.
pub(super) const TEXT: usize = 1 << 20;
/// Maximum number of lines of a scenario that are steps.
pub(super) const LINES: usize = 1 << 16;
/// Size of the log in bytes.
pub(super) const LOG: usize = 1 << 24;
/// The number of the memory's descriptor in every process of a scenario. It is above the numbers
/// that scenarios rely on, and above the lowest number of a child's pidfd. A process starts with a
/// descriptor table that is large enough for its highest descriptor. If this number were below the
/// pidfds, the first child would make the table grow, and a multithreaded process would then wait
/// ten milliseconds for all processors.
pub(super) const REGION: i32 = 767;
/// Maximum size in bytes of a call's text, kept for reports of blocked threads.
const CALL: usize = 120;

/// The place of a thread in the run.
pub(super) mod place {
    /// The thread was requested and does not run yet.
    pub(in super::super) const EXPECTED: u32 = 1;
    /// The thread was never created.
    pub(in super::super) const REFUSED: u32 = 2;
    /// The thread was released: it is in a call, or between a call and the next gate.
    pub(in super::super) const THROUGH: u32 = 3;
    /// The thread is at a gate.
    pub(in super::super) const AT_GATE: u32 = 4;
    /// The thread is in an operation that soon ends by itself. It is not quiescent, although it
    /// sleeps.
    pub(in super::super) const SETTLES: u32 = 5;
}

/// The state of a thread's gate.
pub(super) mod go {
    /// The thread may not pass, and sleeps until it may.
    pub(in super::super) const CLOSED: u32 = 0;
    /// The thread may pass.
    pub(in super::super) const OPEN: u32 = 1;
    /// The thread has passed. The place that it recorded may belong to a gate other than the gate
    /// at which it sleeps next.
    pub(in super::super) const PASSED: u32 = 2;
}

/// The shared state of a thread.
#[repr(C)]
pub(super) struct ThreadWords {
    /// A value of [`place`].
    pub(super) place: AtomicU32,
    /// A value of [`go`]. The thread waits on this word.
    pub(super) go: AtomicU32,
    /// The ordinal of the thread that requested this one.
    pub(super) maker: AtomicU32,
    /// 1 for a thread, 0 for a process.
    pub(super) is_thread: AtomicU32,
    /// The numbers of the process and of the thread.
    pub(super) pid: AtomicI32,
    pub(super) tid: AtomicI32,
    pub(super) line: AtomicU32,
    /// 1 while an exec is pending whose program will use these words.
    pub(super) executes: AtomicU32,
    /// The terminal from which the call reads (`typing::to_word`); 0 if it reads from no terminal.
    pub(super) reads: AtomicU32,
    /// The terminal to which the thread has typed while there was unread input, until the bytes
    /// have arrived (`typing::to_word`); else 0.
    pub(super) typed: AtomicU32,
    /// The end of the call's timer; 0 for none.
    pub(super) ends: PendingTimer,
    /// The time at which the process receives SIGALRM; 0 for none. Used only in the words of a
    /// process's first thread.
    pub(super) alarm: PendingTimer,
    pub(super) call: CallText,
}

/// The expiration of a timer.
#[repr(C)]
#[derive(Debug)]
pub(super) struct PendingTimer {
    /// The time on the monotonic clock.
    pub(super) real_ns: AtomicU64,
    /// The time on the run's own clock, which advances only while all threads sleep.
    pub(super) due_ns: AtomicU64,
}

/// The text of a call. Its thread writes the text; the stepper usually reads the text while that
/// thread is quiescent. A handler may overwrite the text while the thread writes it; a torn text
/// only contains wrong bytes. The gate's later stores (`gates.rs`) publish the text to a reader
/// that finds the thread quiescent.
#[repr(C)]
pub(super) struct CallText([AtomicU8; CALL]);

impl CallText {
    /// Stores a text. Allocates nothing.
    pub(super) fn put(&self, what: &dyn fmt::Display) {
        let mut short = ShortText { bytes: &self.0, length: 0 };
        let _ = write!(short, "{what}");
        self.0[short.length..].iter().for_each(|byte| byte.store(0, Relaxed));
    }

    pub(super) fn get(&self) -> String {
        let bytes = self.0.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }
}

/// A writer that truncates the text at the end of the buffer.
struct ShortText<'b> {
    bytes: &'b [AtomicU8; CALL],
    length: usize,
}

impl fmt::Write for ShortText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = whole_chars(text, CALL - self.length);
        let places = &self.bytes[self.length..self.length + fits];
        places.iter().zip(text.bytes()).for_each(|(place, byte)| place.store(byte, Relaxed));
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// A request to the init process.
#[repr(C)]
pub(super) struct RunRequest {
    pub(super) seed: AtomicU64,
    pub(super) max_steps: AtomicU32,
    /// The checker's processor, on which all processes run.
    pub(super) processor: AtomicU32,
    /// Minimum distance between timers.
    pub(super) spacing_ns: AtomicU64,
    /// Maximum duration of the run, in milliseconds.
    pub(super) timeout_ms: AtomicU32,
    pub(super) text_length: AtomicU32,
    pub(super) lines_length: AtomicU32,
}

/// The contents of the memory (see the module documentation).
#[repr(C)]
pub(super) struct RegionShared {
    pub(super) order: RunRequest,
    /// Number of threads that were released.
    pub(super) step: AtomicU32,
    /// Number of times that a thread has reached or passed a gate.
    pub(super) arrivals: AtomicU32,
    pub(super) threads_taken: AtomicU32,
    /// Size of the log in bytes, lines that did not fit included.
    pub(super) log_length: AtomicU32,
    /// The run's own clock.
    pub(super) clock_ns: AtomicU64,
    /// The due time of the last timer up to which time has passed.
    pub(super) passed_due_ns: AtomicU64,
    /// 1 if a timer could not be set so that it expires in its turn.
    pub(super) late: AtomicU32,
    /// 1 if a thread wrote in this step, and the bytes may be in flight to a terminal.
    pub(super) wrote: AtomicU32,
    /// 1 if a thread has typed and waits for the bytes to arrive.
    pub(super) settling: AtomicU32,
    /// The end of the run, one of the constants in `namespace_init.rs`.
    pub(super) ending: AtomicU32,
    pub(super) threads: [ThreadWords; MAX_THREADS],
    /// For each step, the thread's ordinal in the upper half and the line in the lower half.
    pub(super) steps: [AtomicU64; STEPS],
    text: UnsafeCell<[u8; TEXT]>,
    pub(super) lines: [AtomicU32; LINES],
    /// The log, as `log.rs` defines it.
    pub(super) log: [AtomicU32; LOG / size_of::<AtomicU32>()],
    /// The blocked threads, or a description of the failure.
    words: UnsafeCell<[u8; 1 << 16]>,
}

// SAFETY: the checker and the init process access the texts alternately.
unsafe impl Sync for RegionShared {}

impl RegionShared {
    /// Returns `true` if a timer has expired before its turn, that is, within a step and not while
    /// time passed.
    pub(super) fn has_come_early(&self, timer: &PendingTimer) -> bool {
        let real = timer.real_ns.load(SeqCst);
        let due = timer.due_ns.load(SeqCst);
        real != 0 && real <= now_ns() && self.passed_due_ns.load(SeqCst) < due
    }

    /// Stores the scenario's text.
    pub(super) fn put_text(&self, text: &str) {
        // SAFETY: the init process reads the text only after it receives a request, which happens
        // later.
        unsafe { (&mut *self.text.get())[..text.len()].copy_from_slice(text.as_bytes()) };
    }

    /// Returns the scenario's text.
    pub(super) fn text(&self, length: usize) -> &str {
        // SAFETY: the text was written before the init process received the request to read it.
        let bytes = unsafe { &(&*self.text.get())[..length.min(TEXT)] };
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Stores the report of the init process. Truncates a report that is too long.
    pub(super) fn put_words(&self, text: &str) {
        // SAFETY: the checker reads the report only after the reply of the init process, which
        // happens later.
        let words = unsafe { &mut *self.words.get() };
        let length = whole_chars(text, words.len() - 1);
        words[..length].copy_from_slice(&text.as_bytes()[..length]);
        words[length] = 0;
    }

    /// Returns the report of the init process.
    pub(super) fn words(&self) -> String {
        // SAFETY: the report was written before the init process replied.
        let words = unsafe { &*self.words.get() };
        let text = words.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// The mapping of the shared memory.
#[derive(Debug)]
pub(super) struct CheckRegion(NonNull<RegionShared>);

// SAFETY: the pointee is shared by design.
unsafe impl Send for CheckRegion {}
// SAFETY: as above.
unsafe impl Sync for CheckRegion {}

impl CheckRegion {
    /// Creates a region. Also returns the descriptor of its memory.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let memory = memfd_create("tontine-check", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, size_of::<RegionShared>() as u64)?;
        Ok((Self::map(memory.as_fd())?, memory))
    }

    /// Maps the region whose memory this process has inherited.
    pub(super) fn inherited() -> io::Result<Self> {
        // SAFETY: nothing in this process closes the descriptor before the memory is mapped.
        Self::map(unsafe { BorrowedFd::borrow_raw(REGION) })
    }

    fn map(memory: BorrowedFd<'_>) -> io::Result<Self> {
        let (length, access) = (size_of::<RegionShared>(), ProtFlags::READ | ProtFlags::WRITE);
        if fstat(memory)?.st_size.unsigned_abs() < length as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the mapping is new, and the memory is at least as long; all zeros are a valid
        // initial content.
        let at = unsafe { mmap(null_mut(), length, access, MapFlags::SHARED, memory, 0) }?;
        NonNull::new(at.cast()).map(Self).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Makes a region's memory available under its fixed number to this process, its children, and the
/// programs that they start by exec.
pub(super) fn pass_on(memory: OwnedFd) -> io::Result<()> {
    // Copied through another number: duplicating a descriptor to itself would leave its
    // close-on-exec flag set.
    let copy = fcntl_dupfd_cloexec(memory, REGION + 1)?;
    // SAFETY: the call takes integers; no object in this process owns the number, as the caller
    // ensures.
    match unsafe { libc::dup2(copy.as_raw_fd(), REGION) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Deref for CheckRegion {
    type Target = RegionShared;

    fn deref(&self) -> &RegionShared {
        // SAFETY: the memory is mapped until `self` is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for CheckRegion {
    fn drop(&mut self) {
        // SAFETY: the region was mapped by `map`, and no reference to it exists.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<RegionShared>()) };
    }
}
