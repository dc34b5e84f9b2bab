//! `exit` (§4.1, §6.2): the thread that ends a process, and the order of the steps.
//! docs/internals/races.md describes the steps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{ActionFlags, Pid, SigCode, SigInfo, SigSet, Signal, WaitStatus};

use super::Kernel;
use super::call::{Caller, ExitReason};
use super::family::WrittenRelations;
use super::generate::To;
use super::proc::{ExitResources, Phase, Proc, ProcKey, ProcState, ThreadEntry};
use super::session::Pgrp;
use super::thread::AstFlags;
use crate::costs::CostKind;
use crate::executor::{self, At};

impl Caller<'_> {
    /// Begins to end the process, unless another thread is already ending it: halts all other
    /// threads, and makes this thread leave its program.
    pub(super) fn end_with(&self, status: WaitStatus) {
        loop {
            match self.sig_lock_or_return() {
                Ok(locked) => {
                    locked.sig_lock_to_exit(&self.thread);
                    break;
                }
                Err(_) if self.thread.attention().contains(AstFlags::HALT) => {
                    self.leaving.set(Some(ExitReason::Halt));
                    return;
                }
                // Another thread is delivering a signal, which takes only a moment.
                Err(_) => {
                    self.thread.settle(AstFlags::BLOCK);
                    self.proc.siglock.block(&self.kernel.locks);
                }
            }
        }
        let mut state = self.state();
        state.end = Some(status);
        self.halt_others(&state);
        drop(state);
        self.leaving.set(Some(ExitReason::Exit));
    }

    /// Marks all other threads for termination, and wakes them. Called under `p_lock`.
    pub(super) fn halt_others(&self, state: &ProcState) {
        for member in state.threads.iter().filter(|other| other.thread.tid() != self.thread.tid()) {
            member.thread.demand(AstFlags::HALT);
            member.unpark();
        }
    }

    /// Waits until no other thread and no fork of the process is left (§6.2), and calls `then` in
    /// the critical section that establishes this.
    pub(super) fn await_alone<T>(&self, then: impl FnOnce(&mut ProcState) -> T) -> T {
        loop {
            {
                let mut state = self.state();
                if state.threads.len() == 1 && state.p_forkcnt == 0 {
                    state.ender = None;
                    return then(&mut state);
                }
                state.ender = Some(executor::current());
            }
            executor::park();
        }
    }

    /// Performs the exit. Called by the last thread of the process, after its program's stack has
    /// been unwound.
    pub(super) fn exit_process(&self) {
        let ExitResources { files, tracees, status } = self.await_alone(ProcState::begin_exit);
        self.kernel.leave_session(self.proc);
        // As on Linux, files are released after the process has left the session, so a terminal
        // that the release hangs up has no owner.
        drop(files);
        self.kernel.await_unreferenced(self.proc);
        executor::spend(CostKind::Exit);
        if !self.is_process() {
            self.give_number_back();
        }
        self.kernel.release_tracees(self.proc, tracees);
        self.thread.leaves();
        let orphaned = self.kernel.become_zombie(self.proc, status);
        for group in orphaned {
            self.kernel.hang_up_if_stopped(&group);
        }
        self.kernel.check_groups();
    }
}

impl Kernel {
    /// Waits for the last reference (§5.2) to an exiting process; no new reference can be counted.
    pub(super) fn await_unreferenced(&self, proc: &Proc) {
        if proc.end_references() {
            self.await_last_reference(proc);
        }
    }

    /// Waits for the drop of the last reference. The thread that drops it checks under `p_lock`
    /// which fiber waits.
    #[cold]
    fn await_last_reference(&self, proc: &Proc) {
        proc.lock(&self.locks).ender = Some(executor::current());
        while proc.end_references() {
            executor::park();
        }
        proc.lock(&self.locks).ender = None;
    }

    /// Reparents the children, makes the process a zombie and notifies its parent. Returns the
    /// groups that become orphaned.
    fn become_zombie(&self, proc: &Proc, status: WaitStatus) -> Vec<Arc<Pgrp>> {
        let mut orphaned = Vec::new();
        if !self.stays_childless(proc) {
            self.reparent_children(proc, &mut orphaned);
        }
        if self.runs_program(proc) {
            self.close(status);
        }
        let (relations, parent) = self.write_parent(proc);
        // This happens under the relations: the parent may be moving the process to another group,
        // and a tracer may be detaching from it.
        let (_threads, group, tracer, notice) = {
            let mut state = proc.lock(&self.locks);
            self.discard(&mut state, SigSet::ALL);
            state.phase = Phase::Zombie;
            proc.leave_standing();
            let tracer = self.other_tracer(proc, &state);
            let notice = Notice::of(proc, &state);
            // A group that does not count the process need not be recounted.
            let counted = proc.qualifies.load(Ordering::Relaxed);
            let group = state.pgrp.as_ref().filter(|_| counted).cloned();
            (std::mem::take(&mut state.threads), group, tracer, notice)
        };
        self.recount(proc, group.as_ref(), &mut orphaned);
        if let Some(tracer) = tracer {
            // The parent is notified after the tracer has waited for the process, which may happen
            // immediately.
            drop(relations);
            self.notify_tracer(tracer, notice.info);
        } else {
            self.end_for(relations, parent, proc, notice, None);
        }
        orphaned
    }

    /// Notifies the parent of a process that has ended, unless the parent was already `notified`.
    /// Removes the process if the parent keeps no zombies.
    pub(super) fn end_for(
        &self,
        relations: WrittenRelations<'_>,
        parent: Option<&Proc>,
        proc: &Proc,
        notice: Notice,
        notified: Option<bool>,
    ) {
        let notify = || parent.is_none_or(|parent| self.notify_end(parent, proc, notice));
        if !notified.unwrap_or_else(notify) {
            return;
        }
        if let Some(parent) = parent {
            self.unlink(parent, proc);
        }
        // The parent no longer has this child, so lookups must no longer find its number.
        self.pids.hide(proc.number());
        drop(relations);
        self.reap(proc);
    }

    /// Posts SIGCHLD for a child that has ended, and wakes the threads that wait. Returns `true` if
    /// the parent keeps no zombies. The caller holds the relations locked, so that no thread waits
    /// for the child before this function is done.
    fn notify_end(&self, parent: &Proc, child: &Proc, notice: Notice) -> bool {
        let Notice { info, traced, failed } = notice;
        let mut state = parent.lock(&self.locks);
        // A parent that traces its child is notified of the end, regardless of its action for
        // SIGCHLD.
        let unwanted = self.is_init(parent) || (!traced && self.auto_reaps(&state));
        // A child whose spawn failed does not count, but a thread may be waiting for only that
        // child.
        let vanishes = unwanted || failed;
        // An ignored signal is dropped when it is posted, unless it is blocked. A parent that
        // ignores SIGCHLD is notified only if the child is a tracee.
        let heard = !failed && (traced || !Self::ignores(&state, Signal::CHLD));
        if heard {
            self.post_own(&mut state, info, To::Near(child.maker()));
        }
        self.set_changed(parent, child, true);
        wake_waiters(&mut state);
        vanishes
    }

    /// Returns `true` if the children of a process leave no zombies.
    pub(super) fn auto_reaps(&self, state: &ProcState) -> bool {
        let flags = state.actions.of(Signal::CHLD).flags;
        Self::ignores(state, Signal::CHLD) || flags.contains(ActionFlags::NOCLDWAIT)
    }

    /// Sends SIGCHLD to the parent of a process that stopped or continues, and wakes the threads
    /// that wait.
    pub(super) fn notify_parent(&self, proc: &Proc, code: SigCode, status: i32) {
        let (pid, uid) = (proc.number(), proc.lock(&self.locks).credentials.real);
        let (_relations, parent) = self.read_parent(proc);
        let Some(parent) = parent else { return };
        let mut state = parent.lock(&self.locks);
        let flags = state.actions.of(Signal::CHLD).flags;
        if !flags.contains(ActionFlags::NOCLDSTOP) && !Self::ignores(&state, Signal::CHLD) {
            let info = SigInfo::child(pid, uid, code, status);
            self.post_own(&mut state, info, To::Near(proc.maker()));
        }
        self.set_changed(parent, proc, true);
        wake_waiters(&mut state);
    }

    /// Reparents a dying process's children to the nearest subreaper above it, or to init.
    fn reparent_children(&self, proc: &Proc, orphaned: &mut Vec<Arc<Pgrp>>) {
        let mut vanished = Vec::new();
        loop {
            let (reaper, birth) = self.find_reaper(proc);
            let relations = self.relations.write(&self.locks);
            // The reaper also takes this lock before it ends, and reparents its children under it.
            // So a reaper that lives now will handle these children.
            if reaper.generation() != birth || !self.may_inherit(reaper) {
                continue;
            }
            let children: Vec<&Proc> = self.children(proc).collect();
            for child in children {
                let group = child.lock(&self.locks).pgrp.clone();
                self.adopt(proc, reaper, child);
                self.recount(child, group.as_ref(), orphaned);
                let (notice, tracer, owned) = {
                    let mut state = child.lock(&self.locks);
                    if state.tracer == Some(proc.tenant()) {
                        // The child asked to be traced after the other tracees had already been
                        // released.
                        state.end_tracing();
                        state.threads.iter().for_each(ThreadEntry::unpark);
                    }
                    // A child has an owner if a thread of its tracer has already waited for it.
                    let owned = child.owner.load(Ordering::Relaxed) != 0;
                    let ended = state.phase == Phase::Zombie;
                    (ended.then(|| Notice::of(child, &state)), state.tracer, owned)
                };
                let Some(notice) = notice else { continue };
                // On Linux the group of a child that has ended is checked as well, even if other
                // processes have already orphaned it.
                let cared = |group: &Pgrp| {
                    let (own, its) = (proc.standing(), group.standing());
                    own.is_some_and(|own| own.group != its.group && own.session == its.session)
                };
                orphaned.extend(group.filter(|group| cared(group) && group.is_orphaned()));
                if tracer == Some(reaper.tenant()) {
                    // The reaper was already notified as the tracer, and now finds the child among
                    // its own.
                    self.set_changed(reaper, child, true);
                } else if tracer.is_none() && !owned && self.notify_end(reaper, child, notice) {
                    self.unlink(reaper, child);
                    self.pids.hide(child.number());
                    vanished.push(child);
                }
            }
            drop(relations);
            break;
        }
        for child in vanished {
            self.reap(child);
        }
    }

    /// Returns the process that inherits the children of a dying process, and its generation.
    /// Called without the locks of relations, so the result may already be out of date.
    fn find_reaper(&self, proc: &Proc) -> (&Proc, u32) {
        let mut below = proc.tenant();
        loop {
            let child = self.slab.get(below.slot);
            let step = self.parent_hint(child).and_then(|above| {
                let (birth, inherits) = (above.generation(), self.may_inherit(above));
                // A parent is older than its children, so the child's current parent already had
                // the slot when its generation was read.
                let is_parent = self.is_child(above, child) && child.tenant() == below;
                is_parent.then_some((above, birth, inherits))
            });
            below = match step {
                Some((above, birth, true)) => return (above, birth),
                Some((above, birth, false)) => ProcKey { slot: above.slot, birth },
                // The relations changed in the meantime. The walk restarts after the thread that
                // changes them has been allowed to run.
                None => {
                    executor::point(At::Within);
                    proc.tenant()
                }
            };
        }
    }

    fn may_inherit(&self, reaper: &Proc) -> bool {
        let lives = || {
            let state = reaper.lock(&self.locks);
            reaper.subreaper.load(Ordering::Relaxed) && state.phase == Phase::Live
        };
        self.is_init(reaper) || (reaper.subreaper.load(Ordering::Relaxed) && lives())
    }

    /// Returns `true` for the first process, which waits for the children that it inherits.
    pub(super) fn is_init(&self, proc: &Proc) -> bool {
        proc.slot == self.init
    }

    /// Returns `true` if `proc` is the process that runs the program.
    fn runs_program(&self, proc: &Proc) -> bool {
        proc.number() == self.config.second
    }

    /// Records that a process's program panicked.
    pub(super) fn note_panic(&self, pid: Pid) {
        self.notes().panicked.push(pid);
    }
}

/// The notification that a parent receives about a child that has ended.
#[derive(Clone, Copy)]
pub(super) struct Notice {
    info: SigInfo,
    /// `true` if a process traces the child.
    traced: bool,
    /// `true` if the child could not exec the program that it was spawned for.
    failed: bool,
}

impl Notice {
    /// Creates the notification about a process whose `p_lock` is held.
    pub(super) fn of(proc: &Proc, state: &ProcState) -> Self {
        let (code, status) = end_of(state.end.unwrap_or(WaitStatus::Exited(0)));
        let info = SigInfo::child(proc.number(), state.credentials.real, code, status);
        Self { info, traced: state.tracer.is_some(), failed: state.failure.is_some() }
    }
}

/// Returns the code and the status in SIGCHLD for a process that has ended.
fn end_of(status: WaitStatus) -> (SigCode, i32) {
    match status {
        WaitStatus::Signaled(signal, true) => (SigCode::Dumped, signal.number()),
        WaitStatus::Signaled(signal, false) => (SigCode::Killed, signal.number()),
        WaitStatus::Exited(status) => (SigCode::Exited, status),
        _ => (SigCode::Exited, 0),
    }
}

/// Wakes the threads of a process that wait for children.
pub(super) fn wake_waiters(state: &mut ProcState) {
    for member in state.threads.iter_mut().filter(|member| member.waits) {
        member.changed = true;
        member.unpark();
    }
}
