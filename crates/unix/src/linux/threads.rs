//! Threads of this process. The standard library creates the threads. Each thread is identified by
//! its number and is joined once.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

use super::kill::to_thread;
use super::{Linux, stack, table};
use crate::errno::{Errno, Result};
use crate::process::Tid;
use crate::sys::ThreadBody;

/// Creates a thread: `thread`. A panic of the body terminates only the new thread.
pub(super) fn start(body: ThreadBody) -> Result<Tid> {
    let placement = table::read().placement;
    let (tell, told) = mpsc::sync_channel(1);
    let (go, gone) = mpsc::sync_channel(1);
    let handle = Builder::new().spawn(move || {
        placement.apply();
        stack::forget();
        // The creator waits for the number and releases the new thread once it has stored it, so
        // both ends of the channels exist.
        let _ = tell.send(current());
        let _ = gone.recv();
        let _ = catch_unwind(AssertUnwindSafe(|| body(&Linux(()))));
    })?;
    let thread = told.recv().map_err(|_| Errno::EAGAIN)?;
    table::write().threads.0.insert(thread, Some(handle));
    let _ = go.send(());
    Ok(thread)
}

/// Waits until a thread has ended: `join`.
pub(super) fn join(thread: Tid) -> Result<()> {
    if thread == current() {
        return Err(Errno::EDEADLK);
    }
    let handle = {
        let mut table = table::write();
        table.threads.0.get_mut(&thread).ok_or(Errno::ESRCH)?.take().ok_or(Errno::EINVAL)?
    };
    // The body does not panic.
    let _ = handle.join();
    await_removal(thread);
    let mut table = table::write();
    // A new thread may already have the number.
    if let Some(None) = table.threads.0.get(&thread) {
        table.threads.0.remove(&thread);
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
    let said = |file: &str| fs::read_to_string(format!("/proc/self/task/{}/{file}", thread.0)).ok();
    let Some(stat) = said("stat") else { return false };
    // The thread's name, in parentheses, may contain any characters.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace();
    let letter = fields.next();
    // The flags are the ninth field of the file.
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
    let is_another = flags.is_some_and(|flags| flags & EXITING == 0);
    let is_kept = || {
        let status = said("status").unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    };
    is_another || (letter == Some("Z") && is_kept())
}

/// Returns the calling thread.
pub(super) fn current() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}
