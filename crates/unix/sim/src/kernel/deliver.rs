//! Signal delivery: the pending work of a thread on its way back to user mode. `issig` takes a
//! signal, `psig` decides its effect, and `sendsig` sets up a handler (§3).
//!
//! Only one thread of a process delivers at a time (`sig_wait_lock`, §4.1). Handlers stack as on a
//! real machine: if two signals become unblocked together, the handler of the lower-numbered one is
//! set up first and therefore runs last.

use std::sync::Arc;

use tontine_unix::{
    ActionFlags, DefaultAction, Disposition, Handler, SigAction, SigCode, SigInfo, SigSet,
    SigStack, Signal, WaitStatus,
};

use super::call::{Caller, Delivered, ExitReason, HandlerFrame};
use super::generate::To;
use super::proc::{ChildEvent, Phase, ProcState, ThreadEntry};
use super::thread::AstFlags;
use crate::config::{Delivery, Masks};
use crate::costs::CostKind;
use crate::executor;
use crate::mode::LockingMode;

/// Minimum stack space, in bytes, for a handler to begin. With less, the handler would run out of
/// stack inside a call, through no fault of the program. As on Linux, a process with too little
/// space is killed by SIGSEGV.
const HANDLER_ROOM: usize = if cfg!(debug_assertions) { 64 << 10 } else { 16 << 10 };

/// The decision of `psig`.
enum PsigAction {
    Nothing,
    Handle(HandlerFrame, ActionFlags),
    End(Signal, bool),
    Stop(Signal),
}

impl Caller<'_> {
    /// Handles all work that the thread was marked for, runs the handlers that are due, and lets
    /// the threads that the call woke run.
    pub(super) fn return_to_user(&self) -> Delivered {
        let delivered = self.handle_ast();
        executor::leave_kernel();
        delivered
    }

    fn handle_ast(&self) -> Delivered {
        // A thread that the call woke may run first, and may thereby create work for this thread.
        executor::preempt();
        if self.thread.attention().is_empty() {
            return Delivered::Nothing;
        }
        let mut delivered = Delivered::Nothing;
        let mut frames = self.frames.take();
        loop {
            while let Some((frame, flags)) = self.kernel.on_master(|| self.next_frame()) {
                if delivered == Delivered::Nothing {
                    let restarts = flags.contains(ActionFlags::RESTART);
                    delivered = if restarts { Delivered::Restart } else { Delivered::Interrupt };
                }
                executor::spend(CostKind::Deliver);
                frames.push(frame);
            }
            if self.leaving.get().is_some() {
                self.leave_now();
            }
            let Some(frame) = frames.pop() else { break };
            if executor::stack_left() < HANDLER_ROOM {
                self.kernel.on_master(|| self.end_with(WaitStatus::Signaled(Signal::SEGV, true)));
                self.leave_now();
            }
            executor::leave_kernel();
            frame.handler.call(self, &frame.info);
            executor::enter_kernel();
            self.alternate.set(frame.alternate);
            self.kernel.on_master(|| self.change_mask(frame.mask));
        }
        self.frames.set(frames);
        executor::preempt();
        delivered
    }

    /// Continues the unwinding, for the recorded reason.
    fn leave_now(&self) -> ! {
        let why = self.leaving.get().unwrap_or(ExitReason::Halt);
        self.leave(why)
    }

    /// Returns the next handler to set up; `None` if there is none or if the thread must leave.
    fn next_frame(&self) -> Option<(HandlerFrame, ActionFlags)> {
        loop {
            let attention = self.thread.attention();
            if attention.is_empty() || self.leaving.get().is_some() {
                return None;
            }
            if attention.contains(AstFlags::HALT) {
                self.leaving.set(Some(ExitReason::Halt));
                return None;
            }
            if attention.contains(AstFlags::BLOCK) {
                self.thread.settle(AstFlags::BLOCK);
                self.proc.siglock.block(&self.kernel.locks);
            } else if attention.contains(AstFlags::REPORT) {
                self.thread.settle(AstFlags::REPORT);
                self.report_continued();
            } else if attention.contains(AstFlags::STOP) {
                self.stay_stopped();
            } else if attention.contains(AstFlags::TICK) {
                self.update_profile();
            } else if let Some(handled) = self.deliver_one() {
                return Some(handled);
            }
        }
    }

    /// Takes one signal and applies its effect. If the effect is a handler, returns it for the
    /// caller to set up.
    fn deliver_one(&self) -> Option<(HandlerFrame, ActionFlags)> {
        let locks = &self.kernel.locks;
        let sig_wait_lock = || self.proc.siglock.sig_wait_lock(locks, &self.thread).ok();
        // If another thread is delivering, `sig_wait_lock` marks this thread. The mark makes it
        // block and then return here. In mode `Master`, threads that wait for the master are
        // blocked already, so a thread never finds another one delivering (§4.1).
        let waiting = if self.kernel.config.mode == LockingMode::Master {
            self.sig_lock_or_return().ok()?.unlock();
            None
        } else {
            Some(sig_wait_lock()?)
        };
        let mut state = self.state();
        if std::mem::take(&mut state.continue_unreported) {
            drop(state);
            if let Some(waiting) = waiting {
                waiting.sig_wait_unlock();
            }
            self.report_continued();
            return None;
        }
        let fatal = state.fatal.filter(|_| state.phase == Phase::Live);
        let taken = if fatal.is_none() { self.issig(&mut state) } else { None };
        let (waiting, act) = match taken {
            None => {
                let end = |(signal, core)| PsigAction::End(signal, core);
                (waiting, fatal.map_or(PsigAction::Nothing, end))
            }
            Some(info) if state.tracer.is_some() && info.signal != Signal::KILL => {
                // The tracer may choose a stop. A SIGCONT that arrives before then cancels the
                // stop, as if it had already been taken.
                state.stopping = true;
                drop(state);
                // While this thread is stopped, the other threads must wait, in mode `Master` too.
                let waiting = waiting.or_else(sig_wait_lock)?;
                let (waiting, info) = self.stop_for_tracer(waiting, info);
                state = self.state();
                (
                    Some(waiting),
                    info.map_or(PsigAction::Nothing, |info| self.psig(&mut state, info)),
                )
            }
            Some(info) => (waiting, self.psig(&mut state, info)),
        };
        state.dying |= matches!(act, PsigAction::End(..));
        state.stopping &= matches!(act, PsigAction::Stop(_));
        drop(state);
        if let Some(waiting) = waiting {
            waiting.sig_wait_unlock();
        }
        match act {
            PsigAction::Nothing => None,
            PsigAction::Handle(frame, flags) => Some((frame, flags)),
            PsigAction::End(signal, core) => {
                self.end_with(WaitStatus::Signaled(signal, core));
                None
            }
            PsigAction::Stop(signal) => {
                self.stop(signal);
                None
            }
        }
    }

    /// Takes a signal that the mask does not block: first a signal of the thread, then a signal of
    /// the process, if this thread delivers the process's signals.
    fn issig(&self, state: &mut ProcState) -> Option<SigInfo> {
        if state.phase != Phase::Live {
            self.thread.settle(AstFlags::SIGNAL);
            return None;
        }
        let wanted = SigSet::ALL.difference(self.thread.mask());
        let shared = wanted.intersection(self.shared(state));
        let taken = self.take_first(state, wanted, shared);
        self.recheck_pending(state);
        let (info, queued) = taken?;
        // On Linux the signal has woken the thread even if it has no effect; `sigtimedwait` reveals
        // this.
        self.wakings.set(self.wakings.get().wrapping_add(1));
        state.credentials.user.signals.give_back(queued.into());
        state.stopping |= SigSet::STOPS.contains(info.signal);
        Some(info)
    }

    /// Takes the first pending signal: first from `own`, for the thread, then from `shared`, for
    /// the process. Also returns whether the signal was queued.
    pub(super) fn take_first(
        &self,
        state: &mut ProcState,
        own: SigSet,
        shared: SigSet,
    ) -> Option<(SigInfo, bool)> {
        let taken = self.member(state).pending.take(own);
        taken.or_else(|| state.pending.take(shared))
    }

    /// Returns the signals sent to the process that this thread delivers. Any thread may deliver
    /// signals that cannot be handled.
    fn shared(&self, state: &ProcState) -> SigSet {
        let is_oldest = |oldest: &ThreadEntry| oldest.thread.tid() == self.thread.tid();
        match self.kernel.config.delivery {
            Delivery::Oldest if !state.threads.first().is_some_and(is_oldest) => {
                SigSet::UNBLOCKABLE
            }
            Delivery::Oldest | Delivery::AnyUnblocked => SigSet::ALL,
        }
    }

    /// Marks the thread if a pending signal is not blocked; otherwise removes the mark.
    pub(super) fn recheck_pending(&self, state: &mut ProcState) {
        let shared = state.pending.set().intersection(self.shared(state));
        let pending = self.member(state).pending.set().union(shared);
        if state.fatal.is_none() && pending.difference(self.thread.mask()).is_empty() {
            self.thread.settle(AstFlags::SIGNAL);
        } else {
            self.thread.demand(AstFlags::SIGNAL);
        }
    }

    /// Sets the mask, and checks which pending signals it unblocks.
    pub(super) fn change_mask(&self, mask: SigSet) {
        self.set_mask(&mut self.state(), mask);
    }

    /// Like [`Self::change_mask`], under `p_lock`. Another thread takes over the signals that are
    /// pending for the process and that this thread now blocks.
    fn set_mask(&self, state: &mut ProcState, mask: SigSet) {
        let (old, mask) = (self.thread.mask(), mask.difference(SigSet::UNBLOCKABLE));
        self.thread.set_mask(mask);
        self.recheck_pending(state);
        if self.kernel.config.masks == Masks::PerProcess {
            state.set_mask(mask);
        } else if state.threads.len() > 1 {
            for signal in state.pending.set().intersection(mask).difference(old).iter() {
                self.kernel.wake_for(state, signal, To::Process);
            }
        }
    }

    /// Decides the effect of a signal.
    fn psig(&self, state: &mut ProcState, info: SigInfo) -> PsigAction {
        let action = state.actions.of(info.signal).clone();
        match action.disposition {
            Disposition::Ignore => PsigAction::Nothing,
            Disposition::Handler(handler) => {
                if action.flags.contains(ActionFlags::RESETHAND) {
                    let reset = SigAction { disposition: Disposition::Default, ..action };
                    Arc::make_mut(&mut state.actions).set(info.signal, reset);
                }
                let frame = self.sendsig(state, handler, info, action.mask, action.flags);
                PsigAction::Handle(frame, action.flags)
            }
            Disposition::Default => match info.signal.default_action() {
                DefaultAction::Ignore | DefaultAction::Continue => PsigAction::Nothing,
                DefaultAction::Terminate => PsigAction::End(info.signal, false),
                DefaultAction::Core => PsigAction::End(info.signal, true),
                DefaultAction::Stop if self.is_stopped_by(state, info.signal) => {
                    PsigAction::Stop(info.signal)
                }
                DefaultAction::Stop => PsigAction::Nothing,
            },
        }
    }

    /// Returns `true` if a stop signal stops the process. It has no effect in an orphaned group,
    /// because no process outside the group would continue the process.
    fn is_stopped_by(&self, state: &ProcState, signal: Signal) -> bool {
        let orphaned = state.pgrp.as_ref().is_some_and(|group| group.is_orphaned());
        signal == Signal::STOP || !orphaned
    }

    /// Sets up a handler. The handler's mask takes effect immediately.
    fn sendsig(
        &self,
        state: &mut ProcState,
        handler: Handler,
        info: SigInfo,
        blocked: SigSet,
        flags: ActionFlags,
    ) -> HandlerFrame {
        let mask = match (self.saved_mask.take(), self.kernel.config.masks) {
            (Some(saved), Masks::PerThread) => saved,
            (Some(_), Masks::PerProcess) => {
                self.member(state).suspended = false;
                state.mask
            }
            (None, _) => self.thread.mask(),
        };
        let mut during = self.thread.mask().union(blocked);
        if !flags.contains(ActionFlags::NODEFER) {
            during = during.with(info.signal);
        }
        self.set_mask(state, during);
        let alternate = self.alternate.get();
        if flags.contains(ActionFlags::ONSTACK) && alternate.size > 0 {
            self.alternate.set(SigStack { on_stack: true, ..alternate });
        }
        HandlerFrame { handler, info, mask, alternate }
    }

    /// Notifies the parent that the process was continued, and also the tracer if the tracer is
    /// another process.
    fn report_continued(&self) {
        let (kernel, signal) = (self.kernel, Signal::CONT.number());
        kernel.notify_parent(self.proc, SigCode::Continued, signal);
        let (uid, tracer) = {
            let state = self.state();
            (state.credentials.real, kernel.other_tracer(self.proc, &state))
        };
        if let Some(tracer) = tracer {
            let info = SigInfo::child(self.proc.number(), uid, SigCode::Continued, signal);
            kernel.notify_tracer(tracer, info);
        }
    }

    /// Stops the whole process. If the process is traced, its tracer is also notified, as for any
    /// stop, and decides when the process continues. If the process was stopped already and its
    /// tracer had continued it, its parent is not notified again.
    fn stop(&self, signal: Signal) {
        let kernel = self.kernel;
        let (traced, notify) = {
            let mut state = self.state();
            // A SIGCONT or SIGKILL that arrived after the stop was taken has cancelled the stop.
            let stopping = std::mem::take(&mut state.stopping);
            if state.phase != Phase::Live || !stopping {
                return;
            }
            let traced = state.tracer.is_some();
            let by_another = kernel.other_tracer(self.proc, &state).is_some();
            if traced {
                (state.trapped, state.unreported) = (Some(signal), Some(signal));
            }
            let is_first = state.stopped.is_none();
            if is_first {
                (state.stopped, state.news) = (Some(signal), Some(ChildEvent::Stopped(signal)));
            }
            state.threads.iter().for_each(ThreadEntry::stop);
            (traced, is_first && (!traced || by_another))
        };
        if traced {
            kernel.notify_trap(self.proc, SigCode::Stopped, signal);
        }
        if notify {
            kernel.notify_parent(self.proc, SigCode::Stopped, signal.number());
        }
    }

    /// Sleeps until the process is continued (possibly by its tracer) or killed, or until another
    /// thread ends the process.
    fn stay_stopped(&self) {
        self.wakings.set(self.wakings.get().wrapping_add(1));
        loop {
            {
                let mut state = self.state();
                let killed = state.pending_anywhere().contains(Signal::KILL);
                let halted = self.thread.attention().contains(AstFlags::HALT);
                if state.tracer.is_none() || killed {
                    (state.trapped, state.unreported) = (None, None);
                }
                let held = state.is_stopped() || state.trapped.is_some();
                if !held || killed || halted {
                    self.thread.settle(AstFlags::STOP);
                    // As on Linux, if several threads continue, the first one takes the signal that
                    // continued them.
                    self.recheck_pending(&mut state);
                    return;
                }
                self.parks_here(&mut state);
            }
            executor::park();
        }
    }
}
