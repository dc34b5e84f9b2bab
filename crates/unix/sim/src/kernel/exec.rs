//! `exec`, which halts all other threads (§4.1) and waits for their forks (§6.2), and `spawn`.
//! Both run registered programs only ([`ProgramImage`]).
//!
//! Between fork and exec, a spawned child blocks all signals and has no handlers. A signal that
//! arrives in that time therefore reaches the program, and none of the parent's code runs in the
//! child.
//! The parent sleeps until the exec, as after vfork(2); only the termination of the parent
//! interrupts that sleep. When the parent learns why a child could not exec ([`ExecFailure`]), the
//! child has been removed completely, and no other process is notified of the child.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{
    Errno, Pid, Result, SigAction, SigSet, SigmaskHow, Signal, SpawnGroup, SpawnRequest, Sys,
};

use super::Kernel;
use super::call::{Caller, ExitReason, RestartRule, Unfinished};
use super::image::{ExecFailure, ExecReporter, ExecResult, ProgramImage};
use super::pid_table::PidKeeper;
use super::thread::AstFlags;
use super::threads::ThreadStart;
use crate::costs::CostKind;
use crate::executor;

/// Maximum size of one argument in bytes, including the terminating NUL: Linux's `MAX_ARG_STRLEN`.
const LONGEST_ARGUMENT: usize = 128 << 10;
/// Maximum size in bytes of all arguments, including a pointer to each: a quarter of an 8 MiB
/// stack.
const ARG_MAX: usize = 2 << 20;

impl Kernel {
    /// The program of the first process.
    pub(super) const INIT: u32 = 0;
    /// The program that was passed to [`Virtual::run`](crate::Virtual::run). The registered
    /// programs follow.
    pub(super) const PROGRAM: u32 = 1;

    /// Returns the name of a program, as `ps` shows it.
    pub(super) fn program_name(&self, number: u32) -> &str {
        match number {
            Self::INIT => "init",
            Self::PROGRAM => "program",
            _ => self.config.programs.keys().nth(number as usize - 2).map_or("", String::as_str),
        }
    }

    /// Returns the number of a registered program.
    fn program_number(&self, name: &str) -> u32 {
        let at = self.config.programs.keys().position(|key| key == name);
        at.expect("an executed program is registered") as u32 + 2
    }

    /// Returns the name of the program of the process with this number, or an empty string if no
    /// process has the number. Takes no lock, so the answer may already be out of date.
    pub(crate) fn program_of(&self, pid: i32) -> &str {
        let Some(slot) = self.pids.slot(pid) else { return "" };
        self.program_name(self.slab.get(slot).program.load(Ordering::Relaxed))
    }
}

impl Caller<'_> {
    /// Returns the program with this name. Fails with `ENOENT`, with `E2BIG`, or with `EINVAL` if
    /// an argument contains a NUL byte.
    fn image(&self, path: &str, mut arguments: Vec<String>) -> Result<ProgramImage> {
        check_text(path, &arguments)?;
        let found = self.kernel.config.programs.get(path).ok_or(Errno::ENOENT)?;
        if arguments.is_empty() {
            // As on Linux, because programs read their name from the first argument.
            arguments.push(String::new());
        }
        let sizes = arguments.iter().map(|argument| argument.len() + 1);
        let all: usize = sizes.clone().map(|size| size + size_of::<usize>()).sum();
        if all > ARG_MAX || sizes.max() > Some(LONGEST_ARGUMENT) {
            return Err(Errno::E2BIG);
        }
        Ok(ProgramImage { name: path.into(), program: found.clone(), arguments })
    }

    pub(super) fn execute(&self, path: &str, arguments: &[&str]) -> Result<Infallible> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        // As in OSF/1.0, `exec` runs on any processor: it does not wait for the master.
        self.interruptible_anywhere(RestartRule::Restart, || {
            let image = self.image(path, arguments.clone())?;
            self.sig_lock_or_return()?.sig_lock_to_exit(&self.thread);
            self.halt_others(&self.state());
            self.await_alone(|_| ());
            self.reset_for(image);
            self.leave(ExitReason::Exec)
        })
    }

    /// Replaces the program of the process, whose only thread is the caller.
    fn reset_for(&self, image: ProgramImage) {
        executor::spend(CostKind::Exec);
        let mut state = self.state();
        // Handlers become defaults; all other signal state, and the alarm, stay.
        if !state.actions.caught().is_empty() {
            Arc::make_mut(&mut state.actions).executed();
        }
        self.proc.program.store(self.kernel.program_number(&image.name), Ordering::Relaxed);
        state.executed = true;
        state.called = None;
        state.dying = false;
        state.ender = None;
        state.ended.clear();
        state.image = Some(image);
        // From now on, the calling thread is the first thread of the process.
        let (number, tid) = (self.proc.number(), self.thread.tid());
        self.thread.set_tid(number);
        self.trap_if_traced(&mut state);
        drop(state);
        if tid != number {
            let kernel = self.kernel;
            kernel.on_master(|| kernel.pids.drop_keeper(&kernel.locks, tid, PidKeeper::Thread));
        }
        self.kernel.on_master(|| self.kernel.close_for_exec(self.proc));
        self.alternate.take();
        self.profile.take();
        self.saved_mask.take();
        self.frames.take();
        self.proc.siglock.reset(&self.kernel.locks);
    }

    /// Returns the program that the process has passed to exec and must now run.
    pub(super) fn begin_image(&self) -> Option<ProgramImage> {
        self.state().image.take()
    }

    /// Performs `fork` and `exec` in one step. The caller sleeps until the child has called exec or
    /// has failed to.
    pub(super) fn spawn_process(&self, sys: &SpawnRequest) -> Result<Pid> {
        check_text(&sys.path, &sys.arguments)?;
        let report = Arc::new(ExecResult::default());
        let (spawn, result) = (sys.clone(), ExecReporter(Some(Arc::clone(&report))));
        let mask = sys.mask.unwrap_or_else(|| self.thread.mask());
        let kernel = self.kernel.handle();
        let program = move |child: &dyn Sys| -> i32 {
            let arguments: Vec<&str> = spawn.arguments.iter().map(String::as_str).collect();
            let failed = match prepare(kernel.get(), child, &spawn, mask) {
                Ok(()) => match child.exec(&spawn.path, &arguments) {
                    Err(errno) => errno,
                    Ok(never) => match never {},
                },
                Err(errno) => errno,
            };
            kernel
                .get()
                .fails(child.getpid(), ExecFailure { report: result.report(), errno: failed });
            127
        };
        let mut first = Some(ThreadStart::Spawned(Box::new(program)));
        report.expect(executor::current());
        let pid = self.interruptible(RestartRule::Restart, || self.fork_once(&mut first))?;
        match self.await_report(&report)? {
            0 => Ok(pid),
            errno => Err(Errno::from_raw(errno)),
        }
    }

    /// Sleeps until the child has called exec or ended, even if signals arrive. Only work that ends
    /// this thread is handled earlier.
    fn await_report(&self, report: &ExecResult) -> Result<i32> {
        self.interruptible_anywhere(RestartRule::Always, || {
            loop {
                {
                    let mut state = self.state();
                    if let Some(result) = report.result() {
                        return Ok(result);
                    }
                    let halted = self.thread.attention().contains(AstFlags::HALT);
                    if halted || state.pending_anywhere().contains(Signal::KILL) {
                        return Err(Unfinished::Interrupted);
                    }
                    self.parks_here(&mut state);
                }
                executor::park();
            }
        })
    }
}

/// Rejects NUL bytes in strings that become C strings, because neither a file name nor an argument
/// can contain one.
fn check_text(path: &str, arguments: &[String]) -> Result<()> {
    let has_zero = |text: &str| text.contains('\0');
    if has_zero(path) {
        return Err(Errno::ENOENT);
    }
    let wrong = arguments.iter().any(|argument| has_zero(argument));
    if wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

impl Kernel {
    /// Records that a spawned child could not exec and is about to end.
    fn fails(&self, child: Pid, failure: ExecFailure) {
        let child = self.find(child).expect("a running process is found");
        self.on_master(|| child.lock(&self.locks).failure = Some(failure));
    }
}

/// Does the work of posix_spawn(3) between fork and exec. The last step sets the mask, which
/// unblocks signals.
fn prepare(kernel: &Kernel, sys: &dyn Sys, spawn: &SpawnRequest, mask: SigSet) -> Result<()> {
    if spawn.session {
        sys.setsid()?;
    }
    match spawn.group {
        SpawnGroup::Parents => {}
        SpawnGroup::Own => sys.setpgid(Pid::number_only(0), Pid::number_only(0))?,
        SpawnGroup::Of(group) => sys.setpgid(Pid::number_only(0), group)?,
    }
    let defaults = spawn.defaults.difference(SigSet::UNBLOCKABLE);
    for signal in defaults.iter() {
        sys.sigaction(signal, Some(SigAction::DEFAULT))?;
    }
    if let Some(proc) = kernel.find(sys.getpid()) {
        kernel.on_master(|| kernel.move_descriptors(&proc, &spawn.descriptors))?;
    }
    sys.sigprocmask(Some((SigmaskHow::Set, mask))).map(drop)
}
