//! Two children end, one SIGCHLD comes, and one child is waited for.
//!
//! Neovim, reported as <https://github.com/neovim/neovim/issues/8740>. A signal that is pending
//! already is not pending twice: several children that end close together make one SIGCHLD. Who
//! waits for one child a signal waits for a second signal that never comes.
//!
//! What keeps it right: wait until there is nobody left that has ended.

use tontine_unix::{Children, Errno, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "one-a-signal",
    project: "Neovim",
    report: "https://github.com/neovim/neovim/issues/8740",
    what: "two children make one SIGCHLD, and the second is never waited for",
    wrong: |sys| reap_by_signal(sys, 1),
    right: |sys| reap_by_signal(sys, CHILDREN + 1),
};

/// How many end.
const CHILDREN: usize = 2;

/// 0 when all have been waited for; `most` at each signal.
fn reap_by_signal(sys: &dyn Sys, most: usize) -> i32 {
    let blocked = SigSet::of(&[Signal::CHLD]);
    let before = sys.sigprocmask(Some((SigmaskHow::Block, blocked))).expect("it is allowed");
    sys.sigaction(Signal::CHLD, Some(SigAction::handler(|_, _| {}))).expect("it is allowed");
    for _ in 0..CHILDREN {
        sys.fork(|_| 0).expect("there is room");
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
