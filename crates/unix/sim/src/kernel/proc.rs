//! A process (§5.2): [`Proc`], and the state that its `p_lock` guards ([`ProcState`]).
//! [`references`](super::references) implements references to a process.

#![allow(unsafe_code, reason = "the state of an ended system is read through its locks")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tontine_unix::{Pid, SigSet, Signal, Usage, WaitStatus};

use super::Kernel;
use super::actions::Actions;
use super::descriptors::DescriptorTable;
use super::image::{ExecFailure, ProgramImage};
use super::limits::{ResourceLimits, UserTimes};
use super::links::Links;
use super::pending::Pending;
use super::session::{GroupSession, NO_TERMINAL, Pgrp};
use super::siglock::SigLock;
use super::thread::{AstFlags, Thread};
use super::users::{Cred, Ids};
use crate::executor::{self, Fiber, Object};
use crate::lock::lock_order::{PLock, RanksBefore, UTimeLock};
use crate::lock::{Holding, Locks, SimpleGuard, SimpleLock, lock_both};

/// A slot, and the process in it, if any. Slots have separate pairs of cache lines, because
/// processors fetch lines in pairs, so one process does not slow down its neighbours. The order of
/// the fields matters: when the compiler chose another place for the state, a signal to a group of
/// 10,000 took a third longer.
#[repr(C, align(128))]
pub(super) struct Proc {
    state: SimpleLock<PLock, ProcState>,
    pub(super) slot: u32,
    /// Number and generation; 0 while the slot is free or its process is being created.
    number: AtomicI32,
    birth: AtomicU32,
    /// Number of references, and the bit [`ENDING`].
    refs: AtomicU32,
    /// The four relation pointers (table 2).
    pub(super) links: Links,
    /// The index among the members of its group; guarded by `pg_lock`.
    pub(super) place_in_group: AtomicU32,
    /// `true` if the process's group counts it as a member whose parent is in another group of the
    /// session; changed only with the relations locked for writing.
    pub(super) qualifies: AtomicBool,
    /// Group and session of a live process: a copy of its state, for threads that count qualified
    /// members. Changed with the relations locked for writing, or under `p_lock` if the process has
    /// neither a parent nor children yet.
    standing: AtomicU64,
    /// `true` if the process inherits the orphans among its descendants; changes under `p_lock`.
    pub(super) subreaper: AtomicBool,
    /// The number of the parent's thread that owns the process while it waits (§6.2); 0 for none.
    pub(super) owner: AtomicI32,
    /// Copies of the users and the session in the state. The process reads them without a lock.
    real: AtomicU32,
    effective: AtomicU32,
    session: AtomicI32,
    /// The process's own terminal, identified by the instance of its lock; see `terminal/own.rs`.
    pub(super) terminal: AtomicU32,
    /// The thread that created this process, while that thread's process is the parent; else 0.
    maker: AtomicI32,
    /// The program, for [`Kernel::program_name`]; the watchdog reads it without a lock.
    pub(super) program: AtomicU32,
    pub(super) siglock: SigLock,
    pub(super) times: SimpleLock<UTimeLock, UserTimes>,
}

/// A unique key of the process in a slot, for holders without a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcKey {
    pub(super) slot: u32,
    pub(super) birth: u32,
}

/// The bit in `refs` that marks the process as ending; no new reference can then be taken.
const ENDING: u32 = 1 << 31;

/// The phase of a process's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The slot is empty, or its process is not ready yet.
    Free,
    /// The process runs, sleeps or is stopped.
    Live,
    /// The process is exiting and discards signals that are sent to it.
    Exiting,
    /// The process has exited, and has not been waited for.
    Zombie,
}

/// The state that `p_lock` guards.
pub(super) struct ProcState {
    pub(super) phase: Phase,
    /// The threads, the oldest first. A single thread needs no allocation.
    pub(super) threads: SmallVec<[ThreadEntry; 1]>,
    /// Ended threads that were not joined, each until another thread receives its number.
    pub(super) ended: BTreeSet<i32>,
    pub(super) actions: Arc<Actions>,
    pub(super) pending: Pending,
    /// The thread that took the last signal that was assigned in turn.
    pub(super) turn: i32,
    /// The mask, if masks belong to processes.
    pub(super) mask: SigSet,
    pub(super) credentials: Cred,
    pub(super) limits: ResourceLimits,
    pub(super) pgrp: Option<Arc<Pgrp>>,
    pub(super) files: DescriptorTable,
    pub(super) nice: i32,
    /// Number of forks in progress (§6.2).
    pub(super) p_forkcnt: u32,
    /// The fiber that waits for forks or for the other threads to end, or for references to be
    /// released.
    pub(super) ender: Option<Fiber>,
    /// The signal that stopped the process, until SIGCONT or SIGKILL cancels the stop. A tracer may
    /// continue the process despite the stop.
    pub(super) stopped: Option<Signal>,
    /// `true` if a thread has taken a stop and will stop the process, unless the stop is cancelled.
    pub(super) stopping: bool,
    /// `true` if SIGCONT arrived while the threads ran because the tracer had continued them: the
    /// parent receives SIGCHLD when a thread next takes a signal.
    pub(super) continue_unreported: bool,
    /// `true` if a thread has taken a signal that ends the process and is about to halt the rest.
    pub(super) dying: bool,
    /// The signal that ends the process, with or without a core dump; set when the signal is sent.
    pub(super) fatal: Option<(Signal, bool)>,
    /// The change that `wait` has not reported to the parent yet.
    pub(super) news: Option<ChildEvent>,
    /// The exit status, once the process has ended.
    pub(super) end: Option<WaitStatus>,
    /// `true` if the process has called exec since it was forked.
    pub(super) executed: bool,
    /// The name that the program gave the process, if it differs from the registered name.
    pub(super) called: Option<Arc<str>>,
    /// The tracing process.
    pub(super) tracer: Option<ProcKey>,
    /// The thread of the tracing process that does the tracing.
    pub(super) tracing: Option<Arc<Thread>>,
    /// The slots of the processes that this process traces and is not the parent of.
    pub(super) tracees: Vec<u32>,
    /// The signal with which the process stopped for its tracer, until the tracer resumes it.
    pub(super) trapped: Option<Signal>,
    /// The signal in `trapped`, until `wait` reports it to the tracer.
    pub(super) unreported: Option<Signal>,
    /// The request with which the tracer resumed the process.
    pub(super) resumed: Option<Resumed>,
    /// The program that the process has passed to exec and not started yet.
    pub(super) image: Option<ProgramImage>,
    /// The error if the process could not exec the program that it was spawned for.
    pub(super) failure: Option<ExecFailure>,
    /// The time at which SIGALRM is due, and the number of the alarm.
    pub(super) alarm: Option<(Duration, u64)>,
    /// The processor on which the process's children run.
    pub(super) place: Option<usize>,
    /// Processor time of children that were waited for.
    pub(super) children_used: Usage,
}

/// A change of a live child that `wait` may report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildEvent {
    Stopped(Signal),
    Continued,
}

/// A thread in the list of its process.
pub(super) struct ThreadEntry {
    pub(super) thread: Arc<Thread>,
    /// The fiber on which the thread sleeps: its own, or in mode `Master` one on processor 0.
    /// `None` until the thread has started.
    pub(super) fiber: Option<Fiber>,
    /// Signals pending for this thread alone.
    pub(super) pending: Pending,
    /// `true` in `sigsuspend`: the thread has a separate mask until a handler has run.
    pub(super) suspended: bool,
    /// `true` while the thread is in `wait`.
    pub(super) waits: bool,
    /// `true` if a child has changed since the thread last checked.
    pub(super) changed: bool,
    /// `true` if the thread has traced a process since it last checked.
    pub(super) traces: bool,
    /// The fiber that joins the thread, if any.
    pub(super) joiner: Option<Fiber>,
}

/// The request with which a stopped tracee continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resumed {
    pub(super) signal: Option<Signal>,
    /// The number and user of the sender, for a signal other than the one with which the tracee
    /// stopped.
    pub(super) sender: (i32, u32),
}

/// Resources of an exiting process, to be released with no lock held.
pub(super) struct ExitResources {
    pub(super) files: DescriptorTable,
    pub(super) tracees: Vec<u32>,
    pub(super) status: WaitStatus,
}

impl Proc {
    pub(super) fn new(slot: u32, state: ProcState) -> Self {
        Self {
            slot,
            number: AtomicI32::new(0),
            birth: AtomicU32::new(0),
            refs: AtomicU32::new(ENDING),
            links: Links::new(),
            place_in_group: AtomicU32::new(0),
            qualifies: AtomicBool::new(false),
            standing: AtomicU64::new(0),
            subreaper: AtomicBool::new(false),
            owner: AtomicI32::new(0),
            real: AtomicU32::new(0),
            effective: AtomicU32::new(0),
            session: AtomicI32::new(0),
            terminal: AtomicU32::new(NO_TERMINAL),
            maker: AtomicI32::new(0),
            program: AtomicU32::new(Kernel::INIT),
            siglock: SigLock::new(slot),
            state: SimpleLock::new(slot, state),
            times: SimpleLock::new(slot, UserTimes::default()),
        }
    }

    /// Returns the handle of the process in the slot.
    pub(super) fn pid(&self) -> Pid {
        Pid::handle(self.number(), self.generation())
    }

    pub(super) fn number(&self) -> i32 {
        executor::looks_at(Object::Process(self.slot));
        self.number.load(Ordering::Relaxed)
    }

    pub(super) fn generation(&self) -> u32 {
        executor::looks_at(Object::Process(self.slot));
        self.birth.load(Ordering::Relaxed)
    }

    /// Returns `true` if `pid` denotes the process in the slot.
    pub(super) fn is_named(&self, pid: Pid) -> bool {
        self.number() == pid.number() && pid.birth().is_none_or(|birth| birth == self.generation())
    }

    /// Returns the key of the process in the slot, for holders without a reference.
    pub(super) fn tenant(&self) -> ProcKey {
        ProcKey { slot: self.slot, birth: self.generation() }
    }

    /// Returns the process's users and session, for permission checks when it sends signals.
    pub(super) fn ids(&self) -> Ids {
        executor::looks_at(Object::Process(self.slot));
        Ids {
            real: self.real.load(Ordering::Relaxed),
            effective: self.effective.load(Ordering::Relaxed),
            session: self.session.load(Ordering::Relaxed),
        }
    }

    /// Copies the process's users. Called under `p_lock`.
    pub(super) fn set_users(&self, credentials: &Cred) {
        executor::changes(Object::Process(self.slot));
        self.real.store(credentials.real, Ordering::Relaxed);
        self.effective.store(credentials.effective, Ordering::Relaxed);
    }

    /// Copies the number of the process's session.
    pub(super) fn set_session(&self, session: i32) {
        executor::changes(Object::Process(self.slot));
        self.session.store(session, Ordering::Relaxed);
    }

    /// Returns the process's group and session, while it is alive.
    pub(super) fn standing(&self) -> Option<GroupSession> {
        executor::looks_at(Object::Process(self.slot));
        let packed = self.standing.load(Ordering::Relaxed);
        (packed != 0)
            .then_some(GroupSession { group: (packed >> 32) as u32, session: packed as u32 })
    }

    /// Sets the process's group.
    pub(super) fn stand_in(&self, group: &Pgrp) {
        executor::changes(Object::Process(self.slot));
        let GroupSession { group, session } = group.standing();
        self.standing.store(u64::from(group) << 32 | u64::from(session), Ordering::Relaxed);
    }

    /// Records that the process is no longer alive.
    pub(super) fn leave_standing(&self) {
        executor::changes(Object::Process(self.slot));
        self.standing.store(0, Ordering::Relaxed);
    }

    /// Returns the thread of the parent that created the process, or 0.
    pub(super) fn maker(&self) -> i32 {
        self.maker.load(Ordering::Relaxed)
    }

    /// Sets the thread of the parent that created the process; 0 if the parent did not create it.
    pub(super) fn is_made_by(&self, tid: i32) {
        self.maker.store(tid, Ordering::Relaxed);
    }

    /// Puts a new process into the slot. Lookups do not find it before its number is published.
    pub(super) fn move_in(&self, number: i32, birth: u32) {
        executor::changes(Object::Process(self.slot));
        self.number.store(number, Ordering::Relaxed);
        self.birth.store(birth, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        self.maker.store(0, Ordering::Relaxed);
        self.subreaper.store(false, Ordering::Relaxed);
        // SYNC tenant: pairs with `Proc::count`.
        self.refs.fetch_and(!ENDING, Ordering::Release);
    }

    /// Empties the slot. Called under `p_lock`.
    pub(super) fn move_out(&self) {
        executor::changes(Object::Process(self.slot));
        self.number.store(0, Ordering::Relaxed);
        self.birth.store(0, Ordering::Relaxed);
    }

    pub(super) fn lock<'a>(&'a self, locks: &'a Locks) -> SimpleGuard<'a, PLock, ProcState> {
        self.state.lock(locks)
    }

    /// Returns `true` if the process's `p_lock` is free. The result is reliable only if no other
    /// thread runs.
    pub(super) fn is_idle(&self) -> bool {
        self.state.is_idle()
    }

    /// Returns the state, even if a thread holds `p_lock`.
    ///
    /// # Safety
    ///
    /// Like [`SimpleLock::value_after_the_end`].
    pub(super) unsafe fn state_after_the_end(&self) -> &ProcState {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.state.value_after_the_end() }
    }

    /// Returns the state of a process that no other thread can access.
    pub(super) fn state_mut(&mut self) -> &mut ProcState {
        self.state.get_mut()
    }

    /// Returns the number of references.
    pub(super) fn references(&self) -> u32 {
        executor::looks_at(Object::Process(self.slot));
        self.refs.load(Ordering::Relaxed) & !ENDING
    }

    /// Takes `p_lock` while `outer`, a lock that comes before it, is held.
    pub(super) fn lock_after<'a, H>(&'a self, outer: &H) -> SimpleGuard<'a, PLock, ProcState>
    where
        H: Holding<'a, Class: RanksBefore<PLock>>,
    {
        outer.then_lock(&self.state)
    }

    /// Takes `p_lock` of this process and of `other`, in the order of their slots.
    pub(super) fn lock_both<'a>(
        &'a self,
        other: &'a Self,
        locks: &'a Locks,
    ) -> (SimpleGuard<'a, PLock, ProcState>, SimpleGuard<'a, PLock, ProcState>) {
        let (mine, others) = lock_both(&self.state, &other.state, locks);
        (mine, others.expect("two processes"))
    }

    /// Prevents new references. Returns `true` if a reference is left.
    pub(super) fn end_references(&self) -> bool {
        executor::changes(Object::Process(self.slot));
        // SYNC references: pairs with the release in `Proc::uncount`.
        self.refs.fetch_or(ENDING, Ordering::Acquire) & !ENDING != 0
    }

    /// Releases a reference. Returns `true` if an exit waits for this release.
    pub(super) fn uncount(&self) -> bool {
        executor::changes(Object::Process(self.slot));
        // SYNC references: pairs with `Proc::end_references`.
        self.refs.fetch_sub(1, Ordering::Release) == ENDING | 1
    }

    /// Takes a reference. Returns `false` if the process is ending.
    pub(super) fn count(&self) -> bool {
        executor::changes(Object::Process(self.slot));
        let mut refs = self.refs.load(Ordering::Relaxed);
        while refs & ENDING == 0 {
            match self.refs.compare_exchange_weak(
                refs,
                refs + 1,
                // SYNC tenant: pairs with `Proc::move_in`.
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => refs = now,
            }
        }
        false
    }
}

impl ProcState {
    /// Creates the state of an empty slot: no signal is pending and no alarm is set.
    pub(super) fn new(credentials: Cred, actions: Arc<Actions>, limits: ResourceLimits) -> Self {
        Self {
            phase: Phase::Free,
            threads: SmallVec::new(),
            ended: BTreeSet::new(),
            actions,
            pending: Pending::default(),
            turn: 0,
            mask: SigSet::EMPTY,
            credentials,
            limits,
            pgrp: None,
            files: DescriptorTable::default(),
            nice: 0,
            p_forkcnt: 0,
            ender: None,
            stopped: None,
            stopping: false,
            continue_unreported: false,
            dying: false,
            fatal: None,
            news: None,
            end: None,
            executed: false,
            called: None,
            tracer: None,
            tracing: None,
            tracees: Vec::new(),
            trapped: None,
            unreported: None,
            resumed: None,
            image: None,
            failure: None,
            alarm: None,
            place: None,
            children_used: Usage::default(),
        }
    }

    /// Creates a process in an empty slot, copying the parent as `fork` does. Data that the slot's
    /// last process already shared with the parent stay shared.
    pub(super) fn become_child_of(&mut self, parent: &Self, thread: Arc<Thread>) {
        let Cred { real, effective, saved, ref user } = parent.credentials;
        (self.credentials.real, self.credentials.effective) = (real, effective);
        self.credentials.saved = saved;
        share(&mut self.credentials.user, user);
        share(&mut self.actions, &parent.actions);
        self.limits = parent.limits;
        self.phase = Phase::Live;
        self.mask = thread.mask();
        self.threads.clear();
        self.threads.push(ThreadEntry::new(thread));
        self.pgrp.clone_from(&parent.pgrp);
        self.files.clone_from(&parent.files);
        self.called.clone_from(&parent.called);
        (self.nice, self.place) = (parent.nice, parent.place);
        self.reset();
    }

    /// Clears the state that the slot's last process left behind.
    fn reset(&mut self) {
        let Self {
            ended,
            pending,
            turn,
            p_forkcnt,
            ender,
            stopped,
            stopping,
            continue_unreported,
            dying,
            fatal,
            news,
            end,
            executed,
            tracer,
            tracing,
            tracees,
            trapped,
            unreported,
            resumed,
            image,
            failure,
            alarm,
            children_used,
            // These are copied from the parent.
            credentials: _,
            actions: _,
            limits: _,
            phase: _,
            mask: _,
            threads: _,
            pgrp: _,
            files: _,
            called: _,
            nice: _,
            place: _,
        } = self;
        ended.clear();
        tracees.clear();
        pending.discard(SigSet::ALL);
        (*turn, *p_forkcnt, *ender, *image, *alarm) = (0, 0, None, None, None);
        (*stopped, *stopping, *dying, *executed) = (None, false, false, false);
        *continue_unreported = false;
        (*news, *end, *tracer, *fatal) = (None, None, None, None);
        *tracing = None;
        (*trapped, *unreported, *resumed, *failure) = (None, None, None, None);
        *children_used = Usage::default();
    }

    /// Begins the exit: from now on, the process discards signals.
    pub(super) fn begin_exit(&mut self) -> ExitResources {
        self.phase = Phase::Exiting;
        self.alarm = None;
        ExitResources {
            files: std::mem::take(&mut self.files),
            tracees: std::mem::take(&mut self.tracees),
            status: self.end.unwrap_or(WaitStatus::Exited(0)),
        }
    }

    /// Sets the mask of all threads except those in `sigsuspend`. Each thread checks which signals
    /// it unblocks.
    pub(super) fn set_mask(&mut self, mask: SigSet) {
        self.mask = mask;
        for member in self.threads.iter().filter(|member| !member.suspended) {
            member.thread.set_mask(mask);
            if !self.pending.set().union(member.pending.set()).difference(mask).is_empty() {
                member.thread.demand(AstFlags::SIGNAL);
                member.wake();
            }
        }
    }

    /// Returns the entry of a thread of this process.
    pub(super) fn member(&mut self, tid: i32) -> Option<&mut ThreadEntry> {
        self.threads.iter_mut().find(|member| member.thread.tid() == tid)
    }

    /// Returns the number of queued signals, for the process and for its threads.
    pub(super) fn queued(&self) -> usize {
        self.threads.iter().map(|member| member.pending.len()).sum::<usize>() + self.pending.len()
    }

    /// Returns all signals that are pending for the process or for any of its threads.
    pub(super) fn pending_anywhere(&self) -> SigSet {
        self.threads.iter().fold(self.pending.set(), |set, member| set.union(member.pending.set()))
    }
}

/// Makes `mine` share the value of `theirs`. Writes nothing if they already share it.
fn share<T>(mine: &mut Arc<T>, theirs: &Arc<T>) {
    if !Arc::ptr_eq(mine, theirs) {
        *mine = Arc::clone(theirs);
    }
}

impl ThreadEntry {
    pub(super) fn new(thread: Arc<Thread>) -> Self {
        Self {
            thread,
            fiber: None,
            pending: Pending::default(),
            suspended: false,
            waits: false,
            changed: false,
            traces: false,
            joiner: None,
        }
    }

    /// Wakes the thread if it sleeps interruptibly.
    pub(super) fn wake(&self) {
        if self.thread.is_sleeping() {
            self.unpark();
        }
    }

    /// Wakes the thread from any sleep; the thread checks its condition again.
    pub(super) fn unpark(&self) {
        if let Some(fiber) = &self.fiber {
            fiber.unpark();
        }
    }
}
