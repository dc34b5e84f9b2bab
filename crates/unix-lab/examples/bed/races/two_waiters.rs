//! Two threads wait for one child, and one of them hears of no status.
//!
//! `System.Process` of Haskell, `waitForProcess`, reported as
//! <https://github.com/haskell/process/issues/46>. Both threads find that nobody knows the status
//! yet, and both call `waitpid`. The child is there for one of them; the other gets ECHILD, which
//! went on to the program as an exception.
//!
//! A child has one waiter. Whoever comes second must wait for the first, not for the child.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tontine_unix::{Fd, Pid, Sys, WaitOptions};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "two-waiters",
    project: "process (Haskell)",
    report: "https://github.com/haskell/process/issues/46",
    what: "two threads wait for a child, and one is told that there is none",
    wrong: |sys| both_wait(sys, Handle::ask),
    right: |sys| both_wait(sys, Handle::ask_once),
};

/// What the child exits with.
const STATUS: i32 = 7;
/// Nobody knows it yet.
const UNKNOWN: i32 = -1;

/// A child, for several threads.
struct Handle {
    child: Pid,
    status: AtomicI32,
    /// Whether somebody waits for the child.
    claimed: AtomicBool,
    /// It ends, for its readers, when the status is known.
    known: (Fd, Fd),
}

impl Handle {
    /// The status; waits for the child where it is not known.
    fn ask(&self, sys: &dyn Sys) -> Option<i32> {
        if self.status.load(Ordering::Relaxed) == UNKNOWN {
            self.await_child(sys)?;
        }
        Some(self.status.load(Ordering::Relaxed))
    }

    /// The status; waits for the child, or for who does.
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

/// 0 if both threads hear of the status.
fn both_wait(sys: &dyn Sys, ask: fn(&Handle, &dyn Sys) -> Option<i32>) -> i32 {
    let handle = Arc::new(Handle {
        child: sys.fork(|_| STATUS).expect("there is room"),
        status: AtomicI32::new(UNKNOWN),
        claimed: AtomicBool::new(false),
        known: sys.pipe().expect("there is room"),
    });
    let (others, heard) = (Arc::clone(&handle), Arc::new(AtomicI32::new(UNKNOWN)));
    let hears = Arc::clone(&heard);
    let other = sys.thread(move |sys| {
        hears.store(ask(&others, sys).unwrap_or(UNKNOWN), Ordering::Relaxed);
    });
    let mine = ask(&handle, sys);
    sys.join(other.expect("there is room")).expect("it is mine");
    i32::from(mine != Some(STATUS) || heard.load(Ordering::Relaxed) != STATUS)
}
