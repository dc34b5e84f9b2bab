//! `unix_master` (§1, §3): in mode `Master` a call waits for processor 0 and runs there.
//!
//! A fiber stays on its worker, so the caller does not move. It switches away, and a *service
//! fiber* of processor 0 runs its call on a separate stack, on which the call may also sleep. On
//! processor 0, threads switch inside the kernel only if a thread sleeps, so calls exclude each
//! other.

#![allow(unsafe_code, reason = "a sleeping fiber lends its stack to the master")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tontine_unix::{Errno, Result};

use super::Kernel;
use crate::costs::CostKind;
use crate::executor::{self, Fiber, Object, Start};
use crate::lock::lock_order::ORDER;
use crate::mode::LockingMode;

/// The rank of the queue in a modelled run: after all locks.
const RANK: u8 = ORDER.len() as u8;

/// Calls that wait for the master, and the fibers that run them.
#[derive(Default)]
pub(super) struct Master(Mutex<MasterQueue>);

#[derive(Default)]
struct MasterQueue {
    calls: VecDeque<MasterCall>,
    idle: Vec<Fiber>,
    /// Number of service fibers.
    fibers: usize,
    /// Number of threads that may make calls.
    threads: usize,
    /// Number of fibers that were woken and have not yet checked for a call.
    coming: usize,
    ending: bool,
}

/// A call, stored on the stack of the fiber that sleeps until the call is done.
struct MasterCall(*const MasterRequest<'static>);

struct MasterRequest<'a> {
    run: *mut (dyn FnMut() + 'a),
    caller: Fiber,
    done: AtomicBool,
}

// SAFETY: the sleeping caller does not access the target until `done`. `run` captures the same data
// as a call: the kernel, which is shared, and a thread that does nothing else in the meantime.
unsafe impl Send for MasterCall {}

impl Kernel {
    /// Runs a call on the processor that the mode requires: here, or on the master.
    #[inline]
    pub(super) fn on_master<R>(&self, body: impl FnOnce() -> R) -> R {
        if self.config.mode != LockingMode::Master || executor::processor() == 0 {
            return body();
        }
        self.unix_master(body)
    }

    #[cold]
    fn unix_master<R>(&self, body: impl FnOnce() -> R) -> R {
        let mut body = Some(body);
        let mut result = None;
        let mut run = || result = body.take().map(|body| body());
        let order = MasterRequest {
            run: &raw mut run,
            caller: executor::current(),
            done: AtomicBool::new(false),
        };
        self.submit(MasterCall((&raw const order).cast()));
        // SYNC mastered: pairs with the store in `Kernel::serve`.
        while !order.done.load(Ordering::Acquire) {
            executor::rest();
        }
        charge_for_order();
        result.expect("the master ran the call")
    }

    fn submit(&self, call: MasterCall) {
        let idle = {
            let mut desk = self.desk();
            desk.calls.push_back(call);
            if desk.coming >= desk.calls.len() {
                return;
            }
            // There are as many service fibers as threads, and each thread waits for at most one
            // call. So if no fiber is idle, at least one of them has not yet checked for further
            // calls.
            let idle = desk.idle.pop();
            desk.coming += usize::from(idle.is_some());
            idle
        };
        match idle {
            Some(fiber) => fiber.hand_over(),
            // That fiber waits for its turn on processor 0, behind a program that might run for a
            // long time.
            None => self.executor.hurry(0),
        }
    }

    /// Ensures that there is a service fiber for each thread, including one that is about to start,
    /// because all of them may sleep in calls at the same time. The fiber starts when a call
    /// arrives for it. Fails with `EAGAIN` if no stack is available.
    pub(super) fn reserve_service(&self) -> Result<()> {
        if self.config.mode != LockingMode::Master {
            return Ok(());
        }
        executor::changes(Object::Desk);
        let mut desk = self.desk();
        desk.threads += 1;
        if desk.fibers < desk.threads {
            let kernel = self.handle();
            let body = Box::new(move || kernel.get().serve());
            let start = Start { processor: Some(0), context: 0, name: 0, body };
            let Ok(fiber) = self.executor.start_asleep(start) else {
                desk.threads -= 1;
                return Err(Errno::EAGAIN);
            };
            desk.fibers += 1;
            desk.idle.push(fiber);
        }
        Ok(())
    }

    /// Releases the service fiber of a thread that makes no further calls.
    pub(super) fn release_service(&self) {
        if self.config.mode == LockingMode::Master {
            executor::changes(Object::Desk);
            self.desk().threads -= 1;
        }
    }

    /// The main loop of a service fiber.
    fn serve(&self) {
        self.come();
        loop {
            let next = {
                let mut desk = self.desk();
                let next = desk.calls.pop_front();
                if next.is_none() {
                    if desk.ending {
                        return;
                    }
                    desk.idle.push(executor::current());
                }
                next
            };
            let Some(call) = next else {
                executor::rest();
                self.come();
                continue;
            };
            charge_for_order();
            // SAFETY: the caller keeps the request until it has seen `done`. It sleeps, so no other
            // thread runs the closure. The caller's fiber is cloned before `done` is set.
            let caller = unsafe {
                let order = &*call.0;
                order.caller.is_served();
                (*order.run)();
                let caller = order.caller.clone();
                // SYNC mastered: pairs with the load in `Kernel::unix_master`.
                order.done.store(true, Ordering::Release);
                caller
            };
            executor::serve_itself();
            caller.hand_over();
            // Calls may arrive endlessly. Let the fibers that slept in a call, and the programs of
            // this processor, run in between.
            executor::take_turns();
        }
    }

    /// Records that a service fiber has started or has woken up.
    fn come(&self) {
        let mut desk = self.desk();
        let (idle, me) = (desk.idle.len(), executor::current_id());
        desk.idle.retain(|fiber| fiber.id() != me);
        // `submit` removes the fiber that it wakes from the idle fibers and counts it as coming.
        // That fiber has now arrived. `end_master` removes all fibers and counts none.
        if desk.idle.len() == idle && !desk.ending {
            desk.coming -= 1;
        }
    }

    /// Ends the service fibers.
    pub(super) fn end_master(&self) {
        executor::changes(Object::Desk);
        let idle = {
            let mut desk = self.desk();
            desk.ending = true;
            std::mem::take(&mut desk.idle)
        };
        for fiber in idle {
            fiber.unpark();
        }
    }

    /// Locks the queue. No access is recorded, because in an exploration of schedules a call is
    /// handed over and back immediately, so no other fiber observes which fiber ran it. A modelled
    /// run charges for the queue as for a lock.
    fn desk(&self) -> MutexGuard<'_, MasterQueue> {
        executor::touch(RANK, 0);
        self.master.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In a modelled run, charges for the transfer of a call to the master's processor, or back: the
/// cache line of the request, and the one with the reference count of its caller.
fn charge_for_order() {
    executor::spend(CostKind::Transfer);
    executor::spend(CostKind::Transfer);
}
