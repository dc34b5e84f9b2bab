//! `unix_master` (§1, §3): in mode `Master` a call waits for processor 0 and runs there.
//!
//! A fiber stays on its worker, so the caller does not move: it switches away, and a *service
//! fiber* of processor 0 runs its call on a stack of its own, on which the call may also sleep. On
//! processor 0 nothing switches inside the kernel but where it sleeps, so that calls exclude each
//! other.

#![allow(unsafe_code, reason = "a sleeping fiber lends its stack to the master")]

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tontine_unix::{Errno, Result};

use super::Kernel;
use crate::costs::CostKind;
use crate::executor::{self, Fiber, Object, Start};
use crate::lock::lock_order::ORDER;
use crate::mode::LockingMode;

/// Where a model has the desk: behind the locks that have a rank.
const RANK: u8 = ORDER.len() as u8;

/// Calls that wait for the master, and the fibers that serve them.
#[derive(Debug, Default)]
pub(super) struct Master(Mutex<Desk>);

#[derive(Debug, Default)]
struct Desk {
    calls: VecDeque<Call>,
    idle: Vec<Fiber>,
    /// Service fibers that there are.
    fibers: usize,
    /// Threads that may make calls.
    threads: usize,
    /// Fibers that were woken and have not looked for a call yet.
    coming: usize,
    ending: bool,
}

/// A call, on the stack of the fiber that sleeps until it is done.
struct Call(*const Order<'static>);

struct Order<'a> {
    run: *mut (dyn FnMut() + 'a),
    caller: Fiber,
    done: AtomicBool,
}

// SAFETY: what it points to is not touched by the sleeping caller until `done`, and what `run`
// captures is what a call captures: the kernel, which is shared, and a thread that does nothing
// else meanwhile.
unsafe impl Send for Call {}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call(..)")
    }
}

impl Kernel {
    /// Runs a call where the mode wants it: at once, or on the master.
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
        let order =
            Order { run: &raw mut run, caller: executor::current(), done: AtomicBool::new(false) };
        self.submit(Call((&raw const order).cast()));
        // SYNC mastered: pairs with the store in `Kernel::serve`.
        while !order.done.load(Ordering::Acquire) {
            executor::rest();
        }
        charge_for_order();
        result.expect("the master ran the call")
    }

    fn submit(&self, call: Call) {
        let idle = {
            let mut desk = self.desk();
            desk.calls.push_back(call);
            if desk.coming >= desk.calls.len() {
                return;
            }
            // There are as many service fibers as threads, and each thread waits for one call. So
            // where no fiber is idle, one of them has not come to its next look at the calls yet.
            let idle = desk.idle.pop();
            desk.coming += usize::from(idle.is_some());
            idle
        };
        match idle {
            Some(fiber) => fiber.hand_over(),
            // It waits for its turn on processor 0, behind a program that may go on there for long.
            None => self.executor.hurry(0),
        }
    }

    /// Sees to it that there is a service fiber for each thread, one that is about to begin among
    /// them: each may sleep in a call at once. It begins when there is a call for it.
    ///
    /// # Errors
    /// `EAGAIN`: there is no stack for it.
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

    /// A thread makes no calls any more.
    pub(super) fn release_service(&self) {
        if self.config.mode == LockingMode::Master {
            executor::changes(Object::Desk);
            self.desk().threads -= 1;
        }
    }

    /// A service fiber's life.
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
            // SAFETY: the caller keeps the order until it has seen `done`; it sleeps, so that
            // nobody else runs the closure; the fiber is cloned before `done` is said.
            let caller = unsafe {
                let order = &*call.0;
                order.caller.is_served();
                (*order.run)();
                let caller = order.caller.clone();
                // SYNC mastered: pairs with the load in `Kernel::unix_master`.
                order.done.store(true, Ordering::Release);
                caller
            };
            executor::serves_nobody();
            caller.hand_over();
            // Calls may come without an end. Those that slept in one have their turn meanwhile, and
            // so have the programs of this processor.
            executor::take_turns();
        }
    }

    /// A service fiber begins, or has woken up.
    fn come(&self) {
        let mut desk = self.desk();
        let (idle, me) = (desk.idle.len(), executor::current_id());
        desk.idle.retain(|fiber| fiber.id() != me);
        // `submit` takes the fiber that it wakes out of the idle ones and counts it as coming: this
        // one has come. `end_master` takes all of them out and counts none.
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

    /// Nothing is said to be reached: where all schedules are gone through a call is handed over
    /// and back at once, and who served it nobody sees. A model charges for it as for a lock.
    fn desk(&self) -> MutexGuard<'_, Desk> {
        executor::touch(RANK, 0);
        self.master.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a model charges for an order's way to the master's processor, and for that back: the line
/// that it is on, and the one with the count of references to its caller.
fn charge_for_order() {
    executor::spend(CostKind::Transfer);
    executor::spend(CostKind::Transfer);
}
