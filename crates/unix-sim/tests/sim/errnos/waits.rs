//! Errors of calls that wait for children.

use tontine_unix::{Children, Errno, Pid, Result, SigAction, Signal, Sys, WaitOptions};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, MISSING, SELF, grandchild, leader, reaped, sleeper, sleeping_thread, zombie,
};

/// An undefined option.
const UNKNOWN: WaitOptions = WaitOptions::from_bits_retain(1 << 20);

pub(crate) const ROWS: &[Row] = &[
    // waitid
    refused("waitid(children)", "any child, without children", Errno::ECHILD, |sys| {
        ended(sys, Children::Any)
    }),
    refused("waitid(children)", "own group, without children", Errno::ECHILD, |sys| {
        ended(sys, Children::OwnGroup)
    }),
    refused("waitid(children)", "own group, with no child in it", Errno::ECHILD, |sys| {
        leader(sys);
        ended(sys, Children::OwnGroup)
    }),
    refused("waitid(children)", "a group with no child in it", Errno::ECHILD, |sys| {
        sleeper(sys);
        ended(sys, Children::Group(MISSING))
    }),
    refused("waitid(children)", "a child that leads no group", Errno::ECHILD, |sys| {
        let child = sleeper(sys);
        ended(sys, Children::Group(child))
    }),
    refused("waitid(children)", "an invalid group number", Errno::EINVAL, |sys| {
        sleeper(sys);
        ended(sys, Children::Group(MINUS_ONE))
    }),
    refused("waitid(children)", "the group with the lowest number", Errno::EINVAL, |sys| {
        sleeper(sys);
        ended(sys, Children::Group(LOWEST))
    }),
    refused("waitid(children)", "group 0, without children", Errno::ECHILD, |sys| {
        ended(sys, Children::Group(SELF))
    }),
    allowed("waitid(children)", "group 0, which is the own group", |sys| {
        zombie(sys);
        ended(sys, Children::Group(SELF))
    }),
    refused("waitid(children)", "no process has the number", Errno::ECHILD, |sys| {
        sleeper(sys);
        ended(sys, MISSING.into())
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
    refused("waitid(children)", "a thread of the caller", Errno::ECHILD, |sys| {
        ended(sys, Pid::number_only(sleeping_thread(sys).0).into())
    }),
    refused("waitid(children)", "already reaped", Errno::ECHILD, |sys| {
        ended(sys, reaped(sys).into())
    }),
    refused("waitid(children)", "already reaped, by number", Errno::ECHILD, |sys| {
        ended(sys, Children::of(reaped(sys).number()))
    }),
    refused("waitid(children)", "ended while SIGCHLD is ignored", Errno::ECHILD, |sys| {
        sys.sigaction(Signal::CHLD, Some(SigAction::IGNORE))?;
        let child = sys.fork(|_| 0)?;
        ended(sys, child.into())
    }),
    refused("waitid(options)", "none", Errno::EINVAL, |sys| options(sys, WaitOptions::empty())),
    refused("waitid(options)", "NOHANG alone", Errno::EINVAL, |sys| {
        options(sys, WaitOptions::NOHANG)
    }),
    refused("waitid(options)", "NOWAIT and NOHANG alone", Errno::EINVAL, |sys| {
        options(sys, WaitOptions::NOWAIT | WaitOptions::NOHANG)
    }),
    refused("waitid(options)", "an undefined option", Errno::EINVAL, |sys| {
        options(sys, WaitOptions::EXITED | WaitOptions::NOHANG | UNKNOWN)
    }),
    refused("waitid(options)", "none, without children", Errno::EINVAL, |sys| {
        sys.waitid(Children::Any, WaitOptions::empty()).map(drop)
    }),
    refused("waitid(options)", "stops of a zombie", Errno::ECHILD, |sys| {
        let child = zombie(sys);
        sys.waitid(child.into(), WaitOptions::STOPPED | WaitOptions::CONTINUED).map(drop)
    }),
    allowed("waitid(options)", "NOHANG without a change", |sys| {
        options(sys, WaitOptions::EXITED | WaitOptions::NOHANG)
    }),
    // waitpid and the others
    refused("waitpid(children)", "any child, without children", Errno::ECHILD, |sys| {
        sys.waitpid(Children::of(-1), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "own group, without children", Errno::ECHILD, |sys| {
        sys.waitpid(Children::of(0), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "no process has the number", Errno::ECHILD, |sys| {
        sys.waitpid(Children::of(i32::MAX), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "a group with no child in it", Errno::ECHILD, |sys| {
        sleeper(sys);
        sys.waitpid(Children::of(-i32::MAX), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(children)", "the lowest number, which names no group", Errno::ESRCH, |sys| {
        sys.waitpid(Children::of(i32::MIN), WaitOptions::empty()).map(drop)
    }),
    refused("waitpid(options)", "NOWAIT", Errno::EINVAL, |sys| {
        sys.waitpid(zombie(sys).into(), WaitOptions::NOWAIT).map(drop)
    }),
    refused("waitpid(options)", "an undefined option", Errno::EINVAL, |sys| {
        sys.waitpid(zombie(sys).into(), UNKNOWN).map(drop)
    }),
    refused("waitpid(options)", "a bad option precedes a bad number", Errno::EINVAL, |sys| {
        sys.waitpid(Children::of(i32::MIN), UNKNOWN).map(drop)
    }),
    refused("wait()", "there are no children", Errno::ECHILD, |sys| sys.wait().map(drop)),
    refused("wait3(options)", "NOWAIT", Errno::EINVAL, |sys| {
        zombie(sys);
        sys.wait3(WaitOptions::NOWAIT).map(drop)
    }),
    refused("wait3(options)", "an undefined option", Errno::EINVAL, |sys| {
        zombie(sys);
        sys.wait3(UNKNOWN).map(drop)
    }),
    refused("wait3()", "there are no children", Errno::ECHILD, |sys| {
        sys.wait3(WaitOptions::NOHANG).map(drop)
    }),
    refused("wait4(children)", "no process has the number", Errno::ECHILD, |sys| {
        sys.wait4(MISSING.into(), WaitOptions::empty()).map(drop)
    }),
    refused("wait4(children)", "the lowest number, which names no group", Errno::ESRCH, |sys| {
        sys.wait4(Children::of(i32::MIN), WaitOptions::empty()).map(drop)
    }),
    refused("wait4(options)", "NOWAIT", Errno::EINVAL, |sys| {
        sys.wait4(zombie(sys).into(), WaitOptions::NOWAIT).map(drop)
    }),
    refused("wait4(options)", "an undefined option", Errno::EINVAL, |sys| {
        sys.wait4(zombie(sys).into(), UNKNOWN).map(drop)
    }),
];

fn ended(sys: &dyn Sys, children: Children) -> Result<()> {
    sys.waitid(children, WaitOptions::EXITED).map(drop)
}

/// Waits with `options` for a sleeping child.
fn options(sys: &dyn Sys, options: WaitOptions) -> Result<()> {
    let child = sleeper(sys);
    sys.waitid(child.into(), options).map(drop)
}

#[test]
fn wait_errors_match_linux() {
    hold(ROWS);
}
