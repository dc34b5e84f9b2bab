//! The processes that rows need, and calls that rows share.

use tontine_unix::{
    Errno, Fd, Pid, Resource, Result, Rlimit, SigSet, Signal, SpawnRequest, Sys, Tid, WaitOptions,
};

pub(crate) use crate::children::{SELF, bare, ignore, leader, sleep_on, sleeper};
pub(crate) use crate::systems::CAT;

/// The highest process number, which no process has.
pub(crate) const MISSING: Pid = Pid::number_only(i32::MAX);
pub(crate) const MINUS_ONE: Pid = Pid::number_only(-1);
pub(crate) const LOWEST: Pid = Pid::number_only(i32::MIN);
/// The signal passed by calls that should be refused.
pub(crate) const TERM: Option<Signal> = Some(Signal::TERM);

/// Returns a sleeper that leads its own session.
pub(crate) fn foreigner(sys: &dyn Sys) -> Pid {
    let (told, tell) = sys.pipe().expect("two descriptors");
    let child = sys.fork(move |sys| {
        sys.setsid().expect("the caller leads no group");
        sys.write(tell, b".").expect("the parent reads");
        sleep_on(sys)
    });
    assert_eq!(sys.read(told, &mut [0]), Ok(1));
    child.expect("within the limits")
}

/// Returns a child that has called exec.
pub(crate) fn executed(sys: &dyn Sys) -> Pid {
    let (from, _to) = sys.pipe().expect("two descriptors");
    let mut spawn = SpawnRequest::new(CAT, &["cat"]);
    spawn.descriptors = vec![(from, Fd::STDIN)];
    sys.spawn(&spawn).expect("the program exists")
}

/// Returns a child that has ended and has not been reaped.
pub(crate) fn zombie(sys: &dyn Sys) -> Pid {
    let child = sys.fork(|_| 0).expect("within the limits");
    let look = WaitOptions::EXITED | WaitOptions::NOWAIT;
    sys.waitid(child.into(), look).expect("a child of the caller");
    child
}

/// Returns a child that has been reaped.
pub(crate) fn reaped(sys: &dyn Sys) -> Pid {
    let child = zombie(sys);
    sys.waitpid(child.into(), WaitOptions::empty()).expect("a child of the caller");
    child
}

/// Makes `call` in a child and returns its result.
pub(crate) fn in_child(
    sys: &dyn Sys,
    call: impl FnOnce(&dyn Sys) -> Result<()> + Send + 'static,
) -> Result<()> {
    let child = sys.fork(move |sys| call(sys).map_or_else(Errno::raw, |()| 0));
    let child = child.expect("within the limits");
    let waited = sys.waitpid(child.into(), WaitOptions::empty()).expect("a child of the caller");
    match waited.expect("the wait blocks").status.exited().expect("the child exits") {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Returns the number of a sleeping grandchild.
pub(crate) fn grandchild(sys: &dyn Sys) -> Pid {
    let (told, tell) = sys.pipe().expect("two descriptors");
    let child = sys.fork(move |sys| {
        let number = sleeper(sys).number();
        sys.write(tell, &number.to_ne_bytes()).expect("the parent reads");
        sleep_on(sys)
    });
    child.expect("within the limits");
    let mut number = [0; 4];
    assert_eq!(sys.read(told, &mut number), Ok(4));
    Pid::number_only(i32::from_ne_bytes(number))
}

/// Returns a thread that sleeps while the process lives.
pub(crate) fn sleeping_thread(sys: &dyn Sys) -> Tid {
    let (from, _to) = sys.pipe().expect("two descriptors");
    let body = move |sys: &dyn Sys| {
        let _ = sys.read(from, &mut [0]);
    };
    sys.thread(body).expect("within the limits")
}

/// Changes the caller's user to an unprivileged user that no other process has.
pub(crate) fn demote(sys: &dyn Sys) {
    let uid = 100_000 + sys.getpid().number().unsigned_abs();
    sys.setuid(uid).expect("a privileged caller");
}

/// Blocks a signal.
pub(crate) fn block(sys: &dyn Sys, signal: Signal) {
    let set = SigSet::of(&[signal]);
    sys.sigprocmask(Some((tontine_unix::SigmaskHow::Block, set))).expect("a mask");
}

/// Lowers a limit to `to`.
pub(crate) fn limit(sys: &dyn Sys, resource: Resource, to: u64) {
    sys.setrlimit(resource, Rlimit::of(to)).expect("the limit is lowered");
}

/// Prevents the caller from opening further descriptors.
pub(crate) fn no_descriptor_more(sys: &dyn Sys) {
    limit(sys, Resource::Descriptors, 0);
}

/// Lets the caller open exactly one more descriptor.
pub(crate) fn one_descriptor_more(sys: &dyn Sys) {
    // The lowest free number is assigned first, so all numbers below `second` are in use.
    let (_, second) = sys.pipe().expect("two descriptors");
    sys.close(second).expect("an open descriptor");
    limit(sys, Resource::Descriptors, second.0 as u64 + 1);
}

/// Prevents further signals from being queued for the caller; blocks [`Signal::RTMIN`].
pub(crate) fn no_signal_more(sys: &dyn Sys) {
    block(sys, Signal::RTMIN);
    limit(sys, Resource::PendingSignals, 0);
}
