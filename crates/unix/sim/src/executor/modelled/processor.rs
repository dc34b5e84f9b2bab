//! A processor of the model, with its clock and its queues: [`ModelledProcessor`].
//!
//! It chooses the next fiber by the rules of `parallel.rs`: woken fibers first, then fibers that
//! have not started, then fibers that yielded. Within a round, each queue comes first once.
#![allow(unsafe_code, reason = "runs fibers by address")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;

use super::{NEVER, is_free};
use crate::costs::PS_A_NS;
use crate::executor::parallel::{BUSY_LOOK, ROUND, TAKEN};
use crate::executor::task::Task;

/// Period of the clock's ticks, in picoseconds.
const TICK_PS: u64 = 1_000_000_000_000 / crate::executor::TICKS_A_SECOND as u64;
/// Interval between the monitor's checks, in picoseconds.
pub(super) const LOOK_PS: u64 = BUSY_LOOK.as_nanos() as u64 * PS_A_NS;

/// A fiber in a queue, and the time of its arrival.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) ready_ps: u64,
    pub(super) task: *const Task,
}

/// A processor of the model.
pub(super) struct ModelledProcessor {
    pub(super) number: usize,
    pub(super) clock_ps: Cell<u64>,
    /// The current fiber, or null.
    pub(super) task: Cell<*const Task>,
    /// `true` if that fiber spins.
    pub(super) spins: Cell<bool>,
    pub(super) woken: RefCell<VecDeque<Arrival>>,
    pub(super) fresh: RefCell<VecDeque<Arrival>>,
    pub(super) yielded: RefCell<VecDeque<Arrival>>,
    /// The time after which the fiber must yield.
    pub(super) make_way_ps: Cell<u64>,
    /// The end of its time slice.
    pub(super) slice_ends_ps: Cell<u64>,
    pub(super) next_tick_ps: Cell<u64>,
    turn: Cell<u32>,
}

impl ModelledProcessor {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            clock_ps: Cell::new(0),
            task: Cell::new(ptr::null()),
            spins: Cell::new(false),
            woken: RefCell::default(),
            fresh: RefCell::default(),
            yielded: RefCell::default(),
            make_way_ps: Cell::new(NEVER),
            slice_ends_ps: Cell::new(NEVER),
            next_tick_ps: Cell::new(TICK_PS),
            turn: Cell::new(0),
        }
    }

    /// Returns the time at which the processor can continue; [`NEVER`] if it cannot in the current
    /// state.
    pub(super) fn due_ps(&self) -> u64 {
        if !self.task.get().is_null() {
            return if self.spins.get() { NEVER } else { self.clock_ps.get() };
        }
        let first = |queue: &RefCell<VecDeque<Arrival>>| {
            queue.borrow().front().map_or(NEVER, |first| first.ready_ps)
        };
        let ready_ps = first(&self.woken).min(first(&self.fresh)).min(first(&self.yielded));
        if ready_ps == NEVER { NEVER } else { ready_ps.max(self.clock_ps.get()) }
    }

    /// Returns `true` if the processor has no work, and no work is in flight to it.
    pub(super) fn is_idle(&self) -> bool {
        self.task.get().is_null()
            && self.woken.borrow().is_empty()
            && self.fresh.borrow().is_empty()
            && self.yielded.borrow().is_empty()
    }

    /// Returns `true` if at `now_ps` the processor has been idle for longer than it polls.
    pub(super) fn sleeps_at(&self, now_ps: u64, look_ps: u64) -> bool {
        self.is_idle() && now_ps > self.clock_ps.get().saturating_add(look_ps)
    }

    /// Returns `true` if the processor spins on a word that is free.
    pub(super) fn may_stop_spinning(&self) -> bool {
        // SAFETY: the processor's current fiber spins.
        self.spins.get() && unsafe { is_free(self.task.get()) }
    }

    /// Takes half of the fibers that have not started from another processor, ready at `ready_ps`.
    pub(super) fn take_from(&self, victim: &Self, ready_ps: u64) {
        let mut source = victim.fresh.borrow_mut();
        let count = source.len().div_ceil(2).min(TAKEN);
        for arrival in source.drain(..count) {
            // SAFETY: a queued task is alive, and no other thread holds it.
            unsafe { (*arrival.task).move_to(self.number) };
            let ready_ps = ready_ps.max(arrival.ready_ps);
            self.fresh.borrow_mut().push_back(Arrival { ready_ps, ..arrival });
        }
    }

    /// Chooses the next fiber among those that have arrived.
    pub(super) fn choose(&self) {
        let now_ps = self.clock_ps.get();
        let pop = |queue: &RefCell<VecDeque<Arrival>>| {
            let mut queue = queue.borrow_mut();
            let has_arrived = queue.front().is_some_and(|first| first.ready_ps <= now_ps);
            if has_arrived { queue.pop_front() } else { None }
        };
        let turn = (self.turn.get() + 1) % ROUND;
        self.turn.set(turn);
        let first = match turn {
            0 => pop(&self.yielded),
            1 => pop(&self.fresh),
            _ => None,
        };
        let overtakes = turn == 0 && first.is_some() && !self.woken.borrow().is_empty();
        let chosen = first
            .or_else(|| pop(&self.woken))
            .or_else(|| pop(&self.fresh))
            .or_else(|| pop(&self.yielded));
        let Some(chosen) = chosen else { return };
        self.task.set(chosen.task);
        // Fibers in flight are noticed when they arrive.
        let coming = self.woken.borrow().iter().map(|one| one.ready_ps).find(|at| *at > now_ps);
        self.make_way_ps.set(if overtakes { 0 } else { coming.unwrap_or(NEVER) });
        // At its second check, the monitor finds that the fiber is still running.
        self.slice_ends_ps.set((now_ps / LOOK_PS + 2) * LOOK_PS);
    }

    /// Sets the next tick to the next multiple of the tick period.
    pub(super) fn set_next_tick(&self) {
        self.next_tick_ps.set((self.clock_ps.get() / TICK_PS + 1) * TICK_PS);
    }
}
