//! The children that this process created, in a [`ProcessTable`], and the locks around it.
//!
//! An entry holds a child's number, ordinal and pidfd. The table resolves a [`Pid`] to a child. The
//! handle of a reaped child resolves to no child, and never to another process that reuses its
//! number. An entry is removed under the lock when the child is reaped, so while a thread holds the
//! lock for reading, a child that it finds keeps its number.
//!
//! Signals are blocked while a lock is held. A handler may therefore make any call that
//! signal-safety(7) permits, because the thread that it interrupted never holds the lock.
//!
//! [`super::fork`] and [`super::spawn`] insert children, [`super::wait`] removes them, and
//! [`super::threads`] keeps its threads here, so that a single lock keeps all of this consistent in
//! a forked child.

#![allow(unsafe_code, reason = "the signal mask is the C library's")]

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::convert::{bare, to_sigset};
use super::foreign::Foreign;
use super::kill::{is_group, is_unreaped};
use super::place::CpuPlacement;
use crate::errno::{Errno, Result};
use crate::process::{Pid, Tid};
use crate::signal::SigSet;

/// The table of this process. A thread that acquires both locks acquires [`BIRTHS`] first.
static TABLE: RwLock<ProcessTable> = RwLock::new(ProcessTable::new());

/// The lock on the creation of children. It is held for reading from before a child is created
/// until it is in the table, and for writing to fork or to reap a child that this backend did not
/// create.
static BIRTHS: RwLock<()> = RwLock::new(());

/// Number of entries at which the table is first searched for children that were reaped elsewhere.
const FIRST_SWEEP: usize = 64;

/// Like [`FIRST_SWEEP`], for groups without a leader. Such an entry holds a descriptor until the
/// next search, even if its group no longer exists.
const FIRST_SWEEP_OF_GROUPS: usize = 8;

/// A child that has not been reaped.
#[derive(Debug)]
pub(super) struct ChildEntry {
    birth: u32,
    pidfd: Arc<OwnedFd>,
}

impl ChildEntry {
    /// Returns the descriptor, for use under the lock.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the descriptor, for use after the lock is released.
    pub(super) fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }
}

/// The backend's state for this process; see the module documentation.
#[derive(Debug)]
pub(super) struct ProcessTable {
    children: BTreeMap<i32, ChildEntry>,
    /// Reaped children whose group still has members. Each descriptor still denotes the group.
    groups: BTreeMap<i32, ChildEntry>,
    births: u32,
    sweep_at: usize,
    sweep_groups_at: usize,
    /// The threads that this backend created and that are not joined; the value is `None` while a
    /// thread joins the entry's thread. The entry of an ended thread that is never joined remains
    /// until a new thread reuses its number.
    pub(super) threads: BTreeMap<Tid, Option<libc::pthread_t>>,
    /// `true` if the process was ever a subreaper. Orphans that it adopted then remain its
    /// children.
    pub(super) has_adopted: bool,
    /// The placement of new threads and children.
    pub(super) placement: CpuPlacement,
    /// Handlers that other code installed.
    pub(super) foreign: Foreign,
}

/// The group that a [`Pid`] denotes.
pub(super) enum Group<'a> {
    /// The group that has this number.
    Number(i32),
    /// The group that this child leads, or led before it was reaped.
    Of(i32, BorrowedFd<'a>),
}

impl ProcessTable {
    const fn new() -> Self {
        Self {
            children: BTreeMap::new(),
            groups: BTreeMap::new(),
            births: 0,
            sweep_at: FIRST_SWEEP,
            sweep_groups_at: FIRST_SWEEP_OF_GROUPS,
            threads: BTreeMap::new(),
            has_adopted: false,
            placement: CpuPlacement::new(),
            foreign: Foreign::new(),
        }
    }

    /// Inserts a new child and returns its handle.
    pub(super) fn insert(&mut self, number: i32, pidfd: OwnedFd) -> Pid {
        if self.children.len() >= self.sweep_at {
            self.sweep();
        }
        let pid = self.next(number);
        self.groups.remove(&number);
        let child = ChildEntry { birth: self.births, pidfd: Arc::new(pidfd) };
        self.children.insert(number, child);
        pid
    }

    /// Returns a handle for a child that vanished before a pidfd could be opened.
    pub(super) fn next(&mut self, number: i32) -> Pid {
        self.births += 1;
        Pid::handle(number, self.births)
    }

    /// Returns the child that `pid` denotes.
    pub(super) fn child(&self, pid: Pid) -> Option<&ChildEntry> {
        known(&self.children, pid)
    }

    /// Returns the handle of the child with this number, or a bare number if the child does not
    /// exist.
    pub(super) fn named(&self, number: i32) -> Pid {
        let child = self.children.get(&number).or_else(|| self.groups.get(&number));
        child.map_or(Pid::number_only(number), |child| Pid::handle(number, child.birth))
    }

    /// Returns all children with their numbers.
    pub(super) fn children(&self) -> impl Iterator<Item = (i32, &ChildEntry)> {
        self.children.iter().map(|(number, child)| (*number, child))
    }

    /// Returns `true` if the table contains no child.
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Returns a process's number, for a system call that takes no descriptor.
    pub(super) fn number(&self, pid: Pid) -> Result<i32> {
        if pid.birth().is_some() {
            let child = self.child(pid).ok_or(Errno::ESRCH)?;
            // Other code may have reaped the child.
            if !is_unreaped(child.as_fd()) {
                return Err(Errno::ESRCH);
            }
        }
        Ok(pid.number())
    }

    /// Returns the group that `pid` denotes.
    pub(super) fn group(&self, pid: Pid) -> Result<Group<'_>> {
        if pid.birth().is_none() {
            return Ok(Group::Number(pid.number()));
        }
        let leader = self.child(pid).or_else(|| known(&self.groups, pid)).ok_or(Errno::ESRCH)?;
        Ok(Group::Of(pid.number(), leader.as_fd()))
    }

    /// Returns the number of that group, for a system call that takes no descriptor. A child need
    /// not lead a group yet.
    pub(super) fn group_number(&self, pid: Pid) -> Result<i32> {
        match self.group(pid)? {
            Group::Of(_, leader) if !is_unreaped(leader) && !is_group(leader) => Err(Errno::ESRCH),
            Group::Number(number) | Group::Of(number, _) => Ok(number),
        }
    }

    /// Removes a child that was reaped, but keeps its group while the group has members.
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

    /// Removes children that can no longer be waited for, because SIGCHLD was ignored or other code
    /// reaped them.
    pub(super) fn sweep(&mut self) {
        self.children.retain(|_, child| is_unreaped(child.as_fd()));
        self.sweep_at = (2 * self.children.len()).max(FIRST_SWEEP);
        self.sweep_groups();
    }

    /// Removes groups that no longer have members.
    fn sweep_groups(&mut self) {
        self.groups.retain(|_, led| is_group(led.as_fd()));
        self.sweep_groups_at = (2 * self.groups.len()).max(FIRST_SWEEP_OF_GROUPS);
    }

    /// Clears the table in a forked child, which has neither the parent's children nor its threads.
    pub(super) fn forget(&mut self) {
        self.children.clear();
        self.groups.clear();
        self.births = 0;
        self.sweep_at = FIRST_SWEEP;
        self.sweep_groups_at = FIRST_SWEEP_OF_GROUPS;
        self.threads.clear();
        self.has_adopted = false;
    }
}

fn known(children: &BTreeMap<i32, ChildEntry>, pid: Pid) -> Option<&ChildEntry> {
    let child = children.get(&pid.number())?;
    pid.birth().is_none_or(|birth| birth == child.birth).then_some(child)
}

/// The guard of a lock, which on drop first releases the lock and then restores the mask.
#[derive(Debug)]
pub(super) struct TableGuard<G> {
    guard: G,
    blocked: MaskGuard,
}

impl<G> TableGuard<G> {
    /// Returns the mask that the guard restores on drop.
    pub(super) fn mask_before(&self) -> &libc::sigset_t {
        &self.blocked.before
    }
}

impl<G: Deref> Deref for TableGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for TableGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// Locks the table for reading.
pub(super) fn read() -> TableGuard<RwLockReadGuard<'static, ProcessTable>> {
    let blocked = MaskGuard::new();
    TableGuard { guard: TABLE.read().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// Locks the table for writing.
pub(super) fn write() -> TableGuard<RwLockWriteGuard<'static, ProcessTable>> {
    let blocked = MaskGuard::new();
    TableGuard { guard: TABLE.write().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// Calls `act` with the number of a process, which need not be a child. Returns `ESRCH` for the
/// handle of a reaped child.
pub(super) fn with_number<T>(process: Pid, act: impl FnOnce(i32) -> Result<T>) -> Result<T> {
    if process.birth().is_none() {
        return act(process.number());
    }
    let table = read();
    act(table.number(process)?)
}

/// Returns the handle of a process if it is a child in the table, else its bare number.
pub(super) fn named(number: i32) -> Pid {
    if number <= 0 { bare(number) } else { read().named(number) }
}

/// Announces the creation of a child. While the guard exists, no thread forks or reaps a child that
/// this backend did not create.
pub(super) fn birth() -> TableGuard<RwLockReadGuard<'static, ()>> {
    let blocked = MaskGuard::new();
    TableGuard { guard: BIRTHS.read().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// Excludes the creation of children. While the guard exists, the table contains every child that
/// this backend has created.
pub(super) fn no_birth() -> TableGuard<RwLockWriteGuard<'static, ()>> {
    let blocked = MaskGuard::new();
    TableGuard { guard: BIRTHS.write().unwrap_or_else(PoisonError::into_inner), blocked }
}

/// A guard that blocks all signals in this thread until it is dropped.
#[derive(Debug)]
pub(super) struct MaskGuard {
    before: libc::sigset_t,
}

impl MaskGuard {
    pub(super) fn new() -> Self {
        let all = to_sigset(SigSet::ALL);
        let mut before = to_sigset(SigSet::EMPTY);
        // SAFETY: both sets outlive the call, which cannot fail with these arguments.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        Self { before }
    }
}

impl Drop for MaskGuard {
    fn drop(&mut self) {
        // SAFETY: the set outlives the call, which returns no set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        };
    }
}
