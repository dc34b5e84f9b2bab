//! Errors of calls on process groups and sessions.

use tontine_unix::Errno;

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, MISSING, SELF, executed, foreigner, grandchild, in_child, leader, reaped,
    sleeper,
};
use crate::errnos::signals::{THREADS_NUMBER, thread_as_process};

pub(crate) const ROWS: &[Row] = &[
    // getpgid, getsid
    refused("getpgid(process)", "no process has the number", Errno::ESRCH, |sys| {
        sys.getpgid(MISSING).map(drop)
    }),
    refused("getpgid(process)", "−1", Errno::ESRCH, |sys| sys.getpgid(MINUS_ONE).map(drop)),
    refused("getpgid(process)", "the lowest number", Errno::ESRCH, |sys| {
        sys.getpgid(LOWEST).map(drop)
    }),
    refused("getpgid(process)", "already reaped", Errno::ESRCH, |sys| {
        sys.getpgid(reaped(sys)).map(drop)
    }),
    allowed("getpgid(process)", "a thread's number", |sys| {
        assert_eq!(sys.getpgid(thread_as_process(sys))?, sys.getpgrp());
        Ok(())
    })
    .on_linux(THREADS_NUMBER),
    refused("getpgid(process)", "a thread's number", Errno::ESRCH, |sys| {
        sys.getpgid(thread_as_process(sys)).map(drop)
    })
    .on_virtual(THREADS_NUMBER),
    refused("getsid(process)", "no process has the number", Errno::ESRCH, |sys| {
        sys.getsid(MISSING).map(drop)
    }),
    refused("getsid(process)", "−1", Errno::ESRCH, |sys| sys.getsid(MINUS_ONE).map(drop)),
    refused("getsid(process)", "the lowest number", Errno::ESRCH, |sys| {
        sys.getsid(LOWEST).map(drop)
    }),
    refused("getsid(process)", "already reaped", Errno::ESRCH, |sys| {
        sys.getsid(reaped(sys)).map(drop)
    }),
    // setpgid
    refused("setpgid(process)", "no process has the number", Errno::ESRCH, |sys| {
        sys.setpgid(MISSING, SELF)
    }),
    refused("setpgid(process)", "−1, into a group", Errno::ESRCH, |sys| {
        sys.setpgid(MINUS_ONE, sys.getpgrp())
    }),
    refused("setpgid(process)", "−1, into its own group", Errno::EINVAL, |sys| {
        sys.setpgid(MINUS_ONE, SELF)
    }),
    refused("setpgid(process)", "the lowest number", Errno::ESRCH, |sys| {
        sys.setpgid(LOWEST, sys.getpgrp())
    }),
    refused("setpgid(process)", "the parent", Errno::ESRCH, |sys| {
        let parent = sys.getpid();
        in_child(sys, move |sys| sys.setpgid(parent, parent))
    }),
    refused("setpgid(process)", "a grandchild", Errno::ESRCH, |sys| {
        let grandchild = grandchild(sys);
        sys.setpgid(grandchild, grandchild)
    }),
    refused("setpgid(process)", "already reaped", Errno::ESRCH, |sys| {
        sys.setpgid(reaped(sys), SELF)
    }),
    refused("setpgid(process)", "a child that has executed", Errno::EACCES, |sys| {
        sys.setpgid(executed(sys), SELF)
    }),
    refused("setpgid(process)", "a child of another session", Errno::EPERM, |sys| {
        sys.setpgid(foreigner(sys), sys.getpgrp())
    }),
    refused("setpgid(process)", "a session leader", Errno::EPERM, |sys| {
        in_child(sys, |sys| {
            sys.setsid().expect("the caller leads no group");
            sys.setpgid(SELF, SELF)
        })
    }),
    refused("setpgid(process)", "a thread's number", Errno::EINVAL, |sys| {
        sys.setpgid(thread_as_process(sys), SELF)
    })
    .on_linux(THREADS_NUMBER),
    refused("setpgid(process)", "a thread's number", Errno::ESRCH, |sys| {
        sys.setpgid(thread_as_process(sys), SELF)
    })
    .on_virtual(THREADS_NUMBER),
    refused("setpgid(group)", "−1", Errno::EINVAL, |sys| sys.setpgid(SELF, MINUS_ONE)),
    refused("setpgid(group)", "the lowest number", Errno::EINVAL, |sys| sys.setpgid(SELF, LOWEST)),
    refused("setpgid(group)", "−1, whichever process", Errno::EINVAL, |sys| {
        sys.setpgid(MISSING, MINUS_ONE)
    }),
    refused("setpgid(group)", "no process has the number", Errno::EPERM, |sys| {
        sys.setpgid(SELF, MISSING)
    }),
    refused("setpgid(group)", "a process that leads no group", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        sys.setpgid(SELF, child)
    }),
    refused("setpgid(group)", "a group of another session", Errno::EPERM, |sys| {
        let stranger = foreigner(sys);
        sys.setpgid(SELF, stranger)
    }),
    refused("setpgid(group)", "an already reaped leader", Errno::EPERM, |sys| {
        let child = reaped(sys);
        sys.setpgid(SELF, child)
    }),
    allowed("setpgid(group)", "the current group", |sys| sys.setpgid(SELF, sys.getpgrp())),
    // setsid
    refused("setsid()", "the caller leads a group", Errno::EPERM, |sys| {
        sys.setpgid(SELF, SELF).expect("the caller leads no session");
        sys.setsid().map(drop)
    }),
    refused("setsid()", "the caller leads a session", Errno::EPERM, |sys| {
        sys.setsid().expect("the caller leads no group");
        sys.setsid().map(drop)
    }),
    refused("setsid()", "a group has the caller's number", Errno::EPERM, |sys| {
        let before = sys.getpgrp();
        sys.setpgid(SELF, SELF).expect("the caller leads no session");
        sleeper(sys);
        sys.setpgid(SELF, before).expect("the group exists");
        sys.setsid().map(drop)
    }),
    allowed("setsid()", "the group that the caller led has ended", |sys| {
        let before = sys.getpgrp();
        sys.setpgid(SELF, leader(sys)).expect("the group exists");
        sys.setpgid(SELF, SELF).expect("the caller leads no session");
        sys.setpgid(SELF, before).expect("the group exists");
        sys.setsid().map(drop)
    }),
];

#[test]
fn process_group_errors_match_linux() {
    hold(ROWS);
}
