//! A signal is sent to a process number after the child with that number was reaped.
//!
//! Go's `os.Process`, reported as <https://github.com/golang/go/issues/13987>. One thread waits for
//! a child; another kills the child when its time limit has passed. The second thread checks
//! whether the child was waited for, and then sends the signal to the number. If the wait returns
//! in between, the number may belong to any process.
//!
//! In this program the number unreaped free, so the late `kill` returns ESRCH. On a busy system it
//! would signal the next process with the number. The fix: wait without reaping, then reap under
//! the lock that the other thread holds while it checks and kills. (The handles of this library
//! prevent the mistake, because a [`Pid`] from `fork` never denotes the next process with the
//! number.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{Errno, Fd, Pid, Signal, Sys, WaitOptions};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "late-kill",
    project: "Go, os.Process",
    report: "https://github.com/golang/go/issues/13987",
    what: "a signal is sent to a number that no longer belongs to the child",
    wrong: |sys| wait_and_kill(sys, false),
    right: |sys| wait_and_kill(sys, true),
};

/// A lock on which threads can sleep: a pipe with one byte. The holder of the lock has read that
/// byte.
#[derive(Clone, Copy)]
struct Token(Fd, Fd);

impl Token {
    fn new(sys: &dyn Sys) -> Self {
        let (reads, writes) = sys.pipe().expect("below the limits");
        let token = Self(reads, writes);
        token.release(sys);
        token
    }

    fn take(self, sys: &dyn Sys) {
        assert_eq!(sys.read(self.0, &mut [0]), Ok(1), "the byte arrives");
    }

    fn release(self, sys: &dyn Sys) {
        assert_eq!(sys.write(self.1, &[0]), Ok(1), "free space for one byte");
    }
}

/// Returns 0 if no signal was sent to an unused number.
fn wait_and_kill(sys: &dyn Sys, locked: bool) -> i32 {
    let child = sys.fork(|_| 0).expect("below the limits");
    let token = locked.then(|| Token::new(sys));
    let (done, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_done, is_late) = (Arc::clone(&done), Arc::clone(&late));
    let killer = sys.thread(move |sys| {
        if let Some(token) = token {
            token.take(sys);
        }
        if !is_done.load(Ordering::Relaxed) {
            let number = Pid::number_only(child.number());
            let killed = sys.kill(number.into(), Some(Signal::KILL));
            is_late.store(killed == Err(Errno::ESRCH), Ordering::Relaxed);
        }
        if let Some(token) = token {
            token.release(sys);
        }
    });
    if let Some(token) = token {
        let unreaped = WaitOptions::EXITED | WaitOptions::NOWAIT;
        sys.waitid(child.into(), unreaped).expect("it is my child");
        token.take(sys);
    }
    sys.waitpid(child.into(), WaitOptions::empty()).expect("it is my child");
    done.store(true, Ordering::Relaxed);
    if let Some(token) = token {
        token.release(sys);
    }
    sys.join(killer.expect("below the limits")).expect("it is mine");
    i32::from(late.load(Ordering::Relaxed))
}
