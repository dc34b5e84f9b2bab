//! Signal generation (§7.1, table 4): `psignal` and `pgsignal`, in their immediate forms.
//!
//! | name | calling context | effect |
//! | --- | --- | --- |
//! | [`Kernel::psignal`] | any context | one of the next two, by the configuration |
//! | [`Kernel::psignal_inthread`] | base spl | immediate |
//! | [`Kernel::psignal_indirect`](super::deferred) | any context | deferred |
//! | [`Kernel::pgsignal`] | any context | the second of the next two, in every configuration |
//! | [`Kernel::pgsignal_inthread`] | base spl | immediate |
//! | [`Kernel::pgsignal_indirect`](super::deferred) | any context | deferred |
//! | [`Kernel::pgsignal_self`] | any context | deferred; group, and *self* anywhere (§7.2.3) |
//! | [`Kernel::pgsignal_inthread_self`] | base spl | the same, immediate |
//! | [`Kernel::pgsignal_internal`] | here only | common part of the immediate forms for groups |
//!
//! The configuration is the mode and the executor ([`Kernel::generates_directly`]). A caller that
//! always runs at base spl calls an *inthread* form. In addition to the paper's nine entry points,
//! [`Kernel::alarm_indirect`](super::deferred) defers the check of an alarm that is due.
//!
//! [`deliver`](super::deliver) implements the effect of a signal on arrival.

use std::sync::Arc;

use tontine_unix::{
    DefaultAction, Disposition, Errno, Resource, Result, SigCode, SigInfo, SigSet, Signal,
};

use super::Kernel;
use super::proc::{ChildEvent, Phase, Proc, ProcState, ThreadEntry};
use super::references::ProcRef;
use super::session::Pgrp;
use super::thread::{AstFlags, Thread};
use crate::config::{Delivery, Executor, SystemConfig};
use crate::mode::LockingMode;

/// The target of a signal within a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// The thread that [`Delivery`] selects.
    Process,
    /// Like [`Self::Process`], but prefers this thread, which created the child that a SIGCHLD
    /// reports.
    Near(i32),
    /// This thread.
    Thread(i32),
}

impl Kernel {
    /// Returns `true` if `psignal` expands to the direct routine (§7.1). Only a uniprocessor uses
    /// it in every context, because its kernel then takes no `p_lock`. A simulated tick occurs at
    /// points, where no operation is half done; a real tick may occur in the middle of any
    /// operation, even an allocation.
    ///
    /// `pgsignal` and `pgsignal_self` expand to the deferred routine in every configuration,
    /// because the caller may have to sleep for `pg_lock`, which exists even on a uniprocessor
    /// (§5).
    fn generates_directly(&self) -> bool {
        let SystemConfig { mode, executor, keep_locks, .. } = *self.config;
        mode == LockingMode::Uniprocessor
            && matches!(executor, Executor::Simulated { .. })
            && !keep_locks
    }

    /// Signals a process from any context.
    pub(super) fn psignal(&self, target: &Proc, info: SigInfo) {
        if self.generates_directly() {
            self.psignal_inthread(target, info);
        } else {
            self.psignal_indirect(target, info);
        }
    }

    /// Signals a process immediately.
    pub(super) fn psignal_inthread(&self, target: &Proc, info: SigInfo) {
        self.post_own(&mut target.lock(&self.locks), info, To::Process);
    }

    /// Signals a process that was looked up, unless it no longer exists. The check is necessary
    /// because a reference does not keep a process that was already ending, so its slot may hold
    /// another process.
    pub(super) fn psignal_found(&self, target: &ProcRef<'_>, info: SigInfo) {
        if let Some(mut state) = target.state() {
            self.post_own(&mut state, info, To::Process);
        }
    }

    /// Signals each member of a group, from any context.
    pub(super) fn pgsignal(&self, group: &Arc<Pgrp>, info: SigInfo) {
        self.pgsignal_indirect(group, info, None);
    }

    /// Signals each member of a group immediately.
    pub(super) fn pgsignal_inthread(&self, group: &Pgrp, info: SigInfo) {
        self.pgsignal_internal(group, info, None);
    }

    /// Signals a group and *self*, from any context (§7.2.3).
    pub(super) fn pgsignal_self(&self, group: &Arc<Pgrp>, this: &Proc, info: SigInfo) {
        self.pgsignal_indirect(group, info, Some(this));
    }

    /// Signals a group and *self* immediately.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "table 4 has it; terminals use the form that is safe anywhere")
    )]
    pub(super) fn pgsignal_inthread_self(&self, group: &Pgrp, this: &Proc, info: SigInfo) {
        self.pgsignal_internal(group, info, Some(this));
    }

    /// Signals each member of a group, and `this` unless it is a member. `pg_lock` is held for the
    /// whole walk, so no process joins or leaves the group in between (§5.1).
    pub(super) fn pgsignal_internal(&self, group: &Pgrp, info: SigInfo, this: Option<&Proc>) {
        let members = group.members.read(&self.locks);
        let mut is_member = false;
        for &slot in &members.slots {
            let member = self.slab.get(slot);
            is_member |= this.is_some_and(|this| this.slot == slot);
            self.psignal_inthread(member, info);
        }
        drop(members);
        if let Some(this) = this.filter(|_| !is_member) {
            self.psignal_inthread(this, info);
        }
    }

    /// Makes a signal pending in a process whose `p_lock` is held, and wakes the thread that will
    /// deliver the signal. Fails with `EAGAIN` if the signal carries a value and the user's queue
    /// is full.
    pub(super) fn post(&self, state: &mut ProcState, info: SigInfo, to: To) -> Result<()> {
        if state.phase != Phase::Live {
            return Ok(());
        }
        let resumes = self.cancel_opposite(state, info.signal);
        let added = self.add_pending(state, info, to, resumes);
        if resumes {
            // The STOP marks are removed last, because a thread without a mark returns to user mode
            // without taking the signal.
            for member in &state.threads {
                member.thread.settle(AstFlags::STOP);
            }
        }
        added
    }

    /// Adds a signal to the pending signals, and wakes the thread that delivers it. `resumes` is
    /// `true` if the signal also resumes the process. Like [`Kernel::post`].
    fn add_pending(
        &self,
        state: &mut ProcState,
        info: SigInfo,
        to: To,
        resumes: bool,
    ) -> Result<()> {
        if self.is_dropped(state, info.signal, to) {
            return Ok(());
        }
        let pending = match to {
            To::Process | To::Near(_) => &mut state.pending,
            To::Thread(tid) => match state.threads.iter_mut().find(|m| m.thread.tid() == tid) {
                Some(member) => &mut member.pending,
                None => return Ok(()),
            },
        };
        if pending.set().contains(info.signal) && !info.signal.is_realtime() {
            // A standard signal is pending at most once.
            return Ok(());
        }
        let limit = state.limits.of(Resource::PendingSignals).soft;
        if state.credentials.user.signals.take(if is_limited(info) { limit } else { u64::MAX }) {
            pending.add(info);
        } else if info.signal.is_realtime() && info.code != SigCode::User {
            return Err(Errno::EAGAIN);
        } else {
            pending.add_without_info(info.signal);
        }
        self.wake_one(state, info.signal, to, resumes);
        self.mark_fatal(state, info.signal, to);
        Ok(())
    }

    /// Marks a process as ending if a signal is sent that is fatal and that a thread does not
    /// block. As on Linux, no other signal then precedes it, and no thread continues in user mode.
    /// A signal that would dump core is delivered like any other, but every thread that does not
    /// block it may deliver it.
    fn mark_fatal(&self, state: &mut ProcState, signal: Signal, to: To) {
        let default_action = state.actions.of(signal).disposition == Disposition::Default;
        let spared = signal != Signal::KILL && (state.stopped.is_some() || state.tracer.is_some());
        if !default_action || spared || self.config.delivery == Delivery::Oldest {
            return;
        }
        let core = match signal.default_action() {
            DefaultAction::Terminate => false,
            DefaultAction::Core => true,
            _ => return,
        };
        let lets_in = |member: &ThreadEntry| !member.thread.mask().contains(signal);
        let taken = match to {
            To::Process | To::Near(_) => state.threads.iter().any(lets_in),
            To::Thread(tid) => state.member(tid).is_some_and(|member| lets_in(member)),
        };
        if !taken {
            return;
        }
        if !core {
            state.fatal = state.fatal.or(Some((signal, core)));
        }
        let shared = !matches!(to, To::Thread(_));
        for member in state.threads.iter().filter(|member| !core || (shared && lets_in(member))) {
            member.thread.demand(AstFlags::SIGNAL);
            member.wake();
        }
    }

    /// Like [`Kernel::post`], but for signals that the system itself sends. They are standard
    /// signals, which a full queue does not refuse.
    pub(super) fn post_own(&self, state: &mut ProcState, info: SigInfo, to: To) {
        let posted = self.post(state, info, to);
        debug_assert_eq!(posted, Ok(()), "{info:?}");
    }

    /// Applies the opposite effects: SIGCONT discards pending stops and continues the process; a
    /// stop discards a pending SIGCONT. Returns `true` if the process is resumed, in which case the
    /// caller must remove the [`AstFlags::STOP`] marks.
    fn cancel_opposite(&self, state: &mut ProcState, signal: Signal) -> bool {
        if signal == Signal::CONT {
            state.stopping = false;
            self.discard(state, SigSet::STOPS);
            return self.resume(state);
        }
        if signal.default_action() == DefaultAction::Stop {
            self.discard(state, SigSet::of(&[Signal::CONT]));
        } else if signal == Signal::KILL {
            // The process dies. Its parent is notified of the death, not of a continuation.
            (state.stopped, state.stopping) = (None, false);
            state.threads.iter().for_each(ThreadEntry::unpark);
            return true;
        }
        false
    }

    /// Resumes a stopped process, which notifies its parent itself. Returns `false` if the process
    /// was not stopped.
    fn resume(&self, state: &mut ProcState) -> bool {
        if state.stopped.is_none() {
            return false;
        }
        state.stopped = None;
        state.news = Some(ChildEvent::Continued);
        let stops = |member: &ThreadEntry| member.thread.attention().contains(AstFlags::STOP);
        state.continue_unreported = !state.threads.iter().any(stops);
        for (nth, member) in state.threads.iter().enumerate() {
            if nth == 0 && !state.continue_unreported {
                member.thread.demand(AstFlags::REPORT);
            }
            member.unpark();
        }
        true
    }

    /// Returns `true` if a signal has no effect: it is ignored, and neither blocked nor traced. As
    /// on Linux, this also holds if a thread waits for the signal.
    fn is_dropped(&self, state: &ProcState, signal: Signal, to: To) -> bool {
        if !state.actions.nothing().contains(signal) || state.tracer.is_some() {
            return false;
        }
        let taker = match to {
            To::Thread(tid) => state.threads.iter().find(|member| member.thread.tid() == tid),
            To::Near(tid) => {
                let near = state.threads.iter().find(|member| member.thread.tid() == tid);
                near.or(state.threads.first())
            }
            To::Process => state.threads.first(),
        };
        !taker.is_some_and(|member| member.thread.mask().contains(signal))
    }

    /// Discards pending signals of the process and of its threads.
    pub(super) fn discard(&self, state: &mut ProcState, signals: SigSet) {
        let members = state.threads.iter_mut().map(|member| member.pending.discard(signals));
        let discarded = members.sum::<usize>() + state.pending.discard(signals);
        state.credentials.user.signals.give_back(discarded);
    }

    /// Chooses the thread that will deliver a signal that has just been sent, and wakes it. If
    /// several threads do not block the signal, chooses as Linux does: the preferred thread, or
    /// else the next thread in turn without pending work.
    fn wake_one(&self, state: &mut ProcState, signal: Signal, to: To, resumes: bool) {
        let shared = !matches!(to, To::Thread(_)) && signal != Signal::KILL;
        let several = shared && state.threads.len() > 1;
        if !several || self.config.delivery == Delivery::Oldest {
            return self.wake_for(state, signal, to);
        }
        let stop = if resumes { AstFlags::empty() } else { AstFlags::STOP };
        let busy = AstFlags::SIGNAL.union(stop).union(AstFlags::HALT);
        let threads = &state.threads;
        let place = |tid: i32| threads.iter().position(|member| member.thread.tid() == tid);
        let free = |nth: &usize| {
            let thread = &threads[*nth].thread;
            !thread.attention().intersects(busy) && takes(thread, signal)
        };
        let preferred = match to {
            To::Near(tid) => place(tid).unwrap_or(0),
            To::Process | To::Thread(_) => 0,
        };
        let first = Some(preferred).filter(free);
        let from = place(state.turn).unwrap_or(0);
        let in_turn = || (from..threads.len()).chain(0..from).find(free);
        let Some(chosen) = first.or_else(in_turn) else {
            // All threads that do not block the signal are handling other work, and will then
            // handle this signal.
            return self.wake_for(state, signal, to);
        };
        let tid = threads[chosen].thread.tid();
        wake(state, &threads[chosen], signal);
        if first.is_none() {
            state.turn = tid;
        }
    }

    /// Chooses a thread that will deliver a signal, and wakes it.
    pub(super) fn wake_for(&self, state: &ProcState, signal: Signal, to: To) {
        let ready = |member: &&ThreadEntry| takes(&member.thread, signal);
        let chosen = match to {
            To::Thread(tid) => {
                state.threads.iter().find(|member| member.thread.tid() == tid).filter(ready)
            }
            To::Process | To::Near(_) => match self.config.delivery {
                _ if state.threads.len() == 1 => state.threads.first().filter(ready),
                _ if signal == Signal::KILL => state.threads.first(),
                Delivery::Oldest => state
                    .threads
                    .iter()
                    .find(|member| member.thread.awaited().contains(signal))
                    .or_else(|| state.threads.first().filter(ready)),
                Delivery::AnyUnblocked => state.threads.iter().find(ready),
            },
        };
        if let Some(member) = chosen {
            wake(state, member, signal);
        }
    }

    /// Returns `true` if the process ignores `signal` explicitly.
    pub(super) fn ignores(state: &ProcState, signal: Signal) -> bool {
        state.actions.of(signal).disposition == Disposition::Ignore
    }
}

/// Returns `true` if a thread does not block the signal, or waits for it.
fn takes(thread: &Thread, signal: Signal) -> bool {
    !thread.mask().contains(signal) || thread.awaited().contains(signal)
}

/// Marks a thread for a signal, and wakes it.
fn wake(state: &ProcState, member: &ThreadEntry, signal: Signal) {
    member.thread.demand(AstFlags::SIGNAL);
    if !state.is_stopped() {
        member.wake();
    } else if signal == Signal::KILL {
        // A stopped thread sleeps until it is continued; only SIGKILL wakes it.
        member.unpark();
    }
}

/// Returns `true` if, as on Linux, the signal is refused when the user's queue is full. This
/// excludes standard signals that only name their sender.
fn is_limited(info: SigInfo) -> bool {
    info.signal.is_realtime() || matches!(info.code, SigCode::Queue | SigCode::Tkill)
}
