//! The clock: ticks (§6.1), limits of processor time, profiles, alarms.
//!
//! A tick runs at high spl in the middle of whatever it interrupted: it writes a word of the
//! thread's own, takes `u_time_lock`, which is never held at base spl, and defers what has to be
//! signalled.

#![allow(unsafe_code, reason = "a tick finds the thread that it interrupted by its address")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tontine_unix::{Rlimit, SigInfo, Signal, Usage};

use super::Kernel;
use super::call::Call;
use super::limits::Times;
use super::proc::{Proc, ProcState, Tenant};
use super::thread::{Attention, Thread};
use crate::executor;
use crate::executor::TICKS_A_SECOND;
use crate::lock::spl;

/// What [`Sys::profil`](tontine_unix::Sys::profil) counts into.
pub(super) type Profile = Arc<[AtomicU32]>;

/// What one tick charges.
const TICK: Duration = Duration::from_nanos(1_000_000_000 / TICKS_A_SECOND as u64);

impl Kernel {
    /// The clock ticks on a processor that runs the thread of this context, or nobody.
    pub(crate) fn on_tick(context: usize) {
        let Some(thread) = NonNull::new(context as *mut Thread) else { return };
        // SAFETY: the context of a fiber that runs is its thread, which it keeps until
        // `forget_context`.
        let thread = unsafe { thread.as_ref() };
        // A thread that has left its process runs a few steps more, and they are charged to nobody.
        if !thread.has_left() {
            thread.kernel.get().tick(thread);
        }
    }

    /// A tick that a thread is charged for (§6.1).
    fn tick(&self, thread: &Thread) {
        let _spl = spl::tick();
        let proc = self.slab.get(thread.slot);
        let user = !executor::in_kernel();
        thread.ticks.fetch_add(1, Ordering::Relaxed);
        thread.demand(Attention::TICK);
        let exceeded = {
            let mut times = proc.times.lock(&self.locks);
            let used = &mut times.used;
            *(if user { &mut used.user } else { &mut used.system }) += TICK;
            let total = (used.user + used.system).as_secs();
            let Rlimit { soft, hard } = &mut times.cpu_limit;
            if total >= *hard {
                Some(Signal::KILL)
            } else if total >= *soft {
                // The process gets one second more, to see to the signal in.
                *soft += 1;
                Some(Signal::XCPU)
            } else {
                None
            }
        };
        if let Some(signal) = exceeded {
            self.psignal(proc, SigInfo::kernel(signal));
        }
    }

    /// Sets a limit of processor time, in seconds.
    pub(super) fn limit_time(&self, proc: &Proc, limit: Rlimit) {
        let _spl = spl::splhigh();
        proc.times.lock(&self.locks).cpu_limit = limit;
    }

    /// The limit of processor time, which the clock raises.
    pub(super) fn time_limit(&self, proc: &Proc) -> Rlimit {
        let _spl = spl::splhigh();
        proc.times.lock(&self.locks).cpu_limit
    }

    /// What a process and those that it waited for used. Under its `p_lock`.
    pub(super) fn usage(&self, proc: &Proc, state: &ProcState) -> Usage {
        let mut sum = self.used(proc);
        super::wait::add(&mut sum, state.children_used);
        sum
    }

    /// What a process used itself.
    pub(super) fn used(&self, proc: &Proc) -> Usage {
        let _spl = spl::splhigh();
        proc.times.lock(&self.locks).used
    }

    /// A process begins to use time.
    pub(super) fn start_time(&self, proc: &Proc, limit: Rlimit) {
        let _spl = spl::splhigh();
        *proc.times.lock(&self.locks) = Times { used: Usage::default(), cpu_limit: limit };
    }
}

impl Call<'_> {
    /// Counts the ticks that came since the last look where the program says that it is.
    pub(super) fn update_profile(&self) {
        self.thread.settle(Attention::TICK);
        let ticks = self.thread.ticks.swap(0, Ordering::Relaxed);
        let profile = self.profile.take();
        if let Some(count) = profile.as_ref().and_then(|counts| counts.get(self.at.get())) {
            count.fetch_add(ticks, Ordering::Relaxed);
        }
        self.profile.set(profile);
    }

    /// Moves to another place; the ticks that came before are counted where the program was.
    pub(super) fn move_mark(&self, mark: usize) {
        self.update_profile();
        self.at.set(mark);
    }

    pub(super) fn set_alarm(&self, seconds: u32) -> u32 {
        self.plain(0, || {
            let kernel = self.kernel;
            let now = kernel.executor.now();
            let number = kernel.alarms.fetch_add(1, Ordering::Relaxed) + 1;
            let due = (seconds != 0).then(|| (now + Duration::from_secs(seconds.into()), number));
            let before = std::mem::replace(&mut self.state().alarm, due);
            if let Some((when, number)) = due {
                kernel.ring_at(when, self.proc.tenant(), number);
            }
            before.map_or(0, |(when, _)| seconds_left(when.saturating_sub(now)))
        })
    }
}

impl Kernel {
    /// Sets an alarm.
    fn ring_at(&self, when: Duration, tenant: Tenant, number: u64) {
        let handle = self.handle();
        self.executor.at(when, Box::new(move || handle.get().ring(tenant, number)));
    }

    /// An alarm is due: the signal thread looks whether it still stands.
    fn ring(&self, tenant: Tenant, number: u64) {
        let proc = self.slab.get(tenant.slot);
        if proc.tenant() == tenant && !self.alarm_indirect(proc, number) {
            self.ring_at(self.executor.now() + TICK, tenant, number);
        }
    }
}

/// Seconds as alarm(2) tells them: never 0 for an alarm that is set.
fn seconds_left(left: Duration) -> u32 {
    let seconds = (left + Duration::from_millis(500)).as_secs().max(1);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
