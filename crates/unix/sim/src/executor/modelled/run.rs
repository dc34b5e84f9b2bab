//! The main loop of the modelled executor, [`run`]: the processor whose clock is furthest behind
//! runs.
#![allow(unsafe_code, reason = "runs fibers by address")]

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::processor::{Arrival, ModelledProcessor};
use super::{MachineHere, MachineModel, ModelledRun, NEVER};
use crate::costs::{CostKind, PS_A_NS};
use crate::executor::here::{Backend, HERE, Stay};
use crate::executor::local::Local;
use crate::executor::signals::SignalStack;
use crate::executor::task::{SwitchReason, Task, Worker};
use crate::executor::{FiberExecutor, RunEnd};
use crate::split_mix::SplitMix;

/// Runs the executor; see [`FiberExecutor::run`].
pub(super) fn run(model: &MachineModel, executor: &FiberExecutor) -> RunEnd {
    let worker = executor.workers[0];
    let local = Local::new();
    let _signal_stack = SignalStack::install();
    let machine = ModelledRun {
        costs: model.costs,
        processors: (0..executor.options.processors).map(ModelledProcessor::new).collect(),
        current: Cell::new(0),
        inside: Cell::new(false),
        outside_ps: Cell::new(0),
        horizon_ps: Cell::new(0),
        spinning: Cell::new(0),
        next_look_ps: Cell::new(0),
        random: RefCell::new(SplitMix::new(model.seed)),
        steps: Cell::new(0),
        lines: RefCell::default(),
        words: RefCell::default(),
    };
    let tick = executor.ticks.get().map(|ticks| ticks.call);
    let _stay = Stay::begin(Backend::Modelled, worker, &local, tick);
    let _machine = MachineHere::begin(&machine);
    HERE.with(|here| here.notes.set(true));
    let run = ModelledExecution { model, executor, worker, local: &local, machine: &machine };
    let outcome = run.until_end();
    run.end();
    outcome
}

/// The current run.
struct ModelledExecution<'a> {
    model: &'a MachineModel,
    executor: &'a FiberExecutor,
    worker: &'static Worker,
    local: &'a Local,
    machine: &'a ModelledRun,
}

impl ModelledExecution<'_> {
    fn until_end(&self) -> RunEnd {
        let machine = self.machine;
        let stop_at = self.executor.options.stop_at.unwrap_or(u64::MAX);
        let mut hook_called_at = None;
        loop {
            let steps = machine.steps.get();
            if self.executor.stopping.load(Ordering::Relaxed) || steps >= stop_at {
                return RunEnd::Stopped;
            }
            self.collect();
            let (next, due_ps, horizon_ps) = self.next();
            let timer_ps = self.executor.timers.first_ns().saturating_mul(PS_A_NS);
            if timer_ps <= due_ps && timer_ps != NEVER {
                machine.outside_ps.set(timer_ps.max(machine.outside_ps.get()));
                self.executor.timers.run_due(Duration::from_nanos(timer_ps / PS_A_NS));
                continue;
            }
            if due_ps == NEVER {
                if self.executor.live() == 0 {
                    return RunEnd::Finished;
                }
                if self.executor.wait_outside(self.worker) {
                    continue;
                }
                // A hook that woke no fiber is not called again until a fiber has run.
                if hook_called_at == Some(steps) || !self.executor.options.hooks.on_stall() {
                    return RunEnd::Deadlocked;
                }
                hook_called_at = Some(steps);
                continue;
            }
            machine.horizon_ps.set(horizon_ps.min(timer_ps));
            machine.look_about(due_ps);
            self.run_on(&machine.processors[next], due_ps);
        }
    }

    /// Returns the processor whose clock is furthest behind, its time, and the time of the next
    /// processor.
    fn next(&self) -> (usize, u64, u64) {
        let (mut next, mut due_ps, mut horizon_ps) = (0, NEVER, NEVER);
        for processor in &self.machine.processors {
            let its_ps = processor.due_ps();
            if its_ps < due_ps {
                (next, horizon_ps, due_ps) = (processor.number, due_ps, its_ps);
            } else {
                horizon_ps = horizon_ps.min(its_ps);
            }
        }
        (next, due_ps, horizon_ps)
    }

    /// Collects posts from outside, and lets processors continue if the lock that they spin on is
    /// free.
    fn collect(&self) {
        if self.worker.inbox.has_posts() {
            self.worker.inbox.drain(|task| {
                // SAFETY: a queued task is alive, and this thread holds it.
                let (fresh, pinned) = unsafe { ((*task).is_fresh(), (*task).pinned) };
                self.machine.post(task, fresh && !pinned);
            });
        }
        if self.machine.spinning.get() > 0 {
            self.machine.let_spinners_go(self.machine.now_ps());
        }
    }

    /// Lets a processor continue its fiber or run another one.
    fn run_on(&self, processor: &ModelledProcessor, due_ps: u64) {
        let machine = self.machine;
        machine.current.set(processor.number);
        processor.clock_ps.set(due_ps);
        if processor.task.get().is_null() {
            processor.choose();
            if processor.task.get().is_null() {
                return;
            }
            machine.inside.set(true);
            machine.charge(CostKind::Switch);
        }
        machine.inside.set(true);
        let left = self.resume(processor);
        let now_ps = processor.clock_ps.get();
        machine.outside_ps.set(now_ps);
        self.model.clock_ps.store(now_ps, Ordering::Relaxed);
        self.model.steps.store(machine.steps.get(), Ordering::Relaxed);
        self.put_where_it_belongs(processor, left);
        machine.inside.set(false);
        if processor.is_idle() {
            self.look_for_work(processor);
        }
    }

    fn resume(&self, processor: &ModelledProcessor) -> SwitchReason {
        // SAFETY: the current task of a processor is alive until it is buried.
        let task = unsafe { &*processor.task.get() };
        self.record(task.id, processor);
        self.worker.running.store(task.name, Ordering::Relaxed);
        HERE.with(|here| {
            here.context.set(task.context);
            here.task.set(task);
            here.left.set(1);
            here.level.set(task.level.load(Ordering::Relaxed));
            here.held.set(task.held.load(Ordering::Relaxed));
        });
        let leave = task.resume();
        HERE.with(|here| {
            here.task.set(ptr::null());
            here.context.set(0);
            here.left.set(0);
            task.level.store(here.level.replace(0), Ordering::Relaxed);
            task.held.store(here.held.replace(0), Ordering::Relaxed);
        });
        self.worker.running.store(0, Ordering::Relaxed);
        leave
    }

    fn put_where_it_belongs(&self, processor: &ModelledProcessor, left: SwitchReason) {
        let task = processor.task.get();
        let arrival = Arrival { ready_ps: processor.clock_ps.get(), task };
        match left {
            SwitchReason::Point => return,
            SwitchReason::Spin => {
                processor.spins.set(true);
                self.machine.spinning.set(self.machine.spinning.get() + 1);
                return;
            }
            // SAFETY: the current task of a processor is alive until it is buried, below.
            SwitchReason::Park if unsafe { (*task).sleep() } => {}
            SwitchReason::Park => processor.woken.borrow_mut().push_back(arrival),
            SwitchReason::Yield => processor.yielded.borrow_mut().push_back(arrival),
            SwitchReason::Abandon | SwitchReason::End | SwitchReason::Overflow => {
                // SAFETY: the task has stopped permanently, is in no queue, and is not accessed
                // again.
                unsafe { self.executor.bury(task, left, self.worker, self.local) };
            }
        }
        processor.task.set(ptr::null());
    }

    /// Lets an idle processor take fibers that have not started from another one.
    fn look_for_work(&self, processor: &ModelledProcessor) {
        let has_fresh = |other: &&ModelledProcessor| !other.fresh.borrow().is_empty();
        // The processor's own queues are empty.
        if let Some(victim) = self.machine.processors.iter().find(has_fresh) {
            let cost_ps = self.machine.varied(self.machine.costs.ps(CostKind::Transfer));
            processor.take_from(victim, processor.clock_ps.get() + cost_ps);
        }
    }

    fn record(&self, id: u32, processor: &ModelledProcessor) {
        let mut digest = self.model.digest.load(Ordering::Relaxed);
        for word in [processor.clock_ps.get(), u64::from(id) << 16 | processor.number as u64] {
            // Uses the hash of `simulated.rs`.
            digest = (digest.rotate_left(23) ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.model.digest.store(digest, Ordering::Relaxed);
    }

    /// Drops the fibers that have not started, and returns the stacks to the pool.
    fn end(&self) {
        self.collect();
        for processor in &self.machine.processors {
            let queues = [&processor.woken, &processor.fresh, &processor.yielded];
            for Arrival { task, .. } in queues.iter().flat_map(|queue| queue.take()) {
                self.drop_fresh(task);
            }
        }
        self.executor.pool.give(self.local.stacks.borrow_mut().drain(..));
    }

    fn drop_fresh(&self, task: *const Task) {
        // SAFETY: a queued task is alive and no other thread holds it. A task that has never
        // started is buried once, here.
        unsafe {
            if (*task).is_fresh() {
                self.executor.bury(task, SwitchReason::End, self.worker, self.local);
            }
        }
    }
}
