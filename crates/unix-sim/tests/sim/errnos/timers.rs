//! Errors of calls with a timeout.

use std::time::Duration;

use tontine_unix::{Errno, Result, SigAction, SigSet, Signal, Sys};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{bare, block};

const NOW: Option<Duration> = Some(Duration::ZERO);
const SOON: Option<Duration> = Some(Duration::from_millis(5));
const USR1: SigSet = SigSet::of(&[Signal::USR1]);

pub(crate) const ROWS: &[Row] = &[
    refused("sigtimedwait(timeout)", "nothing pending, zero timeout", Errno::EAGAIN, |sys| {
        accept(sys, USR1, NOW)
    }),
    refused("sigtimedwait(timeout)", "nothing arrives in time", Errno::EAGAIN, |sys| {
        accept(sys, USR1, SOON)
    }),
    allowed("sigtimedwait(timeout)", "beyond the range of any clock", |sys| {
        block(sys, Signal::USR1);
        sys.raise(Signal::USR1)?;
        accept(sys, USR1, Some(Duration::MAX))
    }),
    refused("sigtimedwait(set)", "an empty set", Errno::EAGAIN, |sys| {
        accept(sys, SigSet::EMPTY, SOON)
    }),
    refused("sigtimedwait(set)", "only SIGKILL and SIGSTOP", Errno::EAGAIN, |sys| {
        accept(sys, SigSet::UNBLOCKABLE, SOON)
    }),
    refused("sigtimedwait(set)", "another signal is pending", Errno::EAGAIN, |sys| {
        block(sys, Signal::USR2);
        sys.raise(Signal::USR2)?;
        accept(sys, USR1, NOW)
    }),
    refused("nanosleep(duration)", "beyond the range of any clock", Errno::EINTR, |sys| {
        sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {})))?;
        let me = bare(sys.getpid());
        let waker = sys.fork(move |sys| {
            while sys.kill(me.into(), Some(Signal::USR1)).is_ok() {
                let _ = sys.nanosleep(Duration::from_millis(1));
            }
            0
        })?;
        let (errno, left) = sys.nanosleep(Duration::MAX).expect_err("a sleep without end");
        sys.sigaction(Signal::USR1, Some(SigAction::IGNORE))?;
        sys.kill(waker.into(), Some(Signal::KILL))?;
        assert!(left > Duration::from_secs(1 << 32), "{left:?}");
        Err(errno)
    }),
];

fn accept(sys: &dyn Sys, set: SigSet, timeout: Option<Duration>) -> Result<()> {
    sys.sigtimedwait(set, timeout).map(drop)
}

#[test]
fn timeout_and_set_errors_match_linux() {
    hold(ROWS);
}
