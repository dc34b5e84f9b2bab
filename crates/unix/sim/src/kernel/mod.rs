//! The virtual Unix: [`Kernel`], which holds the state that all processes share, and the start and
//! end of a system.
//!
//! A call passes through [`sys`] (the trait), [`call`] (entry and exit), the module that implements
//! the call, and, on the way back, [`deliver`]. docs/internals/races.md describes the protocols,
//! docs/internals/lock-order.md the locks. The executor runs threads; the locks provide mutual
//! exclusion among them.

#![allow(unsafe_code, reason = "fibers refer to the kernel, which outlives them")]

mod accounts;
mod actions;
mod audit;
mod awaited;
mod call;
mod clock;
mod deferred;
mod deliver;
mod descriptors;
mod exec;
mod exit;
mod family;
mod files;
mod fork;
mod generate;
mod group_check;
mod image;
mod jobs;
mod limits;
mod line;
mod links;
mod master;
mod pending;
mod pgrp;
mod pid_table;
mod pipe;
mod proc;
mod references;
mod send;
mod session;
mod siglock;
mod slab;
mod sleepers;
mod state;
mod suspend;
mod sys;
mod terminal;
#[cfg(test)]
mod tests;
mod thread;
mod threads;
mod tracing;
mod users;
mod wait;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actions::Actions;
use deferred::Events;
use limits::ResourceLimits;
use master::Master;
use pid_table::{PidKeeper, PidTable};
use proc::{Phase, Proc, ProcState};
use session::{Pgrp, Session};
use slab::SlotTable;
pub use state::{Awaits, ProcessState, SystemState, ThreadState};
use thread::Thread;
use threads::ThreadStart;
pub use threads::{is_wanted, waits_in_user_mode};
use tontine_unix::{Pid, Program, Resource, SigInfo, SigSet, Signal, WaitStatus};
use users::{Cred, UidTable, User};

use crate::config::SystemConfig;
use crate::executor::{self, FiberExecutor, Object, RunEnd, Start};
use crate::lock::lock_order::{PgrphashLock, ProcRelationLock, UidhashLock};
use crate::lock::{BlockingLock, Holding, Locks, SimpleLock};

/// The process group hash table.
type Groups = BTreeMap<i32, Arc<Pgrp>>;

/// The state that all processes share.
pub(crate) struct Kernel {
    pub(crate) config: Arc<SystemConfig>,
    pub(crate) locks: Locks,
    pub(crate) executor: Arc<FiberExecutor>,
    slab: SlotTable,
    pids: PidTable,
    /// `pgrphash_lock`.
    pgrphash: BlockingLock<PgrphashLock, Groups>,
    /// `proc_relation_lock`, which guards the [`links::Links`] of all processes.
    relations: BlockingLock<ProcRelationLock, ()>,
    /// `uidhash_lock`.
    users: SimpleLock<UidhashLock, UidTable>,
    events: Events,
    master: Master,
    /// Number of processes created so far.
    births: AtomicU32,
    /// Number of locks of groups, sessions, pipes and terminals created so far.
    instances: AtomicU32,
    alarms: AtomicU64,
    /// Number of existing processes, excluding the first one.
    population: AtomicUsize,
    /// `true` once the program has ended, so that all other processes must end.
    closing: AtomicBool,
    /// `true` while `kill(-1)` signals all processes. Changed with `pgrphash_lock` held for
    /// writing.
    walking: AtomicBool,
    /// The slot of the first process, which inherits orphans.
    init: u32,
    notes: Mutex<Notes>,
}

/// Facts that the report needs.
#[derive(Default, Clone)]
pub(crate) struct Notes {
    /// The exit status of the program.
    pub(crate) status: Option<WaitStatus>,
    /// Processes whose program panicked.
    pub(crate) panicked: Vec<Pid>,
    /// The violation for which a check stopped the run.
    pub(crate) wrong: Option<String>,
}

/// Returns the call that a thread is in, or was in last, given the context of its fiber; `None` for
/// the system's own fibers.
///
/// # Safety
///
/// The context must belong to a fiber that has not ended.
pub unsafe fn call_of(context: usize) -> Option<&'static str> {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { Thread::call_of(context) }
}

/// A reference to the kernel for objects that the kernel outlives: fibers, timers, files.
#[derive(Clone, Copy)]
pub(crate) struct KernelHandle(*const Kernel);

// SAFETY: a handle only gives shared access to the kernel, which all threads share anyway.
unsafe impl Send for KernelHandle {}
// SAFETY: as above.
unsafe impl Sync for KernelHandle {}

impl KernelHandle {
    pub(crate) fn get<'k>(self) -> &'k Kernel {
        // SAFETY: handles are held by fibers and timers, which run only inside
        // `FiberExecutor::run`, and the kernel outlives that call; and by objects inside the
        // kernel's own structures.
        unsafe { &*self.0 }
    }
}

impl Kernel {
    /// Creates a system with its first process and a process that is about to run `program`.
    pub(crate) fn boot(
        config: Arc<SystemConfig>,
        locks: Locks,
        executor: Arc<FiberExecutor>,
        program: Program,
    ) -> Box<Self> {
        let root = Arc::<User>::default();
        let blank = {
            let (user, actions) = (Arc::clone(&root), Arc::<Actions>::default());
            let limits = ResourceLimits::of_config(&config.limits);
            move || {
                let credentials = Cred::new(0, Arc::clone(&user));
                ProcState::new(credentials, Arc::clone(&actions), limits)
            }
        };
        let most = config.pids;
        let kernel = Box::new(Self {
            locks,
            executor,
            slab: SlotTable::new(most, blank),
            pids: PidTable::new(most),
            pgrphash: BlockingLock::new(0, Groups::new()),
            relations: BlockingLock::new(0, ()),
            users: SimpleLock::new(0, UidTable::from([(0, root)])),
            events: Events::new(&config),
            master: Master::default(),
            births: AtomicU32::new(1),
            instances: AtomicU32::new(1),
            alarms: AtomicU64::new(0),
            population: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            walking: AtomicBool::new(false),
            init: 0,
            notes: Mutex::default(),
            config,
        });
        kernel.make_first(program);
        kernel
    }

    /// Creates the first process, which runs nothing and inherits orphans, and the program's
    /// process.
    fn make_first(&self, program: Program) {
        let init = self.make_leader(Self::INIT, None);
        assert_eq!((init.slot, init.number()), (self.init, 1), "the first process has number 1");
        let second = self.config.second;
        self.pids.continue_at(&self.locks, second);
        let thread = Arc::new(Thread::new(self.handle(), self.init + 1, second, SigSet::EMPTY));
        let proc = self.make_leader(Self::PROGRAM, Some(Arc::clone(&thread)));
        assert_eq!(
            (proc.slot, proc.number()),
            (thread.slot, thread.tid()),
            "the program has its thread's slot and number"
        );
        self.start_time(proc, proc.lock(&self.locks).limits.of(Resource::Cpu));
        self.link(init, proc);
        self.population.store(1, Ordering::Relaxed);
        let kernel = self.handle();
        let body = Box::new(move || kernel.get().generate_deferred());
        let start = Start { processor: Some(0), context: 0, name: 0, body };
        self.executor.start(start).expect("a stack is available for the signal thread");
        if let Some(console) = self.config.console.clone() {
            self.attach_console(proc, console);
        }
        self.begin(proc, thread, self.config.first_on, ThreadStart::Program(program))
            .expect("a stack is available for the program");
    }

    /// Creates a process that leads its own session and group.
    fn make_leader(&self, program: u32, thread: Option<Arc<Thread>>) -> &Proc {
        let (number, slot) = self.pids.take(&self.locks).expect("a process number is free");
        let proc = self.slab.get(slot);
        proc.move_in(number, self.next_birth());
        let session = Session::new(proc.pid(), self.instance());
        let group = {
            let mut groups = self.pgrphash.write(&self.locks);
            let group = self.make_group(&mut groups, proc.pid(), session);
            groups.then_write(&group.members).add(proc);
            group
        };
        let mut state = proc.lock(&self.locks);
        state.phase = Phase::Live;
        proc.program.store(program, Ordering::Relaxed);
        proc.stand_in(&group);
        state.pgrp = Some(group);
        state.threads.extend(thread.map(proc::ThreadEntry::new));
        state.credentials.user.tasks.take(u64::MAX);
        let limit = state.limits.of(Resource::Cpu);
        proc.set_session(number);
        drop(state);
        self.start_time(proc, limit);
        self.pids.publish(number, slot);
        self.pids.keep(number, PidKeeper::Group);
        self.pids.keep(number, PidKeeper::Session);
        proc
    }

    /// Leaks the descriptors that a run left open because it ended early. Closing them would take
    /// locks that may be held by fibers that never continue.
    pub(crate) fn leak_files(&mut self) {
        for proc in self.slab.iter_mut() {
            std::mem::forget(std::mem::take(&mut proc.state_mut().files));
        }
    }

    /// Runs until the program and all processes that it created have ended, or all threads are
    /// blocked.
    pub(crate) fn run(&self) -> RunEnd {
        let outcome = self.executor.run();
        if outcome != RunEnd::Stopped {
            self.check_groups_at_the_end();
        }
        self.audit(outcome);
        outcome
    }

    /// Returns the facts that the report needs.
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn handle(&self) -> KernelHandle {
        KernelHandle(self)
    }

    /// Returns the generation of the next process.
    fn next_birth(&self) -> u32 {
        executor::changes(Object::System);
        self.births.fetch_add(1, Ordering::Relaxed).max(1)
    }

    /// Returns an instance number for a lock, which orders it among the locks of its class.
    fn instance(&self) -> u32 {
        executor::changes(Object::System);
        self.instances.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of existing processes, excluding the first one.
    fn population(&self) -> usize {
        self.population.load(Ordering::Relaxed)
    }

    /// Removes a process from the count. If it was the last one, the system's own threads end.
    fn decrement_population(&self) {
        executor::changes(Object::System);
        if self.population.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.end_deferred();
            self.end_master();
            self.end_console();
        }
    }

    /// Returns `true` once the program has ended.
    fn is_closing(&self) -> bool {
        executor::looks_at(Object::System);
        self.closing.load(Ordering::Relaxed)
    }

    /// Kills all processes after the program has ended, as when the first process of a container
    /// exits.
    fn close(&self, status: WaitStatus) {
        self.notes().status = Some(status);
        executor::changes(Object::System);
        self.closing.store(true, Ordering::Relaxed);
        for proc in self.slab.iter().filter(|proc| !self.is_init(proc)) {
            self.psignal_inthread(proc, SigInfo::kernel(Signal::KILL));
        }
    }
}
