//! `waitid`: first to look, which may sleep, then to take, under the table's lock.
//!
//! A look (`WNOWAIT`) leaves the child as it is. To take it goes through its pidfd and removes it
//! from the table in the same critical section; of several waiters one takes a child, and the
//! others go on looking or learn that there is none.
//!
//! One waitid(2) that takes has taken when it sees to signals. So here too: a handler that runs
//! behind a look, which SIGCHLD's mostly does, takes first what the look has found
//! ([`take_first`]). It may end its process or wait itself. A stop or an end by default comes
//! between the two all the same. Where every child is one of ours, and no number is given out again
//! meanwhile, look and take are one call ([`take_at_once`]).
//!
//! [`Children::Any`] and the groups mean children that were made here. Those that somebody else in
//! the program made, with `std::process::Command` or posix_spawn(3), stay theirs to wait for,
//! unless this process takes orphans in ([`adopts`]): an orphan cannot be told from them.

#![allow(unsafe_code, reason = "waitid(2), whose fifth argument the C library does not pass on")]

use std::cell::{Cell, UnsafeCell};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

use rustix::event::{PollFd, PollFlags, poll};

use super::convert::{check, check_long, from_timeval, to_errno, wait_flags};
use super::groups;
use super::table::{self, Table};
use crate::errno::{Errno, Result};
use crate::process::Pid;
use crate::signal::Signal;
use crate::wait::{Children, Usage, WaitOptions, WaitStatus, WaitedChild};

/// While children of others hide ours from a look, each of ours is looked at so often, in
/// milliseconds. Ends are seen at once; this is for stops, and for children that another thread
/// makes.
const LOOK_AGAIN_MS: i64 = 5;

/// Whom the kernel is asked about: `idtype_t` and id.
#[derive(Debug, Clone, Copy)]
enum Whom<'a> {
    Number(i32),
    Held(&'a OwnedFd),
    Group(i32),
    All,
}

/// What there was to take.
#[derive(Debug, Clone, Copy)]
enum Taken {
    /// This.
    Yes(WaitedChild),
    /// Somebody else was first.
    No,
    /// It is a child of somebody else in the program.
    Foreign,
}

thread_local! {
    /// `true` if a handler without SA_RESTART has run since this thread's last wait began.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Called before a handler runs that interrupts this thread's calls.
pub(super) fn interrupt() {
    INTERRUPTED.set(true);
}

/// `waitid`.
pub(super) fn wait(children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
    if !options.are_valid() {
        return Err(Errno::EINVAL);
    }
    match children {
        Children::One(pid) => one(pid, options),
        Children::Any => many(None, options),
        Children::OwnGroup => many(Some(0), options),
        Children::Group(group) if group.number() < 0 => Err(Errno::EINVAL),
        Children::Group(group) => {
            let number = groups::member_of(group).map_err(|_| Errno::ECHILD)?;
            many(Some(number), options)
        }
    }
}

fn one(pid: Pid, options: WaitOptions) -> Result<Option<WaitedChild>> {
    let held = table::read().child(pid).map(table::Child::pidfd);
    let Some(pidfd) = held else {
        // By a bare number a program means a child of its own making, too.
        let bare = pid.birth().is_none();
        return if bare { ask(Whom::Number(pid.number()), options) } else { Err(Errno::ECHILD) };
    };
    loop {
        let taken = look(Whom::Held(&pidfd), options, &|_| {
            let mut table = table::write();
            if !holds(&table, pid.number(), &pidfd) {
                return Err(Errno::ECHILD);
            }
            let taken = take(&mut table, &pidfd, options)?;
            Ok(taken.map_or(Taken::No, Taken::Yes))
        });
        match taken {
            Ok(Some(Taken::Yes(waited))) => return Ok(Some(waited)),
            Ok(Some(Taken::No | Taken::Foreign)) => {}
            Ok(None) => return Ok(None),
            // Another thread has waited for it, or nobody can, because SIGCHLD is ignored.
            Err(Errno::ECHILD) => {
                let mut table = table::write();
                // A zombie is no child to a caller that asks for stops alone; it is still there.
                let gone = options.contains(WaitOptions::EXITED) && !takes_at_once();
                if gone && holds(&table, pid.number(), &pidfd) {
                    table.remove(pid.number());
                }
                return Err(Errno::ECHILD);
            }
            Err(error) => return Err(error),
        }
    }
}

fn many(group: Option<i32>, options: WaitOptions) -> Result<Option<WaitedChild>> {
    INTERRUPTED.set(false);
    loop {
        let adopts = adopts();
        if !adopts && !any_ours(group) {
            return Err(Errno::ECHILD);
        }
        let whom = group.map_or(Whom::All, Whom::Group);
        match look(whom, options, &|found| take_found(found, options, adopts)) {
            Err(Errno::ECHILD) => {
                // Who has just taken one at once has yet to look its handle up.
                if !takes_at_once() {
                    table::write().sweep();
                }
                return Err(Errno::ECHILD);
            }
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(Taken::Yes(waited))) => return Ok(Some(waited)),
            Ok(Some(Taken::No)) => continue,
            Ok(Some(Taken::Foreign)) => {}
        }
        // The kernel would tell of that foreign child at each look. So each child of this program
        // is asked by itself.
        let ours = ours(group);
        for (number, pidfd) in &ours {
            if let Some(waited) = take_if_there(*number, pidfd, options)? {
                return Ok(Some(waited));
            }
        }
        if options.contains(WaitOptions::NOHANG) {
            return if ours.is_empty() { Err(Errno::ECHILD) } else { Ok(None) };
        }
        nap(&ours)?;
    }
}

/// Whether any of the table is meant.
fn any_ours(group: Option<i32>) -> bool {
    if group.is_none() { !table::read().is_empty() } else { !ours(group).is_empty() }
}

/// Those of the table that are meant.
fn ours(group: Option<i32>) -> Vec<(i32, Arc<OwnedFd>)> {
    let table = table::read();
    let group = group.map(|group| if group == 0 { groups::own() } else { group });
    let meant = table
        .children()
        .filter(|(number, _)| group.is_none_or(|group| groups::of_number(*number) == Ok(group)));
    meant.map(|(number, child)| (number, child.pidfd())).collect()
}

/// Takes the child that a look found.
fn take_found(found: WaitedChild, options: WaitOptions, adopts: bool) -> Result<Taken> {
    let number = found.pid.number();
    // While this is held no child is made. So one that is not in the table is not about to be.
    let births = adopts.then(table::no_birth);
    let mut table = table::write();
    let Some(pidfd) = table.child(Pid::number_only(number)).map(table::Child::pidfd) else {
        drop(table);
        let taken = match births {
            None => return Ok(Taken::Foreign),
            Some(_) if options.contains(WaitOptions::NOWAIT) => return Ok(Taken::Yes(found)),
            Some(_) => ask(Whom::Number(number), options | WaitOptions::NOHANG),
        };
        return match taken {
            Ok(Some(waited)) => Ok(Taken::Yes(waited)),
            Ok(None) | Err(Errno::ECHILD) => Ok(Taken::No),
            Err(error) => Err(error),
        };
    };
    let taken = take(&mut table, &pidfd, options)?;
    Ok(taken.map_or(Taken::No, Taken::Yes))
}

fn take_if_there(
    number: i32,
    pidfd: &Arc<OwnedFd>,
    options: WaitOptions,
) -> Result<Option<WaitedChild>> {
    let mut table = table::write();
    if holds(&table, number, pidfd) { take(&mut table, pidfd, options) } else { Ok(None) }
}

/// The handle of a child of which something was taken; the table forgets one that has ended.
fn noted(table: &mut Table, mut taken: WaitedChild, options: WaitOptions) -> WaitedChild {
    let number = taken.pid.number();
    taken.pid = table.named(number);
    if taken.status.is_terminated() && !options.contains(WaitOptions::NOWAIT) {
        table.remove(number);
    }
    taken
}

/// Takes, without sleeping, what there is to take of a child of the table.
fn take(table: &mut Table, pidfd: &OwnedFd, options: WaitOptions) -> Result<Option<WaitedChild>> {
    let taken = match ask(Whom::Held(pidfd), options | WaitOptions::NOHANG) {
        Err(Errno::ECHILD) => None,
        other => other?,
    };
    Ok(taken.map(|taken| noted(table, taken, options)))
}

/// Whether this very child is in the table yet.
fn holds(table: &Table, number: i32, pidfd: &Arc<OwnedFd>) -> bool {
    let child = table.child(Pid::number_only(number));
    child.is_some_and(|child| Arc::ptr_eq(&child.pidfd(), pidfd))
}

/// Sleeps until one of ours ends, or it is time to look again.
fn nap(ours: &[(i32, Arc<OwnedFd>)]) -> Result<()> {
    let mut ends: Vec<_> =
        ours.iter().map(|(_, pidfd)| PollFd::new(&**pidfd, PollFlags::IN)).collect();
    let while_ms = rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN_MS * 1_000_000 };
    match poll(&mut ends, Some(&while_ms)) {
        // poll never starts again by itself; the others of this call do, as the handler asked.
        Ok(_) | Err(rustix::io::Errno::INTR) if !INTERRUPTED.get() => Ok(()),
        Ok(_) => Err(Errno::EINTR),
        Err(error) => Err(to_errno(error)),
    }
}

/// Whether a look takes.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// From now on every child is one of ours, for those that this process had before it executed its
/// program cannot be told from others; and a look takes, for no number is given out again before
/// the table knows that its child is gone. Forked processes have it so too.
pub(super) fn take_at_once() {
    AT_ONCE.store(true, Relaxed);
}

fn takes_at_once() -> bool {
    AT_ONCE.load(Relaxed)
}

/// Whether children that were not made here are to be found: orphans come to this process, or may
/// have come, for it asked for them, a program before it did, or it is the first of its system; or
/// all are ours.
fn adopts() -> bool {
    if takes_at_once() {
        return true;
    }
    let mut on: libc::c_int = 0;
    // SAFETY: the call writes one int, which lives across it.
    let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut on) };
    let asks = check(asked).is_ok() && on != 0;
    asks || rustix::process::getpid().is_init() || table::read().has_adopted
}

/// A look, until what it found is taken.
struct Look<'a> {
    /// What the kernel found: no number, as long as it has found nothing.
    found: UnsafeCell<Found>,
    /// Takes it, or notes that the look has.
    take: &'a dyn Fn(WaitedChild) -> Result<Taken>,
    /// What came of it, once somebody has tried: who looked, or a handler in between.
    taken: Cell<Option<Result<Taken>>>,
}

thread_local! {
    /// What this thread looks at, if it does.
    static LOOK: Cell<*const Look<'static>> = const { Cell::new(ptr::null()) };
}

impl Look<'_> {
    /// Takes what was found, unless nothing was or it is taken. No handler comes in between.
    fn finish(&self) {
        // SAFETY: this thread's alone, and the kernel does not write it meanwhile: it has returned.
        let found = unsafe { ptr::read_volatile(self.found.get()) }.told();
        if let Some(found) = found {
            let _blocked = table::Blocked::new();
            if self.taken.get().is_none() {
                self.taken.set(Some((self.take)(found)));
            }
        }
    }
}

/// Before a handler: takes what this thread's look has found and not taken yet.
pub(super) fn take_first() {
    // SAFETY: null, or a look on this thread's stack, below this frame: `look` takes it away before
    // it goes.
    if let Some(look) = unsafe { LOOK.get().as_ref() } {
        look.finish();
    }
}

/// The look that a handler interrupted, if it did; back in its place when this goes.
struct Outer(*const Look<'static>);

impl Drop for Outer {
    fn drop(&mut self) {
        LOOK.set(self.0);
        // SYNC look: a handler that interrupts this very thread behind it finds no look that has
        // gone.
        compiler_fence(SeqCst);
    }
}

/// Looks, and takes what it found, as `take` says, before anything else of this program runs in
/// this thread.
fn look(
    whom: Whom<'_>,
    options: WaitOptions,
    take: &dyn Fn(WaitedChild) -> Result<Taken>,
) -> Result<Option<Taken>> {
    let note = |taken| Ok(Taken::Yes(noted(&mut table::write(), taken, options)));
    let (take, look_options): (&dyn Fn(WaitedChild) -> Result<Taken>, _) = match takes_at_once() {
        true => (&note, options),
        false => (take, options | WaitOptions::NOWAIT),
    };
    let look = Look { found: UnsafeCell::new(Found::nothing()), take, taken: Cell::new(None) };
    // A handler may look while its thread does.
    let outer = Outer(LOOK.replace(ptr::from_ref(&look).cast()));
    // SYNC look: a handler that interrupts this very thread from here on finds the look.
    compiler_fence(SeqCst);
    let asked = ask_into(whom, look_options, look.found.get());
    if asked.is_ok() {
        look.finish();
    }
    drop(outer);
    asked?;
    look.taken.get().transpose()
}

/// What waitid(2) writes.
#[derive(Clone, Copy)]
struct Found {
    info: libc::siginfo_t,
    usage: libc::rusage,
}

impl Found {
    fn nothing() -> Self {
        // SAFETY: both are plain integers, of which all zeros are a value.
        unsafe { std::mem::zeroed() }
    }

    /// How a child was found, if one was.
    fn told(&self) -> Option<WaitedChild> {
        let Self { info, usage } = self;
        // SAFETY: the call filled in the members that belong to a child, or left the zeros.
        let (number, uid, status) = unsafe { (info.si_pid(), info.si_uid(), info.si_status()) };
        let pid = Pid::number_only(number);
        let status = decode(info.si_code, status);
        (number != 0).then(|| WaitedChild { pid, uid, status, usage: used(usage) })
    }
}

/// waitid(2), with the resources used.
fn ask(whom: Whom<'_>, options: WaitOptions) -> Result<Option<WaitedChild>> {
    let mut found = Found::nothing();
    ask_into(whom, options, &raw mut found)?;
    Ok(found.told())
}

/// The same, into what a handler may look at.
fn ask_into(whom: Whom<'_>, options: WaitOptions, found: *mut Found) -> Result<()> {
    let (kind, id) = match whom {
        Whom::Number(number) => (libc::P_PID, number),
        Whom::Held(pidfd) => (libc::P_PIDFD, pidfd.as_raw_fd()),
        Whom::Group(group) => (libc::P_PGID, group),
        Whom::All => (libc::P_ALL, 0),
    };
    // SAFETY: the caller's place lives across the call, and both are parts of it.
    let (info_to, usage_to) = unsafe { (&raw mut (*found).info, &raw mut (*found).usage) };
    let flags = wait_flags(options);
    // SAFETY: as above; the call writes nothing else.
    check_long(unsafe { libc::syscall(libc::SYS_waitid, kind, id, info_to, flags, usage_to) })?;
    Ok(())
}

/// How the child is. Signals 32 and 33, which the C library keeps to itself, are told as SIGKILL.
fn decode(code: i32, status: i32) -> WaitStatus {
    // A stop of ptrace's own has an event above the signal, or a bit that marks a system call.
    let signal = Signal::new(status & 0x7f).unwrap_or(Signal::KILL);
    match code {
        libc::CLD_EXITED => WaitStatus::Exited(status),
        libc::CLD_DUMPED => WaitStatus::Signaled(signal, true),
        libc::CLD_STOPPED => WaitStatus::Stopped(signal),
        libc::CLD_TRAPPED => WaitStatus::Trapped(signal),
        libc::CLD_CONTINUED => WaitStatus::Continued,
        _ => WaitStatus::Signaled(signal, false),
    }
}

/// User and system time of a `struct rusage`.
pub(super) fn used(usage: &libc::rusage) -> Usage {
    Usage { user: from_timeval(usage.ru_utime), system: from_timeval(usage.ru_stime) }
}
