//! Calls that concern the caller's own signals: dispositions and masks (§2.1.1), `sigsuspend`
//! (§4.2), and `sigtimedwait`.

use std::sync::Arc;
use std::time::Duration;

use tontine_unix::{
    ActionFlags, Disposition, Errno, FAULTS, Result, SigAction, SigCode, SigInfo, SigSet, SigStack,
    SigVec, SigmaskHow, Signal,
};

use super::call::{Caller, RestartRule, Unfinished};
use super::generate::To;
use super::proc::ProcState;
use crate::config::Masks;
use crate::costs::CostKind;
use crate::executor;

/// Valid sizes of an alternate stack: at least `MINSIGSTKSZ`, and less than a program's address
/// space.
const STACK_SIZES: std::ops::Range<usize> = 2048..1 << 47;

impl Caller<'_> {
    pub(super) fn act(&self, signal: Signal, action: Option<SigAction>) -> Result<SigAction> {
        if action.is_some() && SigSet::UNBLOCKABLE.contains(signal) {
            return Err(Errno::EINVAL);
        }
        self.guarded(|| {
            let mut state = self.state();
            let Some(mut new) = action.clone() else {
                return Ok(state.actions.of(signal).clone());
            };
            new.mask = new.mask.difference(SigSet::UNBLOCKABLE);
            let actions = Arc::make_mut(&mut state.actions);
            let old = actions.of(signal).clone();
            actions.set(signal, new);
            if state.actions.nothing().contains(signal) {
                // A pending signal is discarded, whether or not it is blocked.
                self.kernel.discard(&mut state, SigSet::of(&[signal]));
                self.recheck_pending(&mut state);
            }
            Ok(old)
        })
    }

    pub(super) fn mask(&self, change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet> {
        self.guarded(|| {
            let old = self.thread.mask();
            if let Some((how, set)) = change {
                self.change_mask(how.apply(old, set));
            }
            Ok(old)
        })
    }

    pub(super) fn pending(&self) -> SigSet {
        self.plain(SigSet::EMPTY, || {
            let mut state = self.state();
            let shared = state.pending.set().intersection(self.thread.mask());
            let own = self.member(&mut state).pending.set().intersection(self.thread.mask());
            shared.union(own)
        })
    }

    /// Waits with `mask` until a handler has run, after which the previous mask is restored (§4.2).
    pub(super) fn suspend(&self, mask: SigSet) -> Errno {
        let slept: Result<()> = self.interruptible(RestartRule::Interrupt, || {
            self.sig_lock_or_return()?.unlock();
            executor::spend(CostKind::Suspend);
            if self.kernel.config.masks == Masks::PerThread
                && let Some(saved) = self.saved_mask.take()
            {
                // The thread was woken, but no handler ran. Linux restarts the call with the
                // previous mask, which may unblock signals that the call's own mask blocks.
                self.change_mask(saved);
                if self.has_pending_ast() {
                    return Err(Unfinished::Again);
                }
            }
            if self.saved_mask.get().is_none() {
                self.saved_mask.set(Some(self.thread.mask()));
            }
            self.sleep_for_handler(|state| {
                // This mask applies to this thread alone, even if masks otherwise belong to
                // processes (§4.2).
                self.member(state).suspended = true;
                self.thread.set_mask(mask.difference(SigSet::UNBLOCKABLE));
                self.recheck_pending(state);
            })
        });
        slept.err().unwrap_or(Errno::EINTR)
    }

    pub(super) fn wait_for_handler(&self) -> Errno {
        let slept: Result<()> = self.interruptible(RestartRule::Interrupt, || {
            self.sig_lock_or_return()?.unlock();
            self.sleep_for_handler(|_| {})
        });
        slept.err().unwrap_or(Errno::EINTR)
    }

    pub(super) fn accept(&self, set: SigSet, timeout: Option<Duration>) -> Result<SigInfo> {
        let set = set.difference(SigSet::UNBLOCKABLE);
        let mut begun = None;
        let taken = self.interruptible(RestartRule::Interrupt, || {
            self.sig_lock_or_return()?.unlock();
            let (deadline, wakings) = *begun.get_or_insert_with(|| {
                let now = self.kernel.executor.now();
                (timeout.map(|timeout| now.saturating_add(timeout)), self.wakings.get())
            });
            if self.wakings.get() != wakings {
                // On Linux a stop, or a signal without an effect, ends this call, but no other
                // sleeping call.
                return Err(Errno::EINTR.into());
            }
            let taken = self.sleep(deadline, |state| {
                let taken = self.take_of(state, set);
                self.thread.set_awaited(if taken.is_some() { SigSet::EMPTY } else { set });
                if taken.is_none() && !self.awaits_more(state, set) {
                    // Another thread took the signal that woke this thread, and no other signal is
                    // left for it.
                    self.recheck_pending(state);
                }
                taken
            });
            self.pass_on();
            taken
        })?;
        taken.ok_or(Errno::EAGAIN)
    }

    /// Ends the wait, and passes on other signals that arrived during it. They were left to this
    /// thread, although another thread may be waiting for them.
    fn pass_on(&self) {
        let state = self.state();
        self.thread.set_awaited(SigSet::EMPTY);
        if state.threads.len() > 1 {
            for signal in state.pending.set().iter() {
                self.kernel.wake_for(&state, signal, To::Process);
            }
        }
    }

    fn take_of(&self, state: &mut ProcState, set: SigSet) -> Option<SigInfo> {
        let (info, queued) = self.take_first(state, set, set)?;
        state.credentials.user.signals.give_back(queued.into());
        self.recheck_pending(state);
        Some(info)
    }

    fn awaits_more(&self, state: &mut ProcState, set: SigSet) -> bool {
        let shared = state.pending.set();
        !self.member(state).pending.set().union(shared).intersection(set).is_empty()
    }

    /// Raises a signal that the thread's own execution causes (§3.1). The signal is delivered to
    /// this thread immediately, and is fatal if it is blocked or ignored.
    pub(super) fn raise_fault(&self, signal: Signal) -> Result<()> {
        if !FAULTS.contains(signal) {
            return Err(Errno::EINVAL);
        }
        self.guarded(|| {
            let mut state = self.state();
            let blocked = self.thread.mask().contains(signal);
            let ignored = state.actions.of(signal).disposition == Disposition::Ignore;
            if blocked || ignored {
                let actions = Arc::make_mut(&mut state.actions);
                actions.set(signal, SigAction::DEFAULT);
                self.thread.set_mask(self.thread.mask().without(signal));
            }
            let info = SigInfo { code: SigCode::Fault, ..SigInfo::kernel(signal) };
            self.kernel.post(&mut state, info, To::Thread(self.thread.tid()))
        })
    }

    /// Applies the action of 4.3BSD: interrupted calls restart, unless `SV_INTERRUPT` was
    /// requested. In the returned value, the absence of `SA_RESTART` stands for `SV_INTERRUPT`.
    pub(super) fn vector(&self, signal: Signal, vector: Option<SigVec>) -> Result<SigVec> {
        let action = vector.map(|vector| {
            let flags = vector.action.flags.union(ActionFlags::RESTART);
            vector.action.with_flags(flags)
        });
        self.act(signal, action).map(|action| SigVec { action })
    }

    pub(super) fn stack(&self, stack: Option<SigStack>) -> Result<SigStack> {
        let old = self.alternate.get();
        if let Some(new) = stack {
            if old.on_stack {
                return Err(Errno::EPERM);
            }
            if new.size != 0 && !STACK_SIZES.contains(&new.size) {
                return Err(Errno::ENOMEM);
            }
            self.alternate.set(SigStack { on_stack: false, ..new });
        }
        Ok(old)
    }

    pub(super) fn sleep_for(
        &self,
        duration: Duration,
    ) -> std::result::Result<(), (Errno, Duration)> {
        let mut deadline = None;
        let slept = self.interruptible(RestartRule::Interrupt, || {
            let now = self.kernel.executor.now();
            let deadline = *deadline.get_or_insert_with(|| now.saturating_add(duration));
            self.sleep(Some(deadline), |_| None::<()>).map(|_| ())
        });
        slept.map_err(|errno| {
            let now = self.kernel.executor.now();
            (errno, deadline.map_or(duration, |deadline| deadline.saturating_sub(now)))
        })
    }
}
