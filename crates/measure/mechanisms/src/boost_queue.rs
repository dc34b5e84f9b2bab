//! Two Boost.Interprocess message queues, one in each direction: `boost-message-queue`, whose ends
//! wait for messages, and `boost-message-queue-monitored`, whose ends use what Boost offers for
//! crashes.
//!
//! Boost has no notification of a death. Its documentation offers the `file_lock`, which the system
//! unlocks when its holder ends or crashes; each monitored end holds one for its whole life. It
//! waits with `timed_receive`, and after 10 ms it tries the lock of the other end. It is compiled
//! with `BOOST_INTERPROCESS_ENABLE_TIMEOUT_WHEN_LOCKING`, which the maintainer recommends against
//! the mutex of a dead process: a call then fails if it could not lock the mutex for 10 ms. A
//! condition variable that locks the mutex again after a wait has no such limit. After a death, the
//! end takes back from its queue the messages that were not read.

#![allow(unsafe_code, reason = "calls the C functions of a library")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::leftovers::Folder;
use tontine_bench::os::shared::first_free_name;

use crate::about::{AfterKill, Death, Listing, Mechanism, RowKind};
use crate::boost::{CppPart, MESSAGE_QUEUE, MESSAGE_QUEUE_WITH_TIMEOUT};
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Inlet, Outlet, Peers, Transfer, TransferError, TwoWay, check};

/// Capacity of a queue in messages.
const CAPACITY: usize = 4;
/// Timeout, in milliseconds, after which an end checks the lock of the other end.
const CHECK_MS: c_long = 10;
/// Timeout of a call that waits indefinitely.
const NEVER_MS: c_long = -1;
/// Interval between two checks whether the other end has opened.
const LOOK: Duration = Duration::from_micros(200);
/// Timeout for the other end to open.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `boost-message-queue`.
pub struct BoostQueue;

/// `boost-message-queue-monitored`.
pub struct MonitoredBoostQueue;

pub const PLAIN: Mechanism = Mechanism::new(
    "boost-message-queue",
    Death::LeavesOne { row: "boost-message-queue", survivor: AfterKill::Wedged },
    &[Listing::new(
        RowKind::Survival,
        "Boost.Interprocess message_queue; waits for messages, asks no liveness API",
    )
    .calling("futex(FUTEX_WAIT)")],
);

pub const MONITORED: Mechanism = Mechanism::new(
    "boost-message-queue-monitored",
    // A wait for the condition variable ends by locking the mutex, without a timeout.
    Death::LeavesOne { row: "boost-message-queue-monitored", survivor: AfterKill::Either },
    &[Listing::new(
        RowKind::Survival,
        "the same; waits and locks for at most 10 ms, then checks a file_lock of the other end",
    )
    .calling("futex(FUTEX_WAIT_BITSET) with a timeout of 10 ms, then fcntl(F_SETLK)")],
);

type CreateQueue = unsafe extern "C" fn(*const c_char, usize, usize) -> *mut c_void;
type SendMessage = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_long) -> c_int;
type ReceiveMessage = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_long) -> c_int;
type OpenLock = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type UseLock = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The C++ functions.
#[derive(Debug, Clone, Copy)]
struct QueueFunctions {
    create: CreateQueue,
    send: SendMessage,
    receive: ReceiveMessage,
    open_lock: OpenLock,
    hold_lock: UseLock,
    lock_is_free: UseLock,
}

impl QueueFunctions {
    fn load(part: CppPart, name: &str) -> Result<Self> {
        let library = part.load(name)?;
        let symbol = |name: &CStr| library.symbol(name).map(NonNull::as_ptr);
        let create = symbol(c"tontine_boost_queue_create")?;
        let send = symbol(c"tontine_boost_queue_send")?;
        let receive = symbol(c"tontine_boost_queue_receive")?;
        let open_lock = symbol(c"tontine_boost_lock_open")?;
        let hold_lock = symbol(c"tontine_boost_lock_hold")?;
        let lock_is_free = symbol(c"tontine_boost_lock_is_free")?;
        // SAFETY: each pointer is the function of that name in the C++ source, and has this type.
        unsafe {
            Ok(Self {
                create: std::mem::transmute::<*mut c_void, CreateQueue>(create),
                send: std::mem::transmute::<*mut c_void, SendMessage>(send),
                receive: std::mem::transmute::<*mut c_void, ReceiveMessage>(receive),
                open_lock: std::mem::transmute::<*mut c_void, OpenLock>(open_lock),
                hold_lock: std::mem::transmute::<*mut c_void, UseLock>(hold_lock),
                lock_is_free: std::mem::transmute::<*mut c_void, UseLock>(lock_is_free),
            })
        }
    }

    /// Creates a queue without a name, for processes that are forked later.
    fn queue(&self, bytes: usize) -> Result<NonNull<c_void>> {
        let create = |name: &CStr| {
            // SAFETY: the name ends with a zero byte and lives for the call.
            NonNull::new(unsafe { (self.create)(name.as_ptr(), CAPACITY, bytes) }).ok_or_else(
                || io::Error::new(io::ErrorKind::AlreadyExists, "is there free space in /dev/shm?"),
            )
        };
        let queue = first_free_name(create);
        Ok(queue.map_err(|error| MeasureError::skip(format!("message_queue: {error}")))?.1)
    }
}

/// Converts a result of the C++ functions: `true` if the call succeeded, `false` after its timeout.
fn outcome(returned: c_int, call: &'static str) -> Result<bool> {
    match returned {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(MeasureError::fail(format!("Boost.Interprocess: {call} failed"))),
    }
}

/// An end, which may still be opened in another process.
#[derive(Debug)]
pub struct QueuePair {
    functions: QueueFunctions,
    out: NonNull<c_void>,
    back: NonNull<c_void>,
    buffer: Vec<u8>,
}

impl QueuePair {
    fn two(part: CppPart, name: &str, bytes: usize) -> Result<(Self, Self)> {
        let functions = QueueFunctions::load(part, name)?;
        let (ask, answer) = (functions.queue(bytes)?, functions.queue(bytes)?);
        let end = |out, back| Self { functions, out, back, buffer: vec![0; bytes] };
        Ok((end(ask, answer), end(answer, ask)))
    }

    fn send_within(&self, message: &[u8], timeout_ms: c_long) -> Result<bool> {
        let (at, bytes) = (message.as_ptr().cast(), message.len());
        // SAFETY: the queue is mapped for the lifetime of this process; the message lives for the
        // call.
        outcome(unsafe { (self.functions.send)(self.out.as_ptr(), at, bytes, timeout_ms) }, "send")
    }

    fn receive_from(&mut self, queue: NonNull<c_void>, timeout_ms: c_long) -> Result<bool> {
        let (into, bytes) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
        // SAFETY: as in `send_within`; the buffer is as long as the queue's messages.
        let returned = unsafe { (self.functions.receive)(queue.as_ptr(), into, bytes, timeout_ms) };
        outcome(returned, "receive")
    }
}

impl Outlet for QueuePair {
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        while !self.send_within(message, NEVER_MS)? {
            check(peers)?;
        }
        Ok(())
    }
}

impl Inlet for QueuePair {
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        while !self.receive_from(self.back, NEVER_MS)? {
            check(peers)?;
        }
        Ok(look(&self.buffer))
    }
}

impl TwoWay for QueuePair {}

impl PairDriver for BoostQueue {
    type Half = QueuePair;
    type End<const BYTES: usize> = QueuePair;

    fn pair(bytes: usize) -> Result<PairHalves<QueuePair>> {
        QueuePair::two(MESSAGE_QUEUE, "message_queue", bytes).map(PairHalves::of)
    }

    fn open<const BYTES: usize>(half: QueuePair, _: Peers<'_>) -> Result<QueuePair> {
        Ok(half)
    }
}

/// An end before it holds its lock: its queues, the directory of the locks, and its side.
pub type UnlockedQueuePair = (QueuePair, Arc<Folder>, usize);

/// An end that holds a lock and checks that of the other end.
#[derive(Debug)]
pub struct MonitoredQueuePair {
    plain: QueuePair,
    other: NonNull<c_void>,
}

impl MonitoredQueuePair {
    fn other_has_lock(&self) -> Result<bool> {
        // SAFETY: the lock was opened by `open` and is never closed.
        let free = unsafe { (self.plain.functions.lock_is_free)(self.other.as_ptr()) };
        outcome(free, "file_lock::try_lock").map(|free| !free)
    }
}

impl Outlet for MonitoredQueuePair {
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        while !self.plain.send_within(message, CHECK_MS)? {
            check(peers)?;
            if !self.other_has_lock()? {
                return Err(TransferError::Gone);
            }
        }
        Ok(())
    }

    fn take_back(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while self.plain.receive_from(self.plain.out, 0).is_ok_and(|came| came) {
            all.push(self.plain.buffer.clone());
        }
        all
    }
}

impl Inlet for MonitoredQueuePair {
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        while !self.plain.receive_from(self.plain.back, CHECK_MS)? {
            check(peers)?;
            if !self.other_has_lock()? {
                // Its last message may have arrived after the wait.
                if self.plain.receive_from(self.plain.back, 0)? {
                    break;
                }
                return Err(TransferError::Gone);
            }
        }
        Ok(look(&self.plain.buffer))
    }
}

impl TwoWay for MonitoredQueuePair {}

impl PairDriver for MonitoredBoostQueue {
    type Half = UnlockedQueuePair;
    type End<const BYTES: usize> = MonitoredQueuePair;

    fn pair(bytes: usize) -> Result<PairHalves<UnlockedQueuePair>> {
        let name = "message_queue_with_timeout";
        let (one, two) = QueuePair::two(MESSAGE_QUEUE_WITH_TIMEOUT, name, bytes)?;
        let folder = Arc::new(Folder::new("boost")?);
        for side in 0..2 {
            fs::write(folder.path().join(side.to_string()), [])
                .setting_up("creating a file to lock")?;
        }
        let (one, two) = ((one, Arc::clone(&folder), 0), (two, Arc::clone(&folder), 1));
        Ok(PairHalves { first: one, second: two, kept: Some(Box::new(folder)) })
    }

    /// Acquires the lock, and waits until the other end has acquired its own.
    fn open<const BYTES: usize>(
        (plain, folder, side): UnlockedQueuePair,
        peers: Peers<'_>,
    ) -> Result<MonitoredQueuePair> {
        let own = lock(&plain.functions, &folder.path().join(side.to_string()))?;
        let other = lock(&plain.functions, &folder.path().join((1 - side).to_string()))?;
        // SAFETY: the lock was just opened and is never closed.
        let held = unsafe { (plain.functions.hold_lock)(own.as_ptr()) };
        outcome(held, "file_lock::lock")?;
        let end = MonitoredQueuePair { plain, other };
        let began = Instant::now();
        while !end.other_has_lock()? {
            check(peers)?;
            if began.elapsed() > TIMEOUT {
                return Err(MeasureError::fail("the other end did not acquire its lock"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(end)
    }
}

/// Opens a lock, for the lifetime of this process.
fn lock(functions: &QueueFunctions, path: &Path) -> Result<NonNull<c_void>> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| MeasureError::skip("the temporary folder has a zero in its name"))?;
    // SAFETY: the path ends with a zero byte and lives for the call.
    NonNull::new(unsafe { (functions.open_lock)(path.as_ptr()) })
        .ok_or_else(|| MeasureError::fail("Boost.Interprocess: file_lock cannot be opened"))
}
