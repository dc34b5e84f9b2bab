//! What this process knows of its own children: [`Table`], and the locks around it.
//!
//! A child is its number, its birth and a pidfd. The table says which child a [`Pid`] means, so
//! that a reaped one is nobody and never another process that got its number. An entry goes when
//! the child is reaped, under the lock: whoever holds the lock for reading and finds a child has a
//! number that stays the child's.
//!
//! Signals are blocked while a lock is held. A handler may therefore call whatever signal-safety(7)
//! allows: it never finds the lock held by the thread that it interrupted.
//!
//! [`super::fork`] and [`super::spawn`] put children in, [`super::wait`] takes them out, and
//! [`super::threads`] keeps its [`Threads`] here, so that one lock makes the whole of it sound in a
//! forked child.

#![allow(unsafe_code, reason = "the signal mask is the C library's")]

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;

use super::convert::{bare, to_sigset};
use super::foreign::Foreign;
use super::kill::{is_anybody, is_group};
use super::place::Placement;
use crate::errno::{Errno, Result};
use crate::process::{Pid, Tid};
use crate::signal::SigSet;

/// The table of this process. Taken after [`BIRTHS`], if both are.
static TABLE: RwLock<Table> = RwLock::new(Table::new());

/// Read by whoever is making a child that is not in the table yet; written by whoever forks or
/// reaps children that nobody here made.
static BIRTHS: RwLock<()> = RwLock::new(());

/// Entries at which the table is first searched for children that somebody else reaped.
const FIRST_SWEEP: usize = 64;

/// The same of groups without their leaders: each that is gone holds a descriptor until then.
const FIRST_SWEEP_OF_GROUPS: usize = 8;

/// One child that was not reaped.
#[derive(Debug)]
pub(super) struct Child {
    birth: u32,
    pidfd: Arc<OwnedFd>,
}

impl Child {
    /// Its descriptor, while the lock is held.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Its descriptor, to be waited for outside of the lock.
    pub(super) fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    children: BTreeMap<i32, Child>,
    /// Reaped children whose group has members yet; the descriptor still names the group.
    groups: BTreeMap<i32, Child>,
    births: u32,
    sweep_at: usize,
    sweep_groups_at: usize,
    /// The threads that were made here.
    pub(super) threads: Threads,
    /// Whether it asked for orphans once. Those that came stay its children.
    pub(super) has_adopted: bool,
    /// Where they run, and the children.
    pub(super) placement: Placement,
    /// Handlers that others installed.
    pub(super) foreign: Foreign,
}

/// Threads that were made here and not joined; `None` while somebody joins.
///
/// One that ended and is never joined stays until a new thread has its number.
#[derive(Debug)]
pub(super) struct Threads(pub(super) BTreeMap<Tid, Option<JoinHandle<()>>>);

impl Threads {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// In a forked child, which has none of them. Their handles are leaked: to drop one would
    /// detach a thread that is not there.
    fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

/// What a [`Pid`] stands for as a group.
pub(super) enum Group<'a> {
    /// Whichever has this number.
    Number(i32),
    /// The one that this process leads, or led before it was reaped.
    Of(i32, BorrowedFd<'a>),
}

impl Table {
    const fn new() -> Self {
        Self {
            children: BTreeMap::new(),
            groups: BTreeMap::new(),
            births: 0,
            sweep_at: FIRST_SWEEP,
            sweep_groups_at: FIRST_SWEEP_OF_GROUPS,
            threads: Threads::new(),
            has_adopted: false,
            placement: Placement::new(),
            foreign: Foreign::new(),
        }
    }

    /// A new child, and the handle for it.
    pub(super) fn insert(&mut self, number: i32, pidfd: OwnedFd) -> Pid {
        if self.children.len() >= self.sweep_at {
            self.sweep();
        }
        let pid = self.next(number);
        self.groups.remove(&number);
        let child = Child { birth: self.births, pidfd: Arc::new(pidfd) };
        self.children.insert(number, child);
        pid
    }

    /// A handle for a child that was gone before anybody could hold it.
    pub(super) fn next(&mut self, number: i32) -> Pid {
        self.births += 1;
        Pid::handle(number, self.births)
    }

    /// The child that `pid` means.
    pub(super) fn child(&self, pid: Pid) -> Option<&Child> {
        known(&self.children, pid)
    }

    /// The handle of whoever has this number, where it is a child here.
    pub(super) fn named(&self, number: i32) -> Pid {
        let child = self.children.get(&number).or_else(|| self.groups.get(&number));
        child.map_or(Pid::number_only(number), |child| Pid::handle(number, child.birth))
    }

    /// All children and their descriptors.
    pub(super) fn children(&self) -> impl Iterator<Item = (i32, &Child)> {
        self.children.iter().map(|(number, child)| (*number, child))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// The number to give to a system call that takes no descriptor.
    pub(super) fn number(&self, pid: Pid) -> Result<i32> {
        if pid.birth().is_some() {
            let child = self.child(pid).ok_or(Errno::ESRCH)?;
            // Somebody else may have reaped it.
            if !is_anybody(child.as_fd()) {
                return Err(Errno::ESRCH);
            }
        }
        Ok(pid.number())
    }

    /// The group that `pid` means.
    pub(super) fn group(&self, pid: Pid) -> Result<Group<'_>> {
        if pid.birth().is_none() {
            return Ok(Group::Number(pid.number()));
        }
        let leader = self.child(pid).or_else(|| known(&self.groups, pid)).ok_or(Errno::ESRCH)?;
        Ok(Group::Of(pid.number(), leader.as_fd()))
    }

    /// The number of that group, for a system call that takes no descriptor. A child need not lead
    /// a group yet.
    pub(super) fn group_number(&self, pid: Pid) -> Result<i32> {
        match self.group(pid)? {
            Group::Of(_, leader) if !is_anybody(leader) && !is_group(leader) => Err(Errno::ESRCH),
            Group::Number(number) | Group::Of(number, _) => Ok(number),
        }
    }

    /// Forgets a child that was reaped, but not its group while that has members.
    pub(super) fn remove(&mut self, number: i32) {
        let Some(child) = self.children.remove(&number) else { return };
        if !is_group(child.as_fd()) {
            return;
        }
        if self.groups.len() >= self.sweep_groups_at {
            self.sweep_groups();
        }
        self.groups.insert(number, child);
    }

    /// Forgets children that are nobody's to wait for: SIGCHLD was ignored, or somebody reaped them
    /// without the table.
    pub(super) fn sweep(&mut self) {
        self.children.retain(|_, child| is_anybody(child.as_fd()));
        self.sweep_at = (2 * self.children.len()).max(FIRST_SWEEP);
        self.sweep_groups();
    }

    /// Forgets groups that are gone.
    fn sweep_groups(&mut self) {
        self.groups.retain(|_, led| is_group(led.as_fd()));
        self.sweep_groups_at = (2 * self.groups.len()).max(FIRST_SWEEP_OF_GROUPS);
    }

    /// In a forked child: it has neither the parent's children nor its threads.
    pub(super) fn forget(&mut self) {
        self.children.clear();
        self.groups.clear();
        self.births = 0;
        self.sweep_at = FIRST_SWEEP;
        self.sweep_groups_at = FIRST_SWEEP_OF_GROUPS;
        self.threads.forget();
        self.has_adopted = false;
    }
}

fn known(children: &BTreeMap<i32, Child>, pid: Pid) -> Option<&Child> {
    let child = children.get(&pid.number())?;
    pid.birth().is_none_or(|birth| birth == child.birth).then_some(child)
}

/// A lock's guard; when it goes, the lock goes first and then the mask comes back.
#[derive(Debug)]
pub(super) struct Held<G> {
    guard: G,
    blocked: Blocked,
}

impl<G> Held<G> {
    /// The mask that comes back.
    pub(super) fn mask_before(&self) -> &libc::sigset_t {
        &self.blocked.before
    }
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// The table, to look at.
pub(super) fn read() -> Held<RwLockReadGuard<'static, Table>> {
    let blocked = Blocked::new();
    Held { guard: TABLE.read().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// The table, to change.
pub(super) fn write() -> Held<RwLockWriteGuard<'static, Table>> {
    let blocked = Blocked::new();
    Held { guard: TABLE.write().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// The process of this number, from wherever; `ESRCH` for a handle of one that was reaped.
pub(super) fn with_number<T>(process: Pid, act: impl FnOnce(i32) -> Result<T>) -> Result<T> {
    if process.birth().is_none() {
        return act(process.number());
    }
    let table = read();
    act(table.number(process)?)
}

/// The handle of a process where it is a child here, else its number.
pub(super) fn named(number: i32) -> Pid {
    if number <= 0 { bare(number) } else { read().named(number) }
}

/// While it is held, no child that nobody here made is reaped, and nobody forks.
pub(super) fn birth() -> Held<RwLockReadGuard<'static, ()>> {
    let blocked = Blocked::new();
    Held { guard: BIRTHS.read().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// While it is held, every child that was made here is in the table.
pub(super) fn no_birth() -> Held<RwLockWriteGuard<'static, ()>> {
    let blocked = Blocked::new();
    Held { guard: BIRTHS.write().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// All signals blocked in this thread, until it goes.
#[derive(Debug)]
pub(super) struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    pub(super) fn new() -> Self {
        let all = to_sigset(SigSet::ALL);
        let mut before = to_sigset(SigSet::EMPTY);
        // SAFETY: both sets live across the call, which cannot fail with these arguments.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        Self { before }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set lives across the call; no set is asked for.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        };
    }
}
