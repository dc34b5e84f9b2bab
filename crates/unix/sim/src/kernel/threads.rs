//! The threads of a process (§3.2): their start ([`Kernel::begin`]), their end, and `join`.
#![allow(unsafe_code, reason = "a fiber's context is its thread")]

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use tontine_unix::{
    Errno, Program, Resource, Result, SigInfo, SigSet, Signal, ThreadBody, Tid, WaitStatus,
};

use super::Kernel;
use super::call::{Caller, ExitReason, RestartRule, Unfinished, Unwind};
use super::pid_table::PidKeeper;
use super::proc::{Proc, ThreadEntry};
use super::thread::{AstFlags, Thread, WaitChannel};
use crate::executor::{self, Start};
use crate::label::label;

/// The code that a thread runs first.
pub(super) enum ThreadStart {
    /// The program of a process's first thread.
    Program(Program),
    /// Like [`Self::Program`], in a process that is about to call exec for `spawn`.
    Spawned(Program),
    /// The body of an additional thread.
    Body(ThreadBody),
}

impl ThreadStart {
    /// Returns the initial mask of a process that starts with this code, given the parent's `mask`.
    pub(super) fn mask(&self, mask: SigSet) -> SigSet {
        match self {
            Self::Spawned(_) => SigSet::ALL.difference(SigSet::UNBLOCKABLE),
            _ => mask,
        }
    }
}

/// The way in which a thread's program ended.
enum ThreadExit {
    /// The program returned this status.
    Returned(i32),
    /// The stack was unwound, for this reason.
    Left(ExitReason),
    /// The program panicked.
    Panicked,
}

impl Kernel {
    /// Starts a thread on a new fiber. Fails with `EAGAIN` if no stack is available.
    pub(super) fn begin(
        &self,
        proc: &Proc,
        thread: Arc<Thread>,
        place: Option<usize>,
        first: ThreadStart,
    ) -> Result<()> {
        let context = Arc::as_ptr(&thread) as usize;
        let thread_number = thread.tid();
        let (kernel, slot) = (self.handle(), proc.slot);
        let body = move || {
            let kernel = kernel.get();
            let call = Caller::new(kernel, kernel.slab.get(slot), thread);
            call.run(first);
            // The clock finds a thread by its context, so the context is cleared before the thread
            // can be freed.
            executor::forget_context();
        };
        let name = label(proc.number(), thread_number);
        let start = Start { processor: place, context, name, body: Box::new(body) };
        self.reserve_service()?;
        self.executor.start(start).map(|_| ()).map_err(|_| {
            self.release_service();
            Errno::EAGAIN
        })
    }
}

impl Kernel {
    /// Handles a stack overflow in a thread's program. The fiber has been lost with all data on its
    /// stack, so another fiber ends the process, as if it had been killed by SIGSEGV. That fiber
    /// receives a stack even if all stacks are in use. Panics if the kernel refuses memory for the
    /// new stack.
    pub(crate) fn overflowed(&self, context: usize) {
        let kernel = self.handle();
        let body = move || {
            let kernel = kernel.get();
            let Some((proc, thread)) = kernel.thread_of(context) else { return };
            let call = Caller::new(kernel, proc, thread);
            call.begins();
            kernel.on_master(|| call.end_with(WaitStatus::Signaled(Signal::SEGV, true)));
            call.end();
        };
        let start = Start { processor: None, context: 0, name: 0, body: Box::new(body) };
        self.executor.start_beyond(start).expect("memory for the stack of an ending process");
    }

    /// Returns the thread whose fiber has this context.
    fn thread_of(&self, context: usize) -> Option<(&Proc, Arc<Thread>)> {
        self.slab.iter().find_map(|proc| {
            let state = proc.lock(&self.locks);
            let mut members = state.threads.iter();
            let found = members.find(|one| Arc::as_ptr(&one.thread) as usize == context)?;
            Some((proc, Arc::clone(&found.thread)))
        })
    }
}

/// Returns `true` if a thread must handle work before it continues, given the context of its fiber.
///
/// # Safety
///
/// The fiber must not have ended.
pub unsafe fn is_wanted(context: usize) -> bool {
    // SAFETY: the context of a fiber is its thread, which the fiber keeps alive.
    let thread = unsafe { &*(context as *const Thread) };
    !thread.attention().difference(AstFlags::TICK).is_empty()
}

/// Records whether the calling thread waits in user mode and must be woken to handle pending work.
pub fn waits_in_user_mode(waits: bool) {
    // SAFETY: the context of the running fiber is its thread, which the fiber keeps alive.
    let thread = unsafe { &*(executor::context() as *const Thread) };
    let kernel = thread.kernel.get();
    let mut state = kernel.slab.get(thread.slot).lock(&kernel.locks);
    if let Some(member) = state.member(thread.tid()) {
        if waits {
            member.fiber = Some(executor::current());
        }
        member.thread.set_sleeping(waits);
    }
}

impl Caller<'_> {
    /// Records the fiber on which the thread runs.
    fn begins(&self) {
        let mut state = self.state();
        self.member(&mut state).fiber = Some(executor::current());
    }

    /// Runs a thread from start to end.
    fn run(&self, first: ThreadStart) {
        self.begins();
        if self.kernel.is_closing() {
            self.kernel.psignal_inthread(self.proc, SigInfo::kernel(Signal::KILL));
        }
        if matches!(first, ThreadStart::Spawned(_)) {
            // No handler of the parent may run in this process.
            Arc::make_mut(&mut self.state().actions).executed();
        }
        let mut is_process = !matches!(first, ThreadStart::Body(_));
        let mut ended = self.attempt(|call| {
            call.return_to_user();
            match first {
                ThreadStart::Program(program) | ThreadStart::Spawned(program) => program(call),
                ThreadStart::Body(body) => {
                    body(call);
                    0
                }
            }
        });
        loop {
            match ended {
                ThreadExit::Left(ExitReason::Exec) => {
                    let Some(image) = self.begin_image() else { break };
                    is_process = true;
                    ended = self.attempt(|call| {
                        call.return_to_user();
                        image.run(call)
                    });
                }
                ThreadExit::Left(_) => break,
                ThreadExit::Returned(status) if is_process => {
                    self.end_with(WaitStatus::Exited(status & 0xff));
                    break;
                }
                ThreadExit::Returned(_) => break,
                ThreadExit::Panicked => {
                    self.kernel.note_panic(self.proc.pid());
                    self.end_with(WaitStatus::Signaled(Signal::ABRT, true));
                    break;
                }
            }
        }
        self.end();
    }

    /// Runs a program until it returns or until its stack has been unwound.
    fn attempt(&self, program: impl FnOnce(&Self) -> i32) -> ThreadExit {
        let ended = panic::catch_unwind(AssertUnwindSafe(|| program(self)));
        executor::back_in_kernel();
        match ended {
            Ok(_) if self.leaving.get().is_some() => self.left(),
            Ok(status) => ThreadExit::Returned(status),
            Err(payload) if is_unwind(&*payload) => self.left(),
            Err(_) => match self.leaving.get() {
                // The program panicked in a destructor while its stack was being unwound. The
                // thread still leaves.
                Some(_) => self.left(),
                None => ThreadExit::Panicked,
            },
        }
    }

    fn left(&self) -> ThreadExit {
        ThreadExit::Left(self.leaving.take().unwrap_or(ExitReason::Halt))
    }

    /// Ends a thread, either together with its process or alone.
    pub(super) fn end(&self) {
        self.end_in_process();
        self.kernel.release_service();
    }

    fn end_in_process(&self) {
        if self.proc.siglock.ending() == Some(self.thread.tid()) {
            self.kernel.on_master(|| self.exit_process());
            return;
        }
        let last = self.kernel.on_master(|| self.leave_process());
        if last {
            // The process's last thread returned without calling `exit`.
            self.end_with(WaitStatus::Exited(0));
            self.kernel.on_master(|| self.exit_process());
        }
    }

    /// Removes the thread from the list of its process. If it is the last thread, leaves it there
    /// and returns `true`.
    fn leave_process(&self) -> bool {
        let mut state = self.state();
        if state.threads.len() == 1 && state.end.is_none() {
            return true;
        }
        let tid = self.thread.tid();
        while state.member(tid).is_some_and(|member| std::mem::take(&mut member.traces)) {
            drop(state);
            self.release_own_tracees();
            state = self.state();
        }
        let at = state.threads.iter().position(|member| member.thread.tid() == tid);
        let Some(at) = at else { return false };
        let member = state.threads.remove(at);
        let user = state.credentials.user.clone();
        if state.threads.len() == 1
            && let Some(ender) = &state.ender
        {
            ender.unpark();
        }
        user.signals.give_back(member.pending.len());
        match member.joiner {
            Some(joiner) => joiner.unpark(),
            None => drop(state.ended.insert(self.thread.tid())),
        }
        // Another thread must now deliver the signals that this one would have delivered. Threads
        // without such a signal are not woken, because a restarted call would look up its
        // descriptor again, and `sigsuspend` would restore the previous mask for a moment.
        let ends = state.end.is_some() || state.fatal.is_some();
        let left = state.pending.set();
        let concerned = |thread: &Thread| {
            let wanted = SigSet::ALL.difference(thread.mask()).union(thread.awaited());
            ends || !left.intersection(wanted).is_empty()
        };
        for other in state.threads.iter().filter(|other| concerned(&other.thread)) {
            other.thread.demand(AstFlags::SIGNAL);
            other.wake();
        }
        let is_process = self.is_process();
        self.thread.leaves();
        drop(state);
        // From now on the process may end, and the slot may belong to another process.
        user.tasks.give_back(1);
        if !is_process {
            self.give_number_back();
        }
        false
    }

    /// Returns `true` if the thread's number is that of its process.
    pub(super) fn is_process(&self) -> bool {
        self.thread.tid() == self.proc.number()
    }

    /// Releases the thread's own number, which must differ from that of its process.
    pub(super) fn give_number_back(&self) {
        self.kernel.pids.drop_keeper(&self.kernel.locks, self.thread.tid(), PidKeeper::Thread);
    }

    pub(super) fn make_thread(&self, body: ThreadBody) -> Result<Tid> {
        let mut body = Some(body);
        self.guarded(|| {
            let kernel = self.kernel;
            let (user, limit, place) = {
                let state = self.state();
                let limit = state.limits.of(Resource::Processes).soft;
                let limit = if state.credentials.is_privileged() { u64::MAX } else { limit };
                (state.credentials.user.clone(), limit, state.place)
            };
            if !user.tasks.take(limit) {
                return Err(Errno::EAGAIN);
            }
            let tid = match kernel.pids.take_for_thread(&kernel.locks) {
                Ok(tid) => tid,
                Err(errno) => {
                    user.tasks.give_back(1);
                    return Err(errno);
                }
            };
            let mask = self.thread.mask();
            let thread = Arc::new(Thread::new(kernel.handle(), self.proc.slot, tid, mask));
            let mut state = self.state();
            kernel.charge(&state.credentials, &user);
            state.ended.remove(&tid);
            state.threads.push(ThreadEntry::new(thread.clone()));
            drop(state);
            if self.proc.siglock.ending().is_some() {
                // The thread that exits or calls exec may have halted the others before this one
                // was added.
                thread.demand(AstFlags::HALT);
            }
            let body = body.take().expect("a thread is created once");
            let begun =
                kernel.begin(self.proc, Arc::clone(&thread), place, ThreadStart::Body(body));
            if begun.is_err() {
                let mut state = self.state();
                let at = state.threads.iter().position(|member| member.thread.tid() == tid);
                let member = at.map(|at| state.threads.remove(at));
                let queued = member.map_or(0, |member| member.pending.len());
                state.credentials.user.signals.give_back(queued);
                state.credentials.user.tasks.give_back(1);
                drop(state);
                kernel.pids.drop_keeper(&kernel.locks, tid, PidKeeper::Thread);
            }
            begun.map(|()| Tid(tid))
        })
    }

    pub(super) fn join_thread(&self, thread: Tid) -> Result<()> {
        if thread.0 == self.thread.tid() {
            return Err(Errno::EDEADLK);
        }
        self.thread.waits_for(WaitChannel::Thread(thread.0));
        let mut claimed = false;
        self.interruptible(RestartRule::Always, || {
            let fiber = executor::current();
            let found = self.sleep(None, |state| {
                let ended = state.ended.remove(&thread.0);
                match state.member(thread.0) {
                    None if claimed || ended => Some(Ok(())),
                    None => Some(Err(Errno::ESRCH)),
                    Some(member) if !claimed && member.joiner.is_some() => Some(Err(Errno::EINVAL)),
                    Some(member) => {
                        claimed = true;
                        member.joiner = Some(fiber.clone());
                        None
                    }
                }
            })?;
            found.expect("the sleep has no deadline").map_err(Unfinished::Errno)
        })
    }
}

fn is_unwind(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Unwind>()
}
