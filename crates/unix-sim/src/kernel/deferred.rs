//! Deferred signal generation (§7.1): an event queue, and the dedicated thread that generates at
//! base spl what the clock tick may not.
//!
//! An event holds a reference to the process or group that it is for, so that neither is gone when
//! it is dealt with, and remembers who *self* was when it was made (§7.2.3). A thread that defers
//! may wait until it has been dealt with ([`Kernel::await_generated`]). The queue has a fixed size,
//! for a tick allocates nothing, and what finds it full makes no event and takes no reference: an
//! alarm comes again with the next tick, SIGXCPU when the limit is exceeded again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{SigInfo, Signal};

use super::Kernel;
use super::generate::To;
use super::pgrp::Pgrp;
use super::proc::Proc;
use super::references::{HeldProc, ProcRef};
use crate::config::{Config, Executor};
use crate::executor::{self, Fiber, Object};
use crate::lock::lock_order::EventLock;
use crate::lock::{Class, SimpleLock, spl};

/// The queue, and what is read of it without its lock, for who explores.
const EVENTS: Object = Object::Lock(EventLock::RANK, 0);

/// Most events that wait at once.
const MOST: usize = 1024;

/// The queue, and who empties it.
#[derive(Debug)]
pub(super) struct Events {
    /// `event_lock`.
    queue: SimpleLock<EventLock, Queue>,
    /// The signal thread, once it runs.
    worker: std::sync::OnceLock<Fiber>,
    ending: AtomicBool,
}

/// What `event_lock` guards.
#[derive(Debug)]
struct Queue {
    events: VecDeque<Event>,
    /// Events that were ever queued.
    made: u64,
    /// Those of them that were dealt with.
    generated: u64,
    /// Fibers that wait until so many were.
    sleepers: Vec<(u64, Fiber)>,
}

/// What is to be generated.
#[derive(Debug)]
enum Event {
    Process {
        target: HeldProc,
        info: SigInfo,
    },
    Group {
        group: Arc<Pgrp>,
        this: Option<HeldProc>,
        info: SigInfo,
    },
    /// SIGALRM, if the process's alarm is still the one with this number.
    Alarm {
        target: HeldProc,
        number: u64,
    },
}

impl Events {
    pub(super) fn new(config: &Config) -> Self {
        // A real tick must not allocate; a simulated one may.
        let room = if config.executor == Executor::Parallel { MOST } else { 0 };
        let queue = Queue {
            events: VecDeque::with_capacity(room),
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
    /// Has a process signalled later. From any context; nothing happens where the queue is full.
    pub(super) fn psignal_indirect(&self, target: &Proc, info: SigInfo) {
        self.defer(|| Some(Event::Process { target: self.hold_process(target)?, info }));
    }

    /// Has a process's alarm ring; false where the queue is full.
    pub(super) fn alarm_indirect(&self, target: &Proc, number: u64) -> bool {
        self.defer(|| Some(Event::Alarm { target: self.hold_process(target)?, number }))
    }

    /// Has a group signalled later, and `this` if it is no member then.
    pub(super) fn pgsignal_indirect(&self, group: &Arc<Pgrp>, info: SigInfo, this: Option<&Proc>) {
        self.defer(|| {
            let this = this.and_then(|this| self.hold_process(this));
            Some(Event::Group { group: Arc::clone(group), this, info })
        });
    }

    /// A reference for an event; `None` to a process that ends, which throws away what it is sent.
    fn hold_process(&self, target: &Proc) -> Option<HeldProc> {
        ProcRef::new(self, target).hold()
    }

    /// Queues what `event` makes, if anything, and wakes the signal thread; false, and nothing is
    /// made, where the queue is full.
    fn defer(&self, event: impl FnOnce() -> Option<Event>) -> bool {
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

    /// Sleeps until everything that was deferred before has been generated. At base spl, with no
    /// lock held; no signal ends it, for the signal thread never waits for long.
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

    /// What the signal thread does, until the system ends.
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

    /// One event more was dealt with: wakes whoever waits for it.
    fn wake_awaiting(&self) {
        let _spl = spl::splhigh();
        let mut queue = self.events.queue.lock(&self.locks);
        queue.generated += 1;
        let generated = queue.generated;
        for (_, fiber) in queue.sleepers.extract_if(.., |(wanted, _)| *wanted <= generated) {
            fiber.unpark();
        }
    }

    fn generate(&self, event: Event) {
        match event {
            Event::Process { target, info } => self.psignal_inthread(&target.refer(self), info),
            Event::Group { group, this, info } => {
                let this = this.map(|this| this.refer(self));
                self.pgsignal_internal(&group, info, this.as_deref());
            }
            Event::Alarm { target, number } => {
                let target = target.refer(self);
                let mut state = target.lock(&self.locks);
                let stands = state.alarm.is_some_and(|(_, set)| set == number);
                if stands {
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
