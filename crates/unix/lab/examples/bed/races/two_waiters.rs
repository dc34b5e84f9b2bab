//! Two threads wait for one child, and one of them receives no status.
//!
//! `System.Process` of Haskell, `waitForProcess`, reported as
//! <https://github.com/haskell/process/issues/46>. Both threads find that the status is not known
//! yet, and both call `waitpid`. One thread reaps the child; the other call returns ECHILD, which
//! reached the program as an exception.
//!
//! The fix: a child has one waiter. A second thread waits for the first thread, not for the child.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tontine_unix::{Fd, Pid, Sys, WaitOptions};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "two-waiters",
    project: "process (Haskell)",
    report: "https://github.com/haskell/process/issues/46",
    what: "two threads wait for a child, and one gets ECHILD",
    wrong: |sys| both_wait(sys, Handle::ask),
    right: |sys| both_wait(sys, Handle::ask_once),
};

/// The exit status of the child.
const STATUS: i32 = 7;
/// The value that represents an unknown status.
const UNKNOWN: i32 = -1;

/// A child for which several threads wait.
struct Handle {
    child: Pid,
    status: AtomicI32,
    /// `true` once a thread waits for the child.
    claimed: AtomicBool,
    /// A pipe whose readers receive end-of-file when the status is known.
    known: (Fd, Fd),
}

impl Handle {
    /// Returns the status. Waits for the child if the status is not known.
    fn ask(&self, sys: &dyn Sys) -> Option<i32> {
        if self.status.load(Ordering::Relaxed) == UNKNOWN {
            self.await_child(sys)?;
        }
        Some(self.status.load(Ordering::Relaxed))
    }

    /// Returns the status. Waits for the child, or for the thread that waits for it.
    fn ask_once(&self, sys: &dyn Sys) -> Option<i32> {
        if self.claimed.swap(true, Ordering::Relaxed) {
            sys.read(self.known.0, &mut [0]).ok()?;
        } else {
            self.await_child(sys)?;
            sys.close(self.known.1).ok()?;
        }
        Some(self.status.load(Ordering::Relaxed))
    }

    fn await_child(&self, sys: &dyn Sys) -> Option<()> {
        let waited = sys.waitpid(self.child.into(), WaitOptions::empty()).ok()??;
        self.status.store(waited.status.exited()?, Ordering::Relaxed);
        Some(())
    }
}

/// Returns 0 if both threads obtain the status.
fn both_wait(sys: &dyn Sys, ask: fn(&Handle, &dyn Sys) -> Option<i32>) -> i32 {
    let handle = Arc::new(Handle {
        child: sys.fork(|_| STATUS).expect("below the limits"),
        status: AtomicI32::new(UNKNOWN),
        claimed: AtomicBool::new(false),
        known: sys.pipe().expect("below the limits"),
    });
    let (others, heard) = (Arc::clone(&handle), Arc::new(AtomicI32::new(UNKNOWN)));
    let hears = Arc::clone(&heard);
    let other = sys.thread(move |sys| {
        hears.store(ask(&others, sys).unwrap_or(UNKNOWN), Ordering::Relaxed);
    });
    let mine = ask(&handle, sys);
    sys.join(other.expect("below the limits")).expect("it is mine");
    i32::from(mine != Some(STATUS) || heard.load(Ordering::Relaxed) != STATUS)
}
