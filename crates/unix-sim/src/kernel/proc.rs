//! A process (§5.2): [`Proc`], and what its `p_lock` guards ([`ProcState`]). How others refer to it
//! stands in [`references`](super::references).

#![allow(unsafe_code, reason = "a system that has ended is looked at through its locks")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tontine_unix::{Pid, SigSet, Signal, Usage, WaitStatus};

use super::Kernel;
use super::actions::Actions;
use super::exec::{Failure, Image};
use super::family::Links;
use super::files::Files;
use super::limits::{Limits, Times};
use super::pending::Pending;
use super::pgrp::Pgrp;
use super::siglock::SigLock;
use super::terminal::NO_TERMINAL;
use super::thread::{Attention, Thread};
use super::tracing::Resumed;
use super::users::{Credentials, Ids};
use crate::executor::{self, Fiber, Object};
use crate::lock::lock_order::{Before, PLock, UTimeLock};
use crate::lock::{Holding, Locks, SimpleGuard, SimpleLock, lock_both};

/// A slot, and the process in it if there is one. On cache lines of its own, and these in pairs, as
/// processors fetch them: what one process does does not slow its neighbours. In this order: where
/// the compiler moved the state, a signal to a group of 10,000 took a third longer.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Proc {
    state: SimpleLock<PLock, ProcState>,
    pub(super) slot: u32,
    /// Number and birth; 0 while nobody is in the slot, or an embryo.
    number: AtomicI32,
    birth: AtomicU32,
    /// References, and [`ENDING`].
    refs: AtomicU32,
    /// The four relation pointers (table 2).
    pub(super) links: Links,
    /// Where it stands among the members of its group; guarded by `pg_lock`.
    pub(super) place_in_group: AtomicU32,
    /// Whether its group counts it as one whose parent cares for the group; changes under relations
    /// for writing.
    pub(super) qualifies: AtomicBool,
    /// Its group and its session while it is alive: a copy of what its state says, for those that
    /// count who cares for a group. Changes under relations for writing; of one that has no parent
    /// yet and no children, under its `p_lock`.
    standing: AtomicU64,
    /// Whether it inherits the orphans below it; changes under `p_lock`.
    pub(super) subreaper: AtomicBool,
    /// Which thread of the parent has it while it waits (§6.2), by thread number; 0 for none.
    pub(super) owner: AtomicI32,
    /// Copies of what its state says of its users and its session, for itself to read without a
    /// lock.
    real: AtomicU32,
    effective: AtomicU32,
    session: AtomicI32,
    /// The terminal that is its own, by the instance of its lock: see `terminal/own.rs`.
    pub(super) terminal: AtomicU32,
    /// The thread that made it, while its process is the parent; else 0.
    maker: AtomicI32,
    /// What it runs, by [`Kernel::program_name`]; for the watchdog, who takes no lock.
    pub(super) program: AtomicU32,
    pub(super) siglock: SigLock,
    pub(super) times: SimpleLock<UTimeLock, Times>,
}

/// Who is in a slot, for those that keep no reference: the slot's next tenant is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) slot: u32,
    pub(super) birth: u32,
}

/// In `refs`: the process ends, and nobody gets a new reference.
const ENDING: u32 = 1 << 31;

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody is here, or not yet.
    Free,
    /// It runs, sleeps or is stopped.
    Live,
    /// It throws away what is sent to it.
    Exiting,
    /// It waits to be waited for.
    Zombie,
}

/// What `p_lock` guards.
#[derive(Debug)]
pub(super) struct ProcState {
    pub(super) phase: Phase,
    /// The oldest first. One alone takes no memory elsewhere.
    pub(super) threads: SmallVec<[Member; 1]>,
    /// Threads that ended and nobody has joined; each until another thread has its number.
    pub(super) ended: BTreeSet<i32>,
    pub(super) actions: Arc<Actions>,
    pub(super) pending: Pending,
    /// Who took a signal in turn last.
    pub(super) turn: i32,
    /// The mask, where it is the process's.
    pub(super) mask: SigSet,
    pub(super) credentials: Credentials,
    pub(super) limits: Limits,
    pub(super) pgrp: Option<Arc<Pgrp>>,
    pub(super) files: Files,
    pub(super) nice: i32,
    /// Forks under way (§6.2).
    pub(super) p_forkcnt: u32,
    /// Whoever waits for forks to end, for the other threads to end, or for references to be
    /// dropped.
    pub(super) ender: Option<Fiber>,
    /// The signal that stopped it, until SIGCONT or SIGKILL cancels the stop. Meanwhile its tracer
    /// may continue it.
    pub(super) stopped: Option<Signal>,
    /// A thread has taken a stop and will stop the process, unless that is cancelled before.
    pub(super) stopping: bool,
    /// SIGCONT arrived while its threads ran because its tracer had continued them: the parent gets
    /// SIGCHLD when a thread next takes a signal.
    pub(super) continue_unreported: bool,
    /// A thread has taken what ends the process, and is about to halt the others.
    pub(super) dying: bool,
    /// The signal that ends it, and whether with a core, from the moment when it is sent.
    pub(super) doomed: Option<(Signal, bool)>,
    /// What the parent has not been told by `wait` yet.
    pub(super) news: Option<News>,
    /// How it ended, once it has.
    pub(super) end: Option<WaitStatus>,
    /// It has executed since it was forked.
    pub(super) executed: bool,
    /// What its program calls itself, where that is not its registered name.
    pub(super) called: Option<Arc<str>>,
    /// Whoever traces it.
    pub(super) tracer: Option<Tenant>,
    /// Which thread of it does.
    pub(super) tracing: Option<Arc<Thread>>,
    /// Those that it traces and is not the parent of, by their slots.
    pub(super) tracees: Vec<u32>,
    /// The signal with which it stopped for its tracer, until that resumes it.
    pub(super) trapped: Option<Signal>,
    /// The same, until the tracer is told by `wait`.
    pub(super) untold: Option<Signal>,
    /// What a stopped tracee was told to do by its tracer.
    pub(super) resumed: Option<Resumed>,
    /// What it has executed and not begun.
    pub(super) image: Option<Image>,
    /// Why it could not execute what it was spawned for.
    pub(super) failure: Option<Failure>,
    /// SIGALRM is due then; and which of all alarms it is.
    pub(super) alarm: Option<(Duration, u64)>,
    /// On which processor its children run.
    pub(super) place: Option<usize>,
    /// Used by children that were waited for.
    pub(super) children_used: Usage,
}

/// What `wait` may find of a child that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Stopped(Signal),
    Continued,
}

/// A thread in its process's list.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) thread: Arc<Thread>,
    /// What it sleeps on: its own fiber, or in mode `Master` one on processor 0. `None` until it
    /// has begun.
    pub(super) fiber: Option<Fiber>,
    /// Sent to this thread alone.
    pub(super) pending: Pending,
    /// It has a mask of its own until a handler has run: it is in `sigsuspend`.
    pub(super) suspended: bool,
    /// It is in `wait`.
    pub(super) waits: bool,
    /// A child has changed since it looked.
    pub(super) changed: bool,
    /// It has traced somebody since it looked.
    pub(super) traces: bool,
    /// Who joins it, once somebody does.
    pub(super) joiner: Option<Fiber>,
}

/// A group and its session, by their numbers, which are nobody else's while a member lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) group: u32,
    pub(super) session: u32,
}

/// What a process that exits had, to be let go of with no lock held.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) files: Files,
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
            links: Links::new(slot),
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
            times: SimpleLock::new(slot, Times::default()),
        }
    }

    /// The handle of who is in the slot.
    pub(super) fn pid(&self) -> Pid {
        Pid::handle(self.number(), self.birth())
    }

    pub(super) fn number(&self) -> i32 {
        executor::looks_at(Object::Process(self.slot));
        self.number.load(Ordering::Relaxed)
    }

    pub(super) fn birth(&self) -> u32 {
        executor::looks_at(Object::Process(self.slot));
        self.birth.load(Ordering::Relaxed)
    }

    /// Whether `pid` means who is in the slot.
    pub(super) fn is_named(&self, pid: Pid) -> bool {
        self.number() == pid.number() && pid.birth().is_none_or(|birth| birth == self.birth())
    }

    /// Who is in the slot, for those that keep no reference.
    pub(super) fn tenant(&self) -> Tenant {
        Tenant { slot: self.slot, birth: self.birth() }
    }

    /// Who it is to those that it signals.
    pub(super) fn ids(&self) -> Ids {
        executor::looks_at(Object::Process(self.slot));
        Ids {
            real: self.real.load(Ordering::Relaxed),
            effective: self.effective.load(Ordering::Relaxed),
            session: self.session.load(Ordering::Relaxed),
        }
    }

    /// Copies its users. Under `p_lock`.
    pub(super) fn set_users(&self, credentials: &Credentials) {
        executor::changes(Object::Process(self.slot));
        self.real.store(credentials.real, Ordering::Relaxed);
        self.effective.store(credentials.effective, Ordering::Relaxed);
    }

    /// Copies its session's number.
    pub(super) fn set_session(&self, session: i32) {
        executor::changes(Object::Process(self.slot));
        self.session.store(session, Ordering::Relaxed);
    }

    /// The group and the session that it belongs to, while it is alive.
    pub(super) fn standing(&self) -> Option<Standing> {
        executor::looks_at(Object::Process(self.slot));
        let packed = self.standing.load(Ordering::Relaxed);
        (packed != 0).then_some(Standing { group: (packed >> 32) as u32, session: packed as u32 })
    }

    /// It belongs to this group now.
    pub(super) fn stand_in(&self, group: &Pgrp) {
        executor::changes(Object::Process(self.slot));
        let Standing { group, session } = group.standing();
        self.standing.store(u64::from(group) << 32 | u64::from(session), Ordering::Relaxed);
    }

    /// It is not alive any more.
    pub(super) fn stands_no_more(&self) {
        executor::changes(Object::Process(self.slot));
        self.standing.store(0, Ordering::Relaxed);
    }

    /// The thread of its parent that made it, or 0.
    pub(super) fn maker(&self) -> i32 {
        self.maker.load(Ordering::Relaxed)
    }

    /// A thread of its parent has made it; 0: somebody else's.
    pub(super) fn is_made_by(&self, tid: i32) {
        self.maker.store(tid, Ordering::Relaxed);
    }

    /// Lets a new process in. Nobody finds it before its number is published.
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

    /// Nobody is in the slot any more. Called under `p_lock`.
    pub(super) fn move_out(&self) {
        executor::changes(Object::Process(self.slot));
        self.number.store(0, Ordering::Relaxed);
        self.birth.store(0, Ordering::Relaxed);
    }

    pub(super) fn lock<'a>(&'a self, locks: &'a Locks) -> SimpleGuard<'a, PLock, ProcState> {
        self.state.lock(locks)
    }

    /// Whether nobody has its `p_lock` or its family's lock. Known for certain where nobody else
    /// runs.
    pub(super) fn is_idle(&self) -> bool {
        self.state.is_idle() && self.links.are_idle()
    }

    /// What `p_lock` guards, though somebody may hold it.
    ///
    /// # Safety
    ///
    /// As for [`SimpleLock::value_after_the_end`].
    pub(super) unsafe fn state_after_the_end(&self) -> &ProcState {
        // SAFETY: the caller's promise.
        unsafe { self.state.value_after_the_end() }
    }

    /// What `p_lock` guards, of a process that nobody else can know of.
    pub(super) fn state_mut(&mut self) -> &mut ProcState {
        self.state.get_mut()
    }

    /// References that are held.
    pub(super) fn references(&self) -> u32 {
        executor::looks_at(Object::Process(self.slot));
        self.refs.load(Ordering::Relaxed) & !ENDING
    }

    /// `p_lock`, while a lock is held that comes before it.
    pub(super) fn lock_after<'a, H>(&'a self, outer: &H) -> SimpleGuard<'a, PLock, ProcState>
    where
        H: Holding<'a, Class: Before<PLock>>,
    {
        outer.then_lock(&self.state)
    }

    /// `p_lock` of this and of another process, in the order of their slots.
    pub(super) fn lock_both<'a>(
        &'a self,
        other: &'a Self,
        locks: &'a Locks,
    ) -> (SimpleGuard<'a, PLock, ProcState>, SimpleGuard<'a, PLock, ProcState>) {
        let (mine, others) = lock_both(&self.state, &other.state, locks);
        (mine, others.expect("two processes"))
    }

    /// From now on there is no new reference; returns whether there is one still.
    pub(super) fn end_references(&self) -> bool {
        executor::changes(Object::Process(self.slot));
        // SYNC references: pairs with the release in `Proc::uncount`.
        self.refs.fetch_or(ENDING, Ordering::Acquire) & !ENDING != 0
    }

    /// Counts a reference less; whether an exit waits for just that.
    pub(super) fn uncount(&self) -> bool {
        executor::changes(Object::Process(self.slot));
        // SYNC references: pairs with `Proc::end_references`.
        self.refs.fetch_sub(1, Ordering::Release) == ENDING | 1
    }

    /// Counts a reference; false if the process is ending.
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
    /// A process with one thread, nothing pending and no alarm.
    pub(super) fn new(credentials: Credentials, actions: Arc<Actions>, limits: Limits) -> Self {
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
            files: Files::default(),
            nice: 0,
            p_forkcnt: 0,
            ender: None,
            stopped: None,
            stopping: false,
            continue_unreported: false,
            dying: false,
            doomed: None,
            news: None,
            end: None,
            executed: false,
            called: None,
            tracer: None,
            tracing: None,
            tracees: Vec::new(),
            trapped: None,
            untold: None,
            resumed: None,
            image: None,
            failure: None,
            alarm: None,
            place: None,
            children_used: Usage::default(),
        }
    }

    /// Makes a process in an empty slot, as `fork` makes it of its parent. What the slot's last
    /// process shared with that already stays shared.
    pub(super) fn become_child_of(&mut self, parent: &Self, thread: Arc<Thread>) {
        let Credentials { real, effective, saved, ref user } = parent.credentials;
        (self.credentials.real, self.credentials.effective) = (real, effective);
        self.credentials.saved = saved;
        share(&mut self.credentials.user, user);
        share(&mut self.actions, &parent.actions);
        self.limits = parent.limits;
        self.phase = Phase::Live;
        self.mask = thread.mask();
        self.threads.clear();
        self.threads.push(Member::new(thread));
        self.pgrp.clone_from(&parent.pgrp);
        self.files.clone_from(&parent.files);
        self.called.clone_from(&parent.called);
        (self.nice, self.place) = (parent.nice, parent.place);
        self.begin_afresh();
    }

    /// Forgets what the slot's last process was up to.
    fn begin_afresh(&mut self) {
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
            doomed,
            news,
            end,
            executed,
            tracer,
            tracing,
            tracees,
            trapped,
            untold,
            resumed,
            image,
            failure,
            alarm,
            children_used,
            // As the parent has them.
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
        (*news, *end, *tracer, *doomed) = (None, None, None, None);
        *tracing = None;
        (*trapped, *untold, *resumed, *failure) = (None, None, None, None);
        *children_used = Usage::default();
    }

    /// From now on the process throws away what it is sent.
    pub(super) fn begin_exit(&mut self) -> Left {
        self.phase = Phase::Exiting;
        self.alarm = None;
        Left {
            files: std::mem::take(&mut self.files),
            tracees: std::mem::take(&mut self.tracees),
            status: self.end.unwrap_or(WaitStatus::Exited(0)),
        }
    }

    /// A process that is traced no more.
    /// Sets the mask of all threads but those that are in `sigsuspend`; each looks what it lets in.
    pub(super) fn set_mask(&mut self, mask: SigSet) {
        self.mask = mask;
        for member in self.threads.iter().filter(|member| !member.suspended) {
            member.thread.set_mask(mask);
            if !self.pending.set().union(member.pending.set()).difference(mask).is_empty() {
                member.thread.demand(Attention::SIGNAL);
                member.wake();
            }
        }
    }

    /// The entry of a thread of this process.
    pub(super) fn member(&mut self, tid: i32) -> Option<&mut Member> {
        self.threads.iter_mut().find(|member| member.thread.tid() == tid)
    }

    /// How many signals are queued, for the process or for one thread.
    pub(super) fn queued(&self) -> usize {
        self.threads.iter().map(|member| member.pending.len()).sum::<usize>() + self.pending.len()
    }

    /// Everything that is pending, for the process or for one thread.
    pub(super) fn pending_anywhere(&self) -> SigSet {
        self.threads.iter().fold(self.pending.set(), |set, member| set.union(member.pending.set()))
    }
}

/// Makes `mine` another name for what `theirs` is; nothing is written where it is that already.
fn share<T>(mine: &mut Arc<T>, theirs: &Arc<T>) {
    if !Arc::ptr_eq(mine, theirs) {
        *mine = Arc::clone(theirs);
    }
}

impl Member {
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

    /// Wakes it if it sleeps so that a signal may.
    pub(super) fn wake(&self) {
        if self.thread.is_sleeping() {
            self.unpark();
        }
    }

    /// Wakes it whatever it sleeps for; it looks again.
    pub(super) fn unpark(&self) {
        if let Some(fiber) = &self.fiber {
            fiber.unpark();
        }
    }
}
