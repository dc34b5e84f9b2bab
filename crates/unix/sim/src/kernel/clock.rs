//! The clock: ticks (§6.1), limits of processor time, profiles, alarms.
//!
//! A tick runs at high spl and may interrupt any code. It writes a word that belongs to the thread,
//! takes `u_time_lock`, which is never held at base spl, and defers the signals.

#![allow(unsafe_code, reason = "a tick finds the thread that it interrupted by its address")]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tontine_unix::{Rlimit, SigInfo, Signal, Usage};

use super::Kernel;
use super::call::Caller;
use super::limits::{UserTimes, add_usage};
use super::proc::{Proc, ProcKey, ProcState};
use super::thread::{AstFlags, Thread};
use crate::executor;
use crate::executor::TICKS_A_SECOND;
use crate::lock::spl;

/// The time that one tick charges.
const TICK: Duration = Duration::from_nanos(1_000_000_000 / TICKS_A_SECOND as u64);

impl Kernel {
    /// Handles a tick on a processor. `context` is the context of the fiber that runs there, or 0.
    pub(crate) fn on_tick(context: usize) {
        let Some(thread) = NonNull::new(context as *mut Thread) else { return };
        // SAFETY: the context of a running fiber is its thread, which the fiber keeps alive until
        // `forget_context`.
        let thread = unsafe { thread.as_ref() };
        // A thread that has left its process runs a few more steps. They are charged to no process.
        if !thread.has_left() {
            thread.kernel.get().tick(thread);
        }
    }

    /// Charges a tick to a thread (§6.1).
    fn tick(&self, thread: &Thread) {
        let _spl = spl::tick();
        let proc = self.slab.get(thread.slot);
        let user = !executor::in_kernel();
        thread.ticks.fetch_add(1, Ordering::Relaxed);
        thread.demand(AstFlags::TICK);
        let exceeded = {
            let mut times = proc.times.lock(&self.locks);
            let used = &mut times.used;
            *(if user { &mut used.user } else { &mut used.system }) += TICK;
            let total = (used.user + used.system).as_secs();
            let Rlimit { soft, hard } = &mut times.cpu_limit;
            if total >= *hard {
                Some(Signal::KILL)
            } else if total >= *soft {
                // The process receives one more second in which to handle the signal.
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

    /// Sets the limit of processor time, in seconds.
    pub(super) fn limit_time(&self, proc: &Proc, limit: Rlimit) {
        let _spl = spl::splhigh();
        proc.times.lock(&self.locks).cpu_limit = limit;
    }

    /// Returns the limit of processor time, which the clock raises.
    pub(super) fn time_limit(&self, proc: &Proc) -> Rlimit {
        let _spl = spl::splhigh();
        proc.times.lock(&self.locks).cpu_limit
    }

    /// Returns the processor time of a process and of the children that it waited for. Called under
    /// its `p_lock`.
    pub(super) fn usage(&self, proc: &Proc, state: &ProcState) -> Usage {
        let mut sum = self.used(proc);
        add_usage(&mut sum, state.children_used);
        sum
    }

    /// Returns the processor time of the process itself.
    pub(super) fn used(&self, proc: &Proc) -> Usage {
        let _spl = spl::splhigh();
        proc.times.lock(&self.locks).used
    }

    /// Starts the accounting of processor time for a process.
    pub(super) fn start_time(&self, proc: &Proc, limit: Rlimit) {
        let _spl = spl::splhigh();
        *proc.times.lock(&self.locks) = UserTimes { used: Usage::default(), cpu_limit: limit };
    }
}

impl Caller<'_> {
    /// Adds the ticks since the last update to the counter for the program's current position.
    pub(super) fn update_profile(&self) {
        self.thread.settle(AstFlags::TICK);
        let ticks = self.thread.ticks.swap(0, Ordering::Relaxed);
        let profile = self.profile.take();
        if let Some(count) = profile.as_ref().and_then(|counts| counts.get(self.at.get())) {
            count.fetch_add(ticks, Ordering::Relaxed);
        }
        self.profile.set(profile);
    }

    /// Records that the program has moved to another position. Earlier ticks are counted at the
    /// previous position.
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
    fn ring_at(&self, when: Duration, tenant: ProcKey, number: u64) {
        let handle = self.handle();
        self.executor.at(when, Box::new(move || handle.get().ring(tenant, number)));
    }

    /// Handles an alarm that is due: the signal thread checks whether it is still set.
    fn ring(&self, tenant: ProcKey, number: u64) {
        let proc = self.slab.get(tenant.slot);
        if proc.tenant() == tenant && !self.alarm_indirect(proc, number) {
            self.ring_at(self.executor.now() + TICK, tenant, number);
        }
    }
}

/// Returns the seconds that alarm(2) reports: never 0 for an alarm that is set.
fn seconds_left(left: Duration) -> u32 {
    let seconds = (left + Duration::from_millis(500)).as_secs().max(1);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
