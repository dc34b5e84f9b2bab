//! Two children end, one SIGCHLD arrives, and the parent waits for one child.
//!
//! Neovim, reported as <https://github.com/neovim/neovim/issues/8740>. A pending signal is not
//! queued a second time, so several children that end close together cause one SIGCHLD. A program
//! that reaps one child per signal then waits for a second signal that never comes.
//!
//! The fix: wait repeatedly until no ended child is left.

use tontine_unix::{Children, Errno, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "one-a-signal",
    project: "Neovim",
    report: "https://github.com/neovim/neovim/issues/8740",
    what: "two children cause one SIGCHLD, and the second is never waited for",
    wrong: |sys| reap_by_signal(sys, 1),
    right: |sys| reap_by_signal(sys, CHILDREN + 1),
};

/// Number of children.
const CHILDREN: usize = 2;

/// Waits for at most `most` children per signal. Returns 0 if all children were waited for.
fn reap_by_signal(sys: &dyn Sys, most: usize) -> i32 {
    let blocked = SigSet::of(&[Signal::CHLD]);
    let before = sys.sigprocmask(Some((SigmaskHow::Block, blocked))).expect("it is allowed");
    sys.sigaction(Signal::CHLD, Some(SigAction::handler(|_, _| {}))).expect("it is allowed");
    for _ in 0..CHILDREN {
        sys.fork(|_| 0).expect("below the limits");
    }
    let mut left = CHILDREN;
    while left > 0 {
        sys.sigsuspend(before);
        for _ in 0..most {
            match sys.waitpid(Children::Any, WaitOptions::NOHANG) {
                Ok(Some(_)) => left -= 1,
                Ok(None) | Err(Errno::ECHILD) => break,
                Err(_) => return 1,
            }
        }
    }
    0
}
