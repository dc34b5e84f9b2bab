//! The state of a system at the end of its run, or as one of its programs sees it: [`SystemState`].
//! It is printed like the output of `ps`, with the object that each thread waits for.

#![allow(
    unsafe_code,
    reason = "an ended system is read through its locks, a thread by its address"
)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use tontine_unix::{SigSet, WaitStatus};

use super::Kernel;
use super::pipe::PipeEnd;
use super::proc::{Phase, Proc, ProcState, ThreadEntry};
use super::thread::Thread;
use crate::executor::{self, At, Fiber};

/// The state of all processes of a system.
#[derive(Debug, Clone, Default)]
pub struct SystemState {
    /// The processes, in the order of their numbers.
    pub processes: Vec<ProcessState>,
}

/// The state of one process.
#[derive(Debug, Clone)]
pub struct ProcessState {
    /// The process number.
    pub pid: i32,
    /// The number of its parent.
    pub parent: i32,
    /// The number of its group.
    pub group: i32,
    /// The number of its session.
    pub session: i32,
    /// The state as `ps` shows it: R (runs), S (sleeps), T (stopped), t (stopped for its tracer), Z
    /// (zombie).
    pub letter: char,
    /// The exit status of a zombie.
    pub end: Option<WaitStatus>,
    /// The name of its program.
    pub name: String,
    /// The threads, the oldest first.
    pub threads: Vec<ThreadState>,
    /// The signals pending for the process.
    pub pending: SigSet,
    /// If the process is exiting or calling exec, the work that it waits for, apart from the end of
    /// its other threads.
    pub awaits: Option<Awaits>,
    /// The pipes that the process has an end of open.
    pub(super) pipe_ends: Vec<(i32, PipeEnd)>,
}

/// The work that must end before a process can exit or exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaits {
    /// Number of forks of other threads that are in progress.
    pub forks: u32,
    /// Number of references to the process that have not been released yet.
    pub references: u32,
}

/// The state of one thread.
#[derive(Debug, Clone)]
pub struct ThreadState {
    /// The thread number.
    pub tid: i32,
    /// The call that the thread is in, or was in last.
    pub call: &'static str,
    /// `true` if the thread sleeps interruptibly in the call.
    pub sleeps: bool,
    /// The object that the thread waits for, if the call's name does not imply it, such as
    /// ` for child 5 (sleeper)`.
    pub object: String,
    /// If the thread waits for a pipe: the processes that have the other end open, such as
    /// `written by 4 (shell), itself`.
    pub other_end: String,
    /// Blocked signals.
    pub blocked: SigSet,
    /// Signals pending for this thread alone.
    pub pending: SigSet,
    /// The locks that the thread holds, and the lock that it waits for. They are known after a run,
    /// in builds with debug assertions or with [`Builder::statistics`](crate::Builder::statistics)
    /// or [`Builder::keep_locks`](crate::Builder::keep_locks).
    pub locks: Vec<String>,
}

impl SystemState {
    /// Returns the state of the system whose program calls this function, as a running `ps` sees
    /// it: each process is read at one moment, but different processes are read at different
    /// moments. Returns `None` outside of virtual programs, and while the caller's stack is
    /// unwound.
    ///
    /// ```
    /// use tontine_unix_sim::{SystemState, Virtual};
    ///
    /// let report = Virtual::builder().build()?.run(|sys| {
    ///     let state = SystemState::here().expect("the caller is a virtual program");
    ///     let own = sys.getpid().number();
    ///     i32::from(state.processes.iter().any(|process| process.pid == own))
    /// });
    /// assert_eq!(report.status.and_then(|status| status.exited()), Some(1));
    /// assert!(SystemState::here().is_none());
    /// # Ok::<(), tontine_unix_sim::BuildError>(())
    /// ```
    pub fn here() -> Option<Self> {
        let thread = NonNull::new(executor::context() as *mut Thread)?;
        if executor::in_kernel() || std::thread::panicking() {
            return None;
        }
        // SAFETY: the context of a running fiber is its thread, which the fiber keeps alive.
        let kernel = unsafe { thread.as_ref() }.kernel.get();
        executor::enter_kernel();
        executor::point(At::Call);
        let state = kernel.on_master(|| kernel.look());
        executor::leave_kernel();
        Some(state)
    }
}

impl SystemState {
    /// Maximum number of processes in a [`SystemState::brief`] table.
    pub const BRIEF: usize = 40;

    /// Returns the table of the first [`SystemState::BRIEF`] processes, and the number of remaining
    /// processes.
    pub fn brief(&self) -> impl fmt::Display {
        let left = self.processes.len().saturating_sub(Self::BRIEF);
        let first = Self { processes: self.processes.iter().take(Self::BRIEF).cloned().collect() };
        BriefTable { first, left }
    }

    /// Describes the first ten runnable threads with their last calls, and gives the number of
    /// remaining threads.
    #[doc(hidden)]
    pub fn running(&self) -> String {
        let running = |process: &ProcessState| {
            let several = process.threads.len() > 1;
            let ProcessState { pid, name, letter, .. } = process;
            let thread = |thread: &ThreadState| {
                let ThreadState { tid, call, .. } = thread;
                let which = if several { format!(", thread {tid}") } else { String::new() };
                let call = match *call {
                    "" => String::new(),
                    call => format!(", in or after {call}"),
                };
                format!("process {pid} ({name}){which}{call}")
            };
            let awake = process.threads.iter().filter(|thread| !thread.sleeps && *letter == 'R');
            awake.map(thread).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = self.processes.iter().flat_map(running).collect();
        if let Some(more @ 1..) = all.len().checked_sub(RUNNING) {
            all.truncate(RUNNING);
            all.push(format!("and {more} more threads"));
        }
        if all.is_empty() { "no thread".to_owned() } else { all.join("; ") }
    }

    /// Sets the name of the process whose program calls this function, as `exec` does. Does nothing
    /// outside of virtual programs, and while the caller's stack is unwound.
    pub fn name_caller(name: &str) {
        let Some(thread) = NonNull::new(executor::context() as *mut Thread) else { return };
        if executor::in_kernel() || std::thread::panicking() {
            return;
        }
        // SAFETY: the context of a running fiber is its thread, which the fiber keeps alive.
        let thread = unsafe { thread.as_ref() };
        let kernel = thread.kernel.get();
        executor::enter_kernel();
        kernel.on_master(|| {
            kernel.slab.get(thread.slot).lock(&kernel.locks).called = Some(name.into());
        });
        executor::leave_kernel();
    }
}

impl Kernel {
    /// Returns the state of the system while it runs, process by process.
    fn look(&self) -> SystemState {
        self.collect(|proc| {
            let state = proc.lock(&self.locks);
            (state.phase != Phase::Free).then(|| self.describe(proc, &state, |_| Vec::new()))
        })
    }

    /// Returns the state of the system at the end of its run.
    ///
    /// # Safety
    ///
    /// The run must have ended, so that no thread continues and locks that are still held protect
    /// nothing.
    pub(crate) unsafe fn snapshot(&self) -> SystemState {
        self.collect(|proc| {
            // SAFETY: the caller upholds the contract of this function.
            let state = unsafe { proc.state_after_the_end() };
            // SAFETY: as above.
            let locks = |fiber: &Fiber| unsafe { fiber.locks() };
            (state.phase != Phase::Free).then(|| self.describe(proc, state, locks))
        })
    }

    fn collect(&self, look: impl Fn(&Proc) -> Option<ProcessState>) -> SystemState {
        let mut processes: Vec<_> = self.slab.iter().filter_map(look).collect();
        processes.sort_by_key(|process| process.pid);
        let mut state = SystemState { processes };
        state.name_awaited();
        state
    }

    /// Describes a process; `locks` returns the locks of a fiber.
    fn describe(
        &self,
        proc: &Proc,
        state: &ProcState,
        locks: impl Fn(&Fiber) -> Vec<String>,
    ) -> ProcessState {
        let group = state.pgrp.as_ref();
        let sleeps = state.threads.iter().all(|member| member.thread.is_sleeping());
        let letter = match state.phase {
            Phase::Zombie => 'Z',
            _ if state.trapped.is_some() => 't',
            _ if state.is_stopped() => 'T',
            _ if sleeps => 'S',
            _ => 'R',
        };
        let thread = |member: &ThreadEntry| {
            let thread = &member.thread;
            let awaited = thread.awaited();
            ThreadState {
                tid: thread.tid(),
                call: thread.call(),
                sleeps: thread.is_sleeping(),
                object: match awaited.is_empty() {
                    true => thread.object(),
                    false => format!(" for {awaited}"),
                },
                other_end: String::new(),
                blocked: thread.mask(),
                pending: member.pending.set(),
                locks: member.fiber.as_ref().map_or(Vec::new(), &locks),
            }
        };
        ProcessState {
            pid: proc.number(),
            parent: self.parent_hint(proc).map_or(0, Proc::number),
            group: group.map_or(0, |group| group.id.number()),
            session: group.map_or(0, |group| group.session.id.number()),
            letter,
            end: state.end,
            name: match &state.called {
                Some(name) => name.to_string(),
                None => self.program_name(proc.program.load(Ordering::Relaxed)).to_owned(),
            },
            threads: state.threads.iter().map(thread).collect(),
            pending: state.pending.set(),
            awaits: state
                .ender
                .as_ref()
                .map(|_| Awaits { forks: state.p_forkcnt, references: proc.references() }),
            pipe_ends: state.files.pipe_ends(),
        }
    }
}

/// The result of [`SystemState::brief`].
struct BriefTable {
    first: SystemState,
    left: usize,
}

impl fmt::Display for BriefTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left {
            0 => write!(f, "{}", self.first),
            left => writeln!(f, "{}and {left} more processes", self.first),
        }
    }
}

impl fmt::Display for SystemState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>7} {:>7} {:>7} {:>7} S NAME", "PID", "PPID", "PGID", "SID")?;
        for process in &self.processes {
            write!(f, "{process}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, parent, group, session, letter, name, .. } = self;
        write!(f, "{pid:>7} {parent:>7} {group:>7} {session:>7} {letter} {name}")?;
        if let (Some(end), 'Z') = (self.end, letter) {
            write!(f, " ({end})")?;
        }
        if !self.pending.is_empty() {
            write!(f, " pending {}", self.pending)?;
        }
        if let Some(Awaits { forks, references }) = self.awaits {
            let others = self.threads.len().saturating_sub(1);
            write!(f, " waits for {others} threads, {forks} forks, {references} references")?;
        }
        writeln!(f)?;
        self.threads.iter().try_for_each(|thread| write!(f, "{thread}"))
    }
}

/// Maximum number of threads that [`SystemState::running`] names.
const RUNNING: usize = 10;

/// Minimum number of blocked signals at which the unblocked ones are named instead.
const MANY: usize = 40;

impl fmt::Display for ThreadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tid, call, sleeps, object, other_end, blocked, pending, locks } = self;
        match sleeps {
            true => write!(f, "{tid:>39} sleeps in {call}{object}")?,
            false => write!(f, "{tid:>39} {call}")?,
        }
        let open = SigSet::ALL.difference(SigSet::UNBLOCKABLE).difference(*blocked);
        match (blocked.iter().count(), open.is_empty()) {
            (0, _) => {}
            (_, true) => write!(f, ", blocked all")?,
            (MANY.., _) => write!(f, ", blocked all but {open}")?,
            _ => write!(f, ", blocked {blocked}")?,
        }
        if !pending.is_empty() {
            write!(f, ", pending {pending}")?;
        }
        locks.iter().try_for_each(|lock| write!(f, ", {lock}"))?;
        if *sleeps && !other_end.is_empty() {
            write!(f, "\n{:>39} {other_end}", "")?;
        }
        writeln!(f)
    }
}
