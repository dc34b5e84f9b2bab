//! `fork` (§6.2), and the start of a process. docs/internals/races.md describes the steps and their
//! races.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{Errno, Pid, Program, Resource, Result, SigSet};

use super::Kernel;
use super::call::{Caller, Partial, Unfinished};
use super::image::ExecFailure;
use super::proc::{Phase, Proc, ProcState};
use super::session::Pgrp;
use super::thread::{AstFlags, Thread};
use super::threads::ThreadStart;
use super::users::User;
use crate::costs::CostKind;
use crate::executor;

/// The caller's state at the start of a fork, read under `p_lock`.
struct Begun {
    /// The user that is charged for the child, and the user's limit.
    user: Arc<User>,
    limit: u64,
    group: Option<Arc<Pgrp>>,
}

impl Caller<'_> {
    pub(super) fn fork(&self, program: Program) -> Result<Pid> {
        let mut first = Some(ThreadStart::Program(program));
        self.interruptible(super::call::RestartRule::Restart, || self.fork_once(&mut first))
    }

    /// Attempts the fork once. `first` is kept if the attempt must be repeated.
    pub(super) fn fork_once(&self, first: &mut Option<ThreadStart>) -> Partial<Pid> {
        let begun = self.begin_fork()?;
        let forked = self.make_child(first, begun);
        let mut state = self.state();
        state.p_forkcnt -= 1;
        if state.p_forkcnt == 0
            && let Some(ender) = &state.ender
        {
            ender.unpark();
        }
        drop(state);
        forked
    }

    /// Counts the fork, so that exit and exec wait for it to end.
    fn begin_fork(&self) -> Partial<Begun> {
        let locked = self.sig_lock_or_return()?;
        let mut state = self.state();
        state.p_forkcnt += 1;
        let unlimited = state.credentials.is_privileged();
        let limit = state.limits.of(Resource::Processes).soft;
        let begun = Begun {
            user: state.credentials.user.clone(),
            limit: if unlimited { u64::MAX } else { limit },
            group: state.pgrp.clone(),
        };
        drop(state);
        locked.unlock();
        Ok(begun)
    }

    fn make_child(&self, first: &mut Option<ThreadStart>, begun: Begun) -> Partial<Pid> {
        let kernel = self.kernel;
        executor::spend(CostKind::Fork);
        let Begun { user, limit, group } = begun;
        if !user.tasks.take(limit) {
            return Err(Errno::EAGAIN.into());
        }
        let (number, slot) = match kernel.pids.take(&kernel.locks) {
            Ok(taken) => taken,
            Err(errno) => {
                user.tasks.give_back(1);
                return Err(errno.into());
            }
        };
        let child = kernel.slab.get(slot);
        let mask = first.as_ref().map_or(SigSet::EMPTY, |first| first.mask(self.thread.mask()));
        let thread = Arc::new(Thread::new(kernel.handle(), slot, number, mask));
        let Some(place) = self.join_group(child, &thread, &user, group) else {
            // The group was signalled first. The signal is delivered, then the fork starts again.
            user.tasks.give_back(1);
            kernel.pids.give_back(&kernel.locks, number, slot);
            return Err(Unfinished::Again);
        };
        kernel.start_time(child, kernel.time_limit(self.proc));
        kernel.clear_links(child);
        child.siglock.reset(&kernel.locks);
        child.move_in(number, kernel.next_birth());
        child.is_made_by(self.thread.tid());
        {
            let _relations = kernel.relations.write(&kernel.locks);
            kernel.link(self.proc, child);
            // No process that could move the child to another group has found it yet.
            kernel.count_forked(child);
        }
        kernel.population.fetch_add(1, Ordering::Relaxed);
        let pid = child.pid();
        kernel.pids.publish(number, slot);
        thread.begin_with_alternate(self.alternate.get());
        let first = first.take().expect("an attempt has a program");
        if let Err(errno) = kernel.begin(child, thread, place, first) {
            kernel.undo_fork(self.proc, child);
            return Err(errno.into());
        }
        Ok(pid)
    }

    /// Copies the caller's state to the child and makes it a member of the caller's group, between
    /// two walks of the group. Returns the processor on which the child must run, or `None` if a
    /// walk took place that should have included the child. `charged` is the user that was charged
    /// before the credentials were copied; `group` is the group that the caller was in a moment
    /// ago.
    fn join_group(
        &self,
        child: &Proc,
        thread: &Arc<Thread>,
        charged: &User,
        mut group: Option<Arc<Pgrp>>,
    ) -> Option<Option<usize>> {
        let kernel = self.kernel;
        let mut no_walk = None;
        loop {
            let joined = group.take().or_else(|| self.state().pgrp.clone())?;
            let mut members = joined.members.write(&kernel.locks);
            let (mut parent, mut state) = self.proc.lock_both(child, &kernel.locks);
            if self.is_signalled(&mut parent) {
                return None;
            }
            if no_walk.is_none() && kernel.everyone_walked() {
                // The walk may already have passed the child's slot, but not yet reached the
                // parent's.
                drop((parent, state, members));
                no_walk = Some(kernel.pgrphash.read(&kernel.locks));
                continue;
            }
            if !parent.pgrp.as_ref().is_some_and(|now| Arc::ptr_eq(now, &joined)) {
                // Another thread moved the process in the meantime.
                continue;
            }
            state.become_child_of(&parent, Arc::clone(thread));
            kernel.charge(&state.credentials, charged);
            child.set_users(&state.credentials);
            child.program.store(self.proc.program.load(Ordering::Relaxed), Ordering::Relaxed);
            child.set_session(joined.session.id.number());
            child.share_terminal(self.proc);
            child.stand_in(&joined);
            members.add(child);
            return Some(parent.place);
        }
    }

    /// Returns `true` if a signal must be delivered before the process may fork. Another thread may
    /// have been chosen for the signal, and may already have taken it. Called under `p_lock` and
    /// the group's lock.
    fn is_signalled(&self, state: &mut ProcState) -> bool {
        if state.threads.len() > 1 {
            if state.dying || state.stopping {
                return true;
            }
            self.recheck_pending(state);
        }
        self.thread.attention().contains(AstFlags::SIGNAL)
    }
}

impl Kernel {
    /// Releases the resources of a process, which must be unlinked, so that no lookup finds it
    /// alive.
    pub(super) fn reap(&self, proc: &Proc) {
        let number = proc.number();
        executor::spend(CostKind::Reap);
        let (emptied, failure) = self.move_out(proc);
        if let Some(group) = emptied {
            self.forget_group(&group);
        }
        self.pids.give_back(&self.locks, number, proc.slot);
        self.decrement_population();
        if let Some(failure) = failure {
            failure.publish();
        }
    }

    /// Removes a process from its group and frees its slot. Returns the group, if it is now empty,
    /// and the failure to report to the process that spawned it.
    fn move_out(&self, proc: &Proc) -> (Option<Arc<Pgrp>>, Option<ExecFailure>) {
        loop {
            let group = proc.lock(&self.locks).pgrp.clone();
            let mut members = group.as_ref().map(|group| group.members.write(&self.locks));
            let mut state = proc.lock(&self.locks);
            if state.pgrp.as_ref().map(Arc::as_ptr) != group.as_ref().map(Arc::as_ptr) {
                // A thread of the parent, which found the process before it was unlinked, has moved
                // it.
                continue;
            }
            debug_assert_eq!(state.phase, Phase::Zombie, "a process is waited for once");
            let emptied = members.as_mut().is_some_and(|members| {
                members.remove(self, proc);
                members.slots.is_empty()
            });
            (state.phase, state.pgrp) = (Phase::Free, None);
            state.credentials.user.tasks.give_back(1);
            proc.move_out();
            let failure = state.failure.take();
            drop((state, members));
            return (group.filter(|_| emptied), failure);
        }
    }

    /// Removes a child that could not be started, once all references to it are released.
    fn undo_fork(&self, parent: &Proc, child: &Proc) {
        let left = child.lock(&self.locks).begin_exit();
        drop(left);
        self.await_unreferenced(child);
        {
            let _relations = self.relations.write(&self.locks);
            let group = {
                let mut state = child.lock(&self.locks);
                self.discard(&mut state, SigSet::ALL);
                state.threads.clear();
                state.phase = Phase::Zombie;
                child.leave_standing();
                state.pgrp.clone()
            };
            self.recount(child, group.as_ref(), &mut Vec::new());
            self.unlink(parent, child);
        }
        // Other threads may be waiting for only this child.
        super::exit::wake_waiters(&mut parent.lock(&self.locks));
        self.reap(child);
    }
}
