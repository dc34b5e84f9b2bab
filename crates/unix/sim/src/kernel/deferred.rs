//! Deferred signal generation (§7.1): an event queue, and the dedicated thread that generates, at
//! base spl, the signals that the clock tick must not generate.
//!
//! An event holds a reference to its target process or group, so that the target still exists when
//! the event is handled. It also stores which process was *self* when the event was created
//! (§7.2.3). A thread that defers a signal may wait until the event has been handled
//! ([`Kernel::await_generated`]). The queue has a fixed size, because a tick must not allocate. If
//! the queue is full, no event is created and no reference is taken. In that case an alarm is
//! retried at the next tick, and SIGXCPU is sent when the limit is exceeded again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{SigInfo, Signal};

use super::Kernel;
use super::generate::To;
use super::proc::Proc;
use super::references::{HeldProc, ProcRef};
use super::session::Pgrp;
use crate::config::{Executor, SystemConfig};
use crate::executor::{self, Fiber, Object};
use crate::lock::lock_order::EventLock;
use crate::lock::{LockClass, SimpleLock, spl};

/// The object that represents the queue, including the words that are read without the lock.
const EVENTS: Object = Object::Lock(EventLock::RANK, 0);

/// Maximum number of queued events.
const MOST: usize = 1024;

/// The queue, and the thread that empties it.
pub(super) struct Events {
    /// `event_lock`.
    queue: SimpleLock<EventLock, EventQueue>,
    /// The signal thread, once it has started.
    worker: std::sync::OnceLock<Fiber>,
    ending: AtomicBool,
}

/// The state that `event_lock` guards.
struct EventQueue {
    events: VecDeque<DeferredEvent>,
    /// Number of events queued so far.
    made: u64,
    /// Number of events handled so far.
    generated: u64,
    /// Waiting fibers, each with the number of handled events that it waits for.
    sleepers: Vec<(u64, Fiber)>,
}

/// A signal to be generated.
enum DeferredEvent {
    Process {
        target: HeldProc,
        info: SigInfo,
    },
    Group {
        group: Arc<Pgrp>,
        this: Option<HeldProc>,
        info: SigInfo,
    },
    /// SIGALRM, if the process's current alarm is still the one with this number.
    Alarm {
        target: HeldProc,
        number: u64,
    },
}

impl Events {
    pub(super) fn new(config: &SystemConfig) -> Self {
        // A real tick must not allocate; a simulated one may.
        let capacity = if config.executor == Executor::Parallel { MOST } else { 0 };
        let queue = EventQueue {
            events: VecDeque::with_capacity(capacity),
            made: 0,
            generated: 0,
            sleepers: Vec::new(),
        };
        Self {
            queue: SimpleLock::new(0, queue),
            worker: std::sync::OnceLock::new(),
            ending: AtomicBool::new(false),
        }
    }
}

impl Kernel {
    /// Signals a process later. Can be called from any context. Does nothing if the queue is full.
    pub(super) fn psignal_indirect(&self, target: &Proc, info: SigInfo) {
        self.defer(|| Some(DeferredEvent::Process { target: self.hold_process(target)?, info }));
    }

    /// Queues an alarm of a process. Returns `false` if the queue is full.
    pub(super) fn alarm_indirect(&self, target: &Proc, number: u64) -> bool {
        self.defer(|| Some(DeferredEvent::Alarm { target: self.hold_process(target)?, number }))
    }

    /// Signals a group later, and also `this` if it is not a member at that time.
    pub(super) fn pgsignal_indirect(&self, group: &Arc<Pgrp>, info: SigInfo, this: Option<&Proc>) {
        self.defer(|| {
            let this = this.and_then(|this| self.hold_process(this));
            Some(DeferredEvent::Group { group: Arc::clone(group), this, info })
        });
    }

    /// Takes a reference for an event, or returns `None` if the process is ending and so discards
    /// signals.
    fn hold_process(&self, target: &Proc) -> Option<HeldProc> {
        ProcRef::new(self, target).hold()
    }

    /// Queues the event that `event` creates, if any, and wakes the signal thread. If the queue is
    /// full, creates no event and returns `false`.
    fn defer(&self, event: impl FnOnce() -> Option<DeferredEvent>) -> bool {
        {
            let _spl = spl::splhigh();
            let mut queue = self.events.queue.lock(&self.locks);
            if queue.events.len() == MOST {
                return false;
            }
            if let Some(event) = event() {
                queue.events.push_back(event);
                queue.made += 1;
            }
        }
        executor::looks_at(EVENTS);
        if let Some(worker) = self.events.worker.get() {
            worker.unpark();
        }
        true
    }

    /// Sleeps until all events that were queued before this call have been handled. Called at base
    /// spl, with no lock held. Signals do not interrupt the sleep, because the signal thread never
    /// waits for long.
    pub(super) fn await_generated(&self) {
        let mut wanted = None;
        loop {
            {
                let _spl = spl::splhigh();
                let mut queue = self.events.queue.lock(&self.locks);
                let wanted = *wanted.get_or_insert(queue.made);
                if queue.generated >= wanted {
                    return;
                }
                queue.sleepers.push((wanted, executor::current()));
            }
            executor::park();
        }
    }

    /// Runs the signal thread until the system ends.
    pub(super) fn generate_deferred(&self) {
        executor::changes(EVENTS);
        let _ = self.events.worker.set(executor::current());
        while !self.events.ending.load(Ordering::Relaxed) {
            let next = {
                let _spl = spl::splhigh();
                self.events.queue.lock(&self.locks).events.pop_front()
            };
            match next {
                Some(event) => {
                    self.generate(event);
                    self.wake_awaiting();
                }
                None => executor::park(),
            }
            executor::looks_at(EVENTS);
        }
    }

    /// Counts a handled event, and wakes the fibers that wait for it.
    fn wake_awaiting(&self) {
        let _spl = spl::splhigh();
        let mut queue = self.events.queue.lock(&self.locks);
        queue.generated += 1;
        let generated = queue.generated;
        for (_, fiber) in queue.sleepers.extract_if(.., |(wanted, _)| *wanted <= generated) {
            fiber.unpark();
        }
    }

    fn generate(&self, event: DeferredEvent) {
        match event {
            DeferredEvent::Process { target, info } => {
                self.psignal_inthread(&target.refer(self), info)
            }
            DeferredEvent::Group { group, this, info } => {
                let this = this.map(|this| this.refer(self));
                self.pgsignal_internal(&group, info, this.as_deref());
            }
            DeferredEvent::Alarm { target, number } => {
                let target = target.refer(self);
                let mut state = target.lock(&self.locks);
                let is_set = state.alarm.is_some_and(|(_, set)| set == number);
                if is_set {
                    state.alarm = None;
                    self.post_own(&mut state, SigInfo::kernel(Signal::ALRM), To::Process);
                }
            }
        }
    }

    /// Ends the signal thread.
    pub(super) fn end_deferred(&self) {
        executor::changes(EVENTS);
        self.events.ending.store(true, Ordering::Relaxed);
        if let Some(worker) = self.events.worker.get() {
            worker.unpark();
        }
    }
}
