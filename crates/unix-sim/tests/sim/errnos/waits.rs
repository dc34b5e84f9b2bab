//! Children that are waited for.

use tontine_unix::{Children, Errno, Pid, Result, SigAction, Signal, Sys, WaitOptions};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, NOBODY, SELF, grandchild, leader, reaped, sleeper, sleeping_thread, zombie,
};

/// An option that nobody knows.
const UNKNOWN: WaitOptions = WaitOptions::from_bits_retain(1 << 20);

pub(crate) const ROWS: &[Row] = &[
    // waitid
    refused("waitid(children)", "any, and there are none", Errno::ECHILD, |sys| {
        ended(sys, Children::Any)
    }),
    refused("waitid(children)", "one's own group, and there are none", Errno::ECHILD, |sys| {
        ended(sys, Children::OwnGroup)
    }),
    refused("waitid(children)", "one's own group, and none is in it", Errno::ECHILD, |sys| {
        leader(sys);
        ended(sys, Children::OwnGroup)
    }),
    refused("waitid(children)", "a group that none is in", Errno::ECHILD, |sys| {
        sleeper(sys);
        ended(sys, Children::Group(NOBODY))
    }),
    refused("waitid(children)", "the group of a child that leads none", Errno::ECHILD, |sys| {
        let child = sleeper(sys);
        ended(sys, Children::Group(child))
    }),
    refused("waitid(children)", "a group with no number", Errno::EINVAL, |sys| {
        sleeper(sys);
        ended(sys, Children::Group(MINUS_ONE))
    }),
    refused("waitid(children)", "the group with the lowest number", Errno::EINVAL, |sys| {
        sleeper(sys);
        ended(sys, Children::Group(LOWEST))
    }),
    refused("waitid(children)", "the group 0, and there are none", Errno::ECHILD, |sys| {
        ended(sys, Children::Group(SELF))
    }),
    allowed("waitid(children)", "the group 0 is one's own", |sys| {
        zombie(sys);
        ended(sys, Children::Group(SELF))
    }),
    refused("waitid(children)", "nobody has the number", Errno::ECHILD, |sys| {
        sleeper(sys);
        ended(sys, NOBODY.into())
    }),
    refused("waitid(children)", "0", Errno::EINVAL, |sys| ended(sys, SELF.into())),
    refused("waitid(children)", "−1", Errno::EINVAL, |sys| ended(sys, MINUS_ONE.into())),
    refused("waitid(children)", "the lowest number", Errno::EINVAL, |sys| {
        ended(sys, LOWEST.into())
    }),
    refused("waitid(children)", "the caller", Errno::ECHILD, |sys| ended(sys, sys.getpid().into())),
    refused("waitid(children)", "its parent", Errno::ECHILD, |sys| {
        ended(sys, sys.getppid().into())
    }),
    refused("waitid(children)", "a grandchild", Errno::ECHILD, |sys| {
        ended(sys, grandchild(sys).into())
    }),
    refused("waitid(children)", "a thread of the caller's", Errno::ECHILD, |sys| {
        ended(sys, Pid::number_only(sleeping_thread(sys).0).into())
    }),
    refused("waitid(children)", "it was waited for", Errno::ECHILD, |sys| {
        ended(sys, reaped(sys).into())
    }),
    refused("waitid(children)", "it was waited for, by its number", Errno::ECHILD, |sys| {
        ended(sys, Children::of(reaped(sys).number()))
    }),
    refused("waitid(children)", "SIGCHLD is ignored, and it ended", Errno::ECHILD, |sys| {
        sys.sigaction(Signal::CHLD, Some(SigAction::IGNORE))?;
        let child = sys.fork(|_| 0)?;
        ended(sys, child.into())
    }),
    refused("waitid(options)", "none", Errno::EINVAL, |sys| options(sys, WaitOptions::empty())),
    refused("waitid(options)", "only not to sleep", Errno::EINVAL, |sys| {
        options(sys, WaitOptions::NOHANG)
    }),
    refused("waitid(options)", "only to look", Errno::EINVAL, |sys| {
        options(sys, WaitOptions::NOWAIT | WaitOptions::NOHANG)
    }),
    refused("waitid(options)", "one that nobody knows", Errno::EINVAL, |sys| {
        options(sys, WaitOptions::EXITED | WaitOptions::NOHANG | UNKNOWN)
    }),
    refused("waitid(options)", "none, and there are no children", Errno::EINVAL, |sys| {
        sys.waitid(Children::Any, WaitOptions::empty()).map(drop)
    }),
    refused("waitid(options)", "stops of who has ended", Errno::ECHILD, |sys| {
        let child = zombie(sys);
        sys.waitid(child.into(), WaitOptions::STOPPED | WaitOptions::CONTINUED).map(drop)
    }),
    allowed("waitid(options)", "nothing has happened, and it does not sleep", |sys| {
        options(sys, WaitOptions::EXITED | WaitOptions::NOHANG)
    }),
    // waitpid and the others
    refused("waitpid(children)", "any, and there are none", Errno::ECHILD, |sys| {
        sys.waitpid(Children::of(-1), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "one's own group, and there are none", Errno::ECHILD, |sys| {
        sys.waitpid(Children::of(0), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "nobody has the number", Errno::ECHILD, |sys| {
        sys.waitpid(Children::of(i32::MAX), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "a group that none is in", Errno::ECHILD, |sys| {
        sleeper(sys);
        sys.waitpid(Children::of(-i32::MAX), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "the lowest number stands for no group", Errno::ESRCH, |sys| {
        sys.waitpid(Children::of(i32::MIN), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(options)", "only to look", Errno::EINVAL, |sys| {
        sys.waitpid(zombie(sys).into(), WaitOptions::NOWAIT).map(drop)
    }),
    refused("waitpid(options)", "one that nobody knows", Errno::EINVAL, |sys| {
        sys.waitpid(zombie(sys).into(), UNKNOWN).map(drop)
    }),
    refused("waitpid(options)", "a wrong one comes before a wrong number", Errno::EINVAL, |sys| {
        sys.waitpid(Children::of(i32::MIN), UNKNOWN).map(drop)
    }),
    refused("wait()", "there are no children", Errno::ECHILD, |sys| sys.wait().map(drop)),
    refused("wait3(options)", "only to look", Errno::EINVAL, |sys| {
        zombie(sys);
        sys.wait3(WaitOptions::NOWAIT).map(drop)
    }),
    refused("wait3(options)", "one that nobody knows", Errno::EINVAL, |sys| {
        zombie(sys);
        sys.wait3(UNKNOWN).map(drop)
    }),
    refused("wait3()", "there are no children", Errno::ECHILD, |sys| {
        sys.wait3(WaitOptions::NOHANG).map(drop)
    }),
    refused("wait4(children)", "nobody has the number", Errno::ECHILD, |sys| {
        sys.wait4(NOBODY.into(), WaitOptions::empty()).map(drop)
    }),
    refused("wait4(children)", "the lowest number stands for no group", Errno::ESRCH, |sys| {
        sys.wait4(Children::of(i32::MIN), WaitOptions::empty()).map(drop)
    }),
    refused("wait4(options)", "only to look", Errno::EINVAL, |sys| {
        sys.wait4(zombie(sys).into(), WaitOptions::NOWAIT).map(drop)
    }),
    refused("wait4(options)", "one that nobody knows", Errno::EINVAL, |sys| {
        sys.wait4(zombie(sys).into(), UNKNOWN).map(drop)
    }),
];

fn ended(sys: &dyn Sys, children: Children) -> Result<()> {
    sys.waitid(children, WaitOptions::EXITED).map(drop)
}

/// Waits with these for a child that sleeps.
fn options(sys: &dyn Sys, options: WaitOptions) -> Result<()> {
    let child = sleeper(sys);
    sys.waitid(child.into(), options).map(drop)
}

#[test]
fn a_wrong_child_or_option_is_refused_as_linux_refuses_it() {
    hold(ROWS);
}
