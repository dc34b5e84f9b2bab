//! Threads of this process. Each thread is identified by its number and is joined once.
//!
//! The C library creates the threads. A thread of the standard library first acquires a lock that
//! all threads share, and a child that was forked while another thread held this lock would block
//! there indefinitely.

#![allow(unsafe_code, reason = "the C library's calls about threads")]

use std::ffi::c_void;
use std::fs;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::mpsc;
use std::time::Duration;

use super::kill::to_thread;
use super::{Linux, table};
use crate::errno::{Errno, Result};
use crate::process::Tid;
use crate::sys::ThreadBody;

/// Creates a thread: `thread`. A panic of the body terminates only the new thread.
pub(super) fn start(body: ThreadBody) -> Result<Tid> {
    let placement = table::read().placement;
    let (started, number) = mpsc::sync_channel(1);
    let (go, gone) = mpsc::sync_channel(1);
    let handle = create(Box::new(move || {
        placement.apply();
        // The creator waits for the number and releases the new thread once it has stored it, so
        // both ends of the channels exist.
        let _ = started.send(current());
        let _ = gone.recv();
        let _ = catch_unwind(AssertUnwindSafe(|| body(&Linux(()))));
    }))?;
    let thread = number.recv().map_err(|_| Errno::EAGAIN)?;
    table::write().threads.insert(thread, Some(handle));
    let _ = go.send(());
    Ok(thread)
}

/// The function that a new thread executes. It does not panic.
type ThreadMain = Box<dyn FnOnce() + Send>;

/// Size in bytes of a thread's stack: the standard library's default.
const STACK_SIZE: usize = 2 << 20;

/// Calls pthread_create(3).
fn create(main: ThreadMain) -> Result<libc::pthread_t> {
    extern "C" fn run(main: *mut c_void) -> *mut c_void {
        // SAFETY: the pointer is the one that `create` passes, and only this thread receives it.
        let main = unsafe { Box::from_raw(main.cast::<ThreadMain>()) };
        main();
        ptr::null_mut()
    }
    let main = Box::into_raw(Box::new(main));
    let mut attributes = MaybeUninit::uninit();
    let mut handle = MaybeUninit::uninit();
    // SAFETY: the attributes are initialized by the first call, and destroyed after their last use;
    // the stack size is a multiple of the page size and above the minimum; `run` has the expected
    // signature, and `main` stays valid until it runs.
    let errno = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_SIZE);
        let errno =
            libc::pthread_create(handle.as_mut_ptr(), attributes.as_ptr(), run, main.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        errno
    };
    if errno != 0 {
        // SAFETY: no thread was created, so the pointer is still this function's.
        drop(unsafe { Box::from_raw(main) });
        return Err(Errno::from_raw(errno));
    }
    // SAFETY: a successful pthread_create stores the handle.
    Ok(unsafe { handle.assume_init() })
}

/// Waits until a thread has ended: `join`.
pub(super) fn join(thread: Tid) -> Result<()> {
    if thread == current() {
        return Err(Errno::EDEADLK);
    }
    let handle = {
        let mut table = table::write();
        table.threads.get_mut(&thread).ok_or(Errno::ESRCH)?.take().ok_or(Errno::EINVAL)?
    };
    // SAFETY: the thread is of this process and joinable, and its handle was taken from the table,
    // so no other call joins it.
    unsafe { libc::pthread_join(handle, ptr::null_mut()) };
    await_removal(thread);
    let mut table = table::write();
    // A new thread may already have the number.
    if let Some(None) = table.threads.get(&thread) {
        table.threads.remove(&thread);
    }
    Ok(())
}

/// Number of checks for the removal of a joined thread before a sleep of 100 µs precedes each
/// further check.
const QUICK_LOOKS: u32 = 10_000;

/// Maximum number of checks. All checks take more than a second; a removal takes microseconds.
const MAX_LOOKS: u32 = 2 * QUICK_LOOKS;

/// `PF_EXITING`, in the flags of /proc/PID/stat: the thread is exiting.
const EXITING: u64 = 1 << 2;

/// Blocks until the kernel has released the number of an ended thread, but for at most
/// [`MAX_LOOKS`] checks. Without `/proc`, an immediately reused number looks like a number that is
/// still held.
///
/// The C library's join returns when the thread has left the address space. The kernel removes the
/// thread slightly later, and until then `tgkill` finds it. This function yields, because the
/// ending thread only needs a processor.
fn await_removal(thread: Tid) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    for look in 0..MAX_LOOKS {
        if to_thread(process, thread, 0) == Err(Errno::ESRCH) {
            return;
        }
        // The number may denote another thread (see `is_removed`). That function reads files, so it
        // is called only after every 64th check.
        if look % 64 == 63 && is_removed(thread) {
            return;
        }
        match look {
            ..QUICK_LOOKS => rustix::thread::sched_yield(),
            // A sleep lets the ending thread run even if the caller's priority is higher.
            _ => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// Returns `true` if the number is in use but the wait is over: a new thread has the number, or a
/// tracer keeps the ended thread until the tracer waits for it.
fn is_removed(thread: Tid) -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{}/{file}", thread.0)).ok();
    let Some(stat) = read("stat") else { return false };
    // The thread's name, in parentheses, may contain any characters.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace();
    let letter = fields.next();
    // The flags are the ninth field of the file.
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
    let is_another = flags.is_some_and(|flags| flags & EXITING == 0);
    let is_kept = || {
        let status = read("status").unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    };
    is_another || (letter == Some("Z") && is_kept())
}

/// Returns the calling thread.
pub(super) fn current() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}
