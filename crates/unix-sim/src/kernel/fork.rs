//! `fork` (§6.2), and the first steps of a process. docs/races.md has the steps and who may come
//! between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{Errno, Pid, Program, Resource, Result, SigSet};

use super::Kernel;
use super::call::{Call, Stop};
use super::exec::Failure;
use super::pgrp::Pgrp;
use super::proc::{Phase, Proc, ProcState};
use super::thread::{Attention, Thread};
use super::threads::First;
use super::users::User;
use crate::costs::CostKind;
use crate::executor::{self, Object};

/// What a fork begins with: the caller's as things were under `p_lock`.
struct Begun {
    /// Who is charged for the child, and how many he may have.
    user: Arc<User>,
    limit: u64,
    group: Option<Arc<Pgrp>>,
}

impl Call<'_> {
    pub(super) fn fork(&self, program: Program) -> Result<Pid> {
        let mut first = Some(First::Program(program));
        self.interruptible(super::call::After::Restart, || self.fork_once(&mut first))
    }

    /// One attempt; `first` stays where it is if the attempt is to be made again.
    pub(super) fn fork_once(&self, first: &mut Option<First>) -> std::result::Result<Pid, Stop> {
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

    /// Counts the fork, so that exit and exec wait for its end.
    fn begin_fork(&self) -> std::result::Result<Begun, Stop> {
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

    fn make_child(
        &self,
        first: &mut Option<First>,
        begun: Begun,
    ) -> std::result::Result<Pid, Stop> {
        let kernel = self.kernel;
        let coarse = kernel.coarse();
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
            // The group was signalled first: the signal is delivered, then the fork begins again.
            user.tasks.give_back(1);
            kernel.pids.give_back(&kernel.locks, number, slot);
            return Err(Stop::Again);
        };
        kernel.start_time(child, kernel.time_limit(self.proc));
        kernel.clear_links(child);
        child.siglock.reset(&kernel.locks);
        executor::changes(Object::System);
        child.move_in(number, kernel.births.fetch_add(1, Ordering::Relaxed).max(1));
        child.is_made_by(self.thread.tid());
        {
            let _writing = kernel.write_family(self.proc);
            kernel.link(self.proc, child);
            // Nobody who could move it to another group has found it yet.
            kernel.count_forked(child);
        }
        kernel.population.fetch_add(1, Ordering::Relaxed);
        let pid = child.pid();
        kernel.pids.publish(number, slot);
        thread.begin_with_alternate(self.alternate.get());
        let first = first.take().expect("an attempt is made with a program");
        if let Err(errno) = kernel.begin(child, thread, place, first) {
            drop(coarse);
            kernel.undo_fork(self.proc, child);
            return Err(errno.into());
        }
        Ok(pid)
    }

    /// Copies the caller's state to the child and makes it a member of the caller's group, between
    /// two walks of the group; on which processor the child is to run. Nothing if a walk came that
    /// the child should have met. `charged` is whose process it was counted as before its
    /// credentials were copied, `group` the caller's a moment ago.
    fn join_group(
        &self,
        child: &Proc,
        thread: &Arc<Thread>,
        charged: &User,
        mut group: Option<Arc<Pgrp>>,
    ) -> Option<Option<usize>> {
        let kernel = self.kernel;
        let mut nobody_walks = None;
        loop {
            let joined = group.take().or_else(|| self.state().pgrp.clone())?;
            let mut members = joined.members.write(&kernel.locks);
            let (mut parent, mut state) = self.proc.lock_both(child, &kernel.locks);
            if self.is_signalled(&mut parent) {
                return None;
            }
            if nobody_walks.is_none() && kernel.everyone_walked() {
                // The walk may have passed the child's slot, and not come to the parent's.
                drop((parent, state, members));
                nobody_walks = Some(kernel.pgrphash.read(&kernel.locks));
                continue;
            }
            if !parent.pgrp.as_ref().is_some_and(|now| Arc::ptr_eq(now, &joined)) {
                // Another thread moved the process meanwhile.
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

    /// Whether there is a signal to be delivered before the process may fork: another thread may
    /// have been chosen for it, and have taken it. Under `p_lock`, and that of the group.
    fn is_signalled(&self, state: &mut ProcState) -> bool {
        if state.threads.len() > 1 {
            if state.dying || state.stopping {
                return true;
            }
            self.look_again(state);
        }
        self.thread.attention().contains(Attention::SIGNAL)
    }
}

impl Kernel {
    /// Undoes what a process took, once it is unlinked and nobody can find it alive.
    pub(super) fn reap(&self, proc: &Proc) {
        let number = proc.number();
        executor::spend(CostKind::Reap);
        let (emptied, failure) = self.move_out(proc);
        if let Some(group) = emptied {
            self.forget_group(&group);
        }
        self.pids.give_back(&self.locks, number, proc.slot);
        self.bury();
        if let Some(failure) = failure {
            failure.tell();
        }
    }

    /// Takes a process out of its group and leaves its slot to the next one; returns the group, if
    /// nobody is left in it, and what its spawner is to be told.
    fn move_out(&self, proc: &Proc) -> (Option<Arc<Pgrp>>, Option<Failure>) {
        loop {
            let group = proc.lock(&self.locks).pgrp.clone();
            let mut members = group.as_ref().map(|group| group.members.write(&self.locks));
            let mut state = proc.lock(&self.locks);
            if state.pgrp.as_ref().map(Arc::as_ptr) != group.as_ref().map(Arc::as_ptr) {
                // Another thread of its parent, which found it before it was unlinked, moved it.
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

    /// Takes a child back that could not begin, once whoever found it meanwhile has let go of it.
    fn undo_fork(&self, parent: &Proc, child: &Proc) {
        let left = child.lock(&self.locks).begin_exit();
        drop(left);
        self.await_unreferenced(child);
        let _coarse = self.coarse();
        {
            let _writing = self.write_family(parent);
            let group = {
                let mut state = child.lock(&self.locks);
                self.discard(&mut state, SigSet::ALL);
                state.threads.clear();
                state.phase = Phase::Zombie;
                child.stands_no_more();
                state.pgrp.clone()
            };
            self.recount(child, group.as_ref(), &mut Vec::new());
            self.unlink(parent, child);
        }
        // Others may wait for this child alone.
        super::exit::wake_waiters(&mut parent.lock(&self.locks));
        self.reap(child);
    }
}
