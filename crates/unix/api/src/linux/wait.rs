//! `waitid`, in two steps: a *look*, which may sleep, and then a *take* under the table's lock.
//!
//! A look (`WNOWAIT`) does not change the child. The thread then takes the child through its pidfd
//! and removes it from the table in the same critical section. If several threads wait, one thread
//! takes the child, and the others look again or return `ECHILD`.
//!
//! A single waitid(2) without `WNOWAIT` takes the child before it handles signals, and so does this
//! module. A handler that runs after a look, as SIGCHLD's mostly does, first takes the child that
//! the look has found ([`take_first`]), because the handler may terminate the process or wait
//! itself. Only a default action that stops or terminates the process can occur between look and
//! take. If the backend created every child and no number is reused in between, look and take are
//! one call ([`take_at_once`]).
//!
//! [`Children::Any`] and the groups match children that this backend created. Children that other
//! code of the program creates, with `std::process::Command` or posix_spawn(3), are left to that
//! code. If this process adopts orphans ([`adopts`]), waits match all children, because orphans
//! cannot be distinguished from them.

#![allow(unsafe_code, reason = "waitid(2), whose fifth argument the C library does not pass on")]

use std::cell::{Cell, UnsafeCell};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

use rustix::event::{PollFd, PollFlags, poll};

use super::convert::{check, check_long, from_timeval, to_errno, wait_flags};
use super::groups;
use super::table::{self, ProcessTable};
use crate::errno::{Errno, Result};
use crate::process::Pid;
use crate::signal::Signal;
use crate::wait::{Children, Usage, WaitOptions, WaitStatus, WaitedChild};

/// Period of a poll, in milliseconds, while a foreign child hides the backend's children from a
/// look. The end of a child wakes the poll immediately; stops, and children that another thread
/// creates, are found only when the period has passed.
const LOOK_AGAIN_MS: i64 = 5;

/// The children that a wait selects: `idtype_t` and id.
#[derive(Debug, Clone, Copy)]
enum WaitTarget<'a> {
    Number(i32),
    Held(&'a OwnedFd),
    Group(i32),
    All,
}

/// The result of an attempt to take a child.
#[derive(Debug, Clone, Copy)]
enum TakenChild {
    /// The child was taken.
    Yes(WaitedChild),
    /// Another thread took the child first.
    No,
    /// The child belongs to other code of the program.
    Foreign,
}

thread_local! {
    /// `true` if a handler without SA_RESTART has run since this thread's last wait began.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Records that a handler without SA_RESTART is about to run in this thread.
pub(super) fn interrupt() {
    INTERRUPTED.set(true);
}

/// Waits for a child: `waitid`.
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
    let held = table::read().child(pid).map(table::ChildEntry::pidfd);
    let Some(pidfd) = held else {
        // A bare number may name a child that the program created without the backend.
        let bare = pid.birth().is_none();
        return if bare {
            ask(WaitTarget::Number(pid.number()), options)
        } else {
            Err(Errno::ECHILD)
        };
    };
    loop {
        let taken = look(WaitTarget::Held(&pidfd), options, &|_| {
            let mut table = table::write();
            if !holds(&table, pid.number(), &pidfd) {
                return Err(Errno::ECHILD);
            }
            let taken = take(&mut table, &pidfd, options)?;
            Ok(taken.map_or(TakenChild::No, TakenChild::Yes))
        });
        match taken {
            Ok(Some(TakenChild::Yes(waited))) => return Ok(Some(waited)),
            Ok(Some(TakenChild::No | TakenChild::Foreign)) => {}
            Ok(None) => return Ok(None),
            // Another thread has reaped the child, or no thread can, because SIGCHLD is ignored.
            Err(Errno::ECHILD) => {
                let mut table = table::write();
                // A caller that waits only for stops does not find a zombie, but the zombie still
                // exists.
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
        let target = group.map_or(WaitTarget::All, WaitTarget::Group);
        match look(target, options, &|found| take_found(found, options, adopts)) {
            Err(Errno::ECHILD) => {
                // With `take_at_once`, another thread may have taken a child whose handle it has
                // not yet looked up in the table.
                if !takes_at_once() {
                    table::write().sweep();
                }
                return Err(Errno::ECHILD);
            }
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(TakenChild::Yes(waited))) => return Ok(Some(waited)),
            Ok(Some(TakenChild::No)) => continue,
            Ok(Some(TakenChild::Foreign)) => {}
        }
        // Each further look would find the same foreign child, so each child of the backend is
        // queried separately.
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

/// Returns `true` if the table contains a child in the group, or for `None` any child.
fn any_ours(group: Option<i32>) -> bool {
    if group.is_none() { !table::read().is_empty() } else { !ours(group).is_empty() }
}

/// Returns the table's children in the group; for `None`, all of them.
fn ours(group: Option<i32>) -> Vec<(i32, Arc<OwnedFd>)> {
    let table = table::read();
    let group = group.map(|group| if group == 0 { groups::own() } else { group });
    let meant = table
        .children()
        .filter(|(number, _)| group.is_none_or(|group| groups::of_number(*number) == Ok(group)));
    meant.map(|(number, child)| (number, child.pidfd())).collect()
}

/// Takes the child that a look found.
fn take_found(found: WaitedChild, options: WaitOptions, adopts: bool) -> Result<TakenChild> {
    let number = found.pid.number();
    // While this guard is held, no child is created, so a child that is not in the table will not
    // be inserted later.
    let births = adopts.then(table::no_birth);
    let mut table = table::write();
    let Some(pidfd) = table.child(Pid::number_only(number)).map(table::ChildEntry::pidfd) else {
        drop(table);
        let taken = match births {
            None => return Ok(TakenChild::Foreign),
            Some(_) if options.contains(WaitOptions::NOWAIT) => return Ok(TakenChild::Yes(found)),
            Some(_) => ask(WaitTarget::Number(number), options | WaitOptions::NOHANG),
        };
        return match taken {
            Ok(Some(waited)) => Ok(TakenChild::Yes(waited)),
            Ok(None) | Err(Errno::ECHILD) => Ok(TakenChild::No),
            Err(error) => Err(error),
        };
    };
    let taken = take(&mut table, &pidfd, options)?;
    Ok(taken.map_or(TakenChild::No, TakenChild::Yes))
}

fn take_if_there(
    number: i32,
    pidfd: &Arc<OwnedFd>,
    options: WaitOptions,
) -> Result<Option<WaitedChild>> {
    let mut table = table::write();
    if holds(&table, number, pidfd) { take(&mut table, pidfd, options) } else { Ok(None) }
}

/// Replaces the number of a taken child with its handle. Removes the child from the table if it has
/// ended.
fn noted(table: &mut ProcessTable, mut taken: WaitedChild, options: WaitOptions) -> WaitedChild {
    let number = taken.pid.number();
    taken.pid = table.named(number);
    if taken.status.is_terminated() && !options.contains(WaitOptions::NOWAIT) {
        table.remove(number);
    }
    taken
}

/// Takes a state change of a child in the table, if it has one. Does not sleep.
fn take(
    table: &mut ProcessTable,
    pidfd: &OwnedFd,
    options: WaitOptions,
) -> Result<Option<WaitedChild>> {
    let taken = match ask(WaitTarget::Held(pidfd), options | WaitOptions::NOHANG) {
        Err(Errno::ECHILD) => None,
        other => other?,
    };
    Ok(taken.map(|taken| noted(table, taken, options)))
}

/// Returns `true` if the table still contains this child.
fn holds(table: &ProcessTable, number: i32, pidfd: &Arc<OwnedFd>) -> bool {
    let child = table.child(Pid::number_only(number));
    child.is_some_and(|child| Arc::ptr_eq(&child.pidfd(), pidfd))
}

/// Blocks until a child of the backend has ended or the period has passed.
fn nap(ours: &[(i32, Arc<OwnedFd>)]) -> Result<()> {
    let mut ends: Vec<_> =
        ours.iter().map(|(_, pidfd)| PollFd::new(&**pidfd, PollFlags::IN)).collect();
    let while_ms = rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN_MS * 1_000_000 };
    match poll(&mut ends, Some(&while_ms)) {
        // poll never restarts. The other calls of a wait restart if the handler has SA_RESTART, so
        // this call must restart too.
        Ok(_) | Err(rustix::io::Errno::INTR) if !INTERRUPTED.get() => Ok(()),
        Ok(_) => Err(Errno::EINTR),
        Err(error) => Err(to_errno(error)),
    }
}

/// `true` if each look also takes the child.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Makes later waits treat every child as the backend's, because children from before this process
/// called exec cannot be distinguished from others. Also makes each look take the child, because no
/// number is reused before the child is removed from the table. Forked processes inherit both
/// settings.
pub(super) fn take_at_once() {
    AT_ONCE.store(true, Relaxed);
}

fn takes_at_once() -> bool {
    AT_ONCE.load(Relaxed)
}

/// Returns `true` if a wait also finds children that the backend did not create. The reason is
/// either that all children count as the backend's, or that this process may adopt or have adopted
/// orphans: this program or an earlier one made it a subreaper, or it is the first process of its
/// system.
fn adopts() -> bool {
    if takes_at_once() {
        return true;
    }
    let mut on: libc::c_int = 0;
    // SAFETY: the call writes one int, which outlives the call.
    let result = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut on) };
    let asks = check(result).is_ok() && on != 0;
    asks || rustix::process::getpid().is_init() || table::read().has_adopted
}

/// A look whose result has not been taken yet.
struct PendingWait<'a> {
    /// The result of the look, with number 0 until the kernel has found a child.
    found: UnsafeCell<WaitidResult>,
    /// Takes the child, or records that the look itself has taken it.
    take: &'a dyn Fn(WaitedChild) -> Result<TakenChild>,
    /// The result of the attempt to take, made by the looking thread or by a handler.
    taken: Cell<Option<Result<TakenChild>>>,
}

thread_local! {
    /// The look that this thread is making, or null.
    static LOOK: Cell<*const PendingWait<'static>> = const { Cell::new(ptr::null()) };
}

impl PendingWait<'_> {
    /// Takes the child that the look found, if any, unless it has already been taken. No handler
    /// runs between the check and the take.
    fn finish(&self) {
        // SAFETY: only this thread accesses `found`, and the kernel no longer writes it: the call
        // has returned.
        let found = unsafe { ptr::read_volatile(self.found.get()) }.waited_child();
        if let Some(found) = found {
            let _blocked = table::MaskGuard::new();
            if self.taken.get().is_none() {
                self.taken.set(Some((self.take)(found)));
            }
        }
    }
}

/// Takes the child that this thread's look has found and not yet taken. Called before a handler
/// runs.
pub(super) fn take_first() {
    // SAFETY: the pointer is null or refers to a look on this thread's stack, in a caller's frame:
    // `look` removes the pointer before the look is dropped.
    if let Some(look) = unsafe { LOOK.get().as_ref() } {
        look.finish();
    }
}

/// The look that a handler interrupted, if one was in progress. Restored on drop.
struct Outer(*const PendingWait<'static>);

impl Drop for Outer {
    fn drop(&mut self) {
        LOOK.set(self.0);
        // SYNC look: a handler that interrupts this thread after the fence finds no dropped look.
        compiler_fence(SeqCst);
    }
}

/// Looks for a child, and passes a found child to `take` before other code of this program runs in
/// this thread.
fn look(
    target: WaitTarget<'_>,
    options: WaitOptions,
    take: &dyn Fn(WaitedChild) -> Result<TakenChild>,
) -> Result<Option<TakenChild>> {
    let note = |taken| Ok(TakenChild::Yes(noted(&mut table::write(), taken, options)));
    let (take, look_options): (&dyn Fn(WaitedChild) -> Result<TakenChild>, _) =
        match takes_at_once() {
            true => (&note, options),
            false => (take, options | WaitOptions::NOWAIT),
        };
    let look = PendingWait {
        found: UnsafeCell::new(WaitidResult::nothing()),
        take,
        taken: Cell::new(None),
    };
    // A handler may make a look while the interrupted thread is making one.
    let outer = Outer(LOOK.replace(ptr::from_ref(&look).cast()));
    // SYNC look: a handler that interrupts this thread from here on finds the look.
    compiler_fence(SeqCst);
    let result = ask_into(target, look_options, look.found.get());
    if result.is_ok() {
        look.finish();
    }
    drop(outer);
    result?;
    look.taken.get().transpose()
}

/// The values that waitid(2) writes.
#[derive(Clone, Copy)]
struct WaitidResult {
    info: libc::siginfo_t,
    usage: libc::rusage,
}

impl WaitidResult {
    fn nothing() -> Self {
        // SAFETY: both structures are plain integers, so all zeros are valid.
        unsafe { std::mem::zeroed() }
    }

    /// Returns the child that was found, or `None`.
    fn waited_child(&self) -> Option<WaitedChild> {
        let Self { info, usage } = self;
        // SAFETY: the call filled in the fields that belong to a child, or left the zeros.
        let (number, uid, status) = unsafe { (info.si_pid(), info.si_uid(), info.si_status()) };
        let pid = Pid::number_only(number);
        let status = decode(info.si_code, status);
        (number != 0).then(|| WaitedChild { pid, uid, status, usage: used(usage) })
    }
}

/// Queries the kernel with waitid(2), resource usage included.
fn ask(target: WaitTarget<'_>, options: WaitOptions) -> Result<Option<WaitedChild>> {
    let mut found = WaitidResult::nothing();
    ask_into(target, options, &raw mut found)?;
    Ok(found.waited_child())
}

/// Like [`ask`], but stores the result where a handler may read it.
fn ask_into(target: WaitTarget<'_>, options: WaitOptions, found: *mut WaitidResult) -> Result<()> {
    let (kind, id) = match target {
        WaitTarget::Number(number) => (libc::P_PID, number),
        WaitTarget::Held(pidfd) => (libc::P_PIDFD, pidfd.as_raw_fd()),
        WaitTarget::Group(group) => (libc::P_PGID, group),
        WaitTarget::All => (libc::P_ALL, 0),
    };
    // SAFETY: the pointee belongs to the caller and outlives the call; both pointers refer to
    // its fields.
    let (info_to, usage_to) = unsafe { (&raw mut (*found).info, &raw mut (*found).usage) };
    let flags = wait_flags(options);
    // SAFETY: as above; the call writes nothing else.
    check_long(unsafe { libc::syscall(libc::SYS_waitid, kind, id, info_to, flags, usage_to) })?;
    Ok(())
}

/// Converts code and status. Signals 32 and 33, which the C library reserves, become SIGKILL.
fn decode(code: i32, status: i32) -> WaitStatus {
    // A ptrace stop has an event above the signal's bits, or a bit that marks a system call.
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

/// Returns the user and the system time of a `struct rusage`.
pub(super) fn used(usage: &libc::rusage) -> Usage {
    Usage { user: from_timeval(usage.ru_utime), system: from_timeval(usage.ru_stime) }
}
