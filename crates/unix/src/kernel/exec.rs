//! `exec` and `spawn`: registered programs ([`Image`]).

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use super::Kernel;
use super::call::{After, Call, Leave};
use super::pid_table::Keeper;
use super::threads::First;
use crate::errno::{Errno, Result};
use crate::executor::{self, Fiber};
use crate::machine::Registered;
use crate::process::{Pid, Spawn};
use crate::signal::SigSet;
use crate::sys::Sys;
use crate::wait::{Children, WaitOptions};

/// A program that a process is about to run, and its arguments.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) name: Arc<str>,
    program: Registered,
    arguments: Vec<String>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.arguments)
    }
}

impl Image {
    /// Runs it.
    pub(super) fn run(&self, sys: &dyn Sys) -> i32 {
        (self.program)(sys, &self.arguments)
    }
}

/// Bytes that arguments may have, as `ARG_MAX` says.
const ARG_MAX: usize = 128 << 10;

impl Call<'_> {
    /// The program of this name.
    fn image(&self, path: &str, arguments: Vec<String>) -> Result<Image> {
        let found = self.kernel.config.programs.get(path).ok_or(Errno::ENOENT)?;
        if arguments.iter().map(|argument| argument.len() + 1).sum::<usize>() > ARG_MAX {
            return Err(Errno::E2BIG);
        }
        Ok(Image { name: path.into(), program: found.clone(), arguments })
    }

    pub(super) fn execute(&self, path: &str, arguments: &[&str]) -> Result<Infallible> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        // `exec` ran anywhere in OSF/1.0 too: it does not wait for the master.
        self.interruptible_anywhere(|| {
            let image = self.image(path, arguments.clone())?;
            self.sig_lock_or_return()?.sig_lock_to_exit(&self.thread);
            self.halt_others();
            self.await_alone();
            self.reset_for(image);
            self.leave(Leave::Exec)
        })
    }

    /// The caller is alone: its process becomes another program's.
    fn reset_for(&self, image: Image) {
        let mut state = self.state();
        Arc::make_mut(&mut state.actions).executed();
        state.name = image.name.clone();
        state.executed = true;
        state.dying = false;
        state.ender = None;
        state.ended.clear();
        state.image = Some(image);
        // Its thread is the process's first one from now on.
        let (number, tid) = (self.proc.number(), self.thread.tid());
        self.thread.set_tid(number);
        self.trap_if_traced(&mut state);
        drop(state);
        if tid != number {
            let kernel = self.kernel;
            kernel.on_master(|| kernel.pids.drop_keeper(&kernel.locks, tid, Keeper::Thread));
        }
        self.kernel.on_master(|| self.kernel.close_for_exec(self.proc));
        self.alternate.take();
        self.profile.take();
        self.saved_mask.take();
        self.frames.take();
        self.proc.siglock.reset(&self.kernel.locks);
    }

    /// The program that the process has executed, whose turn it is.
    pub(super) fn begin_image(&self) -> Option<Image> {
        self.state().image.take()
    }

    /// `fork` and `exec` in one: the caller sleeps until the child has executed or failed to.
    pub(super) fn spawn_process(&self, sys: &Spawn) -> Result<Pid> {
        let image = self.image(&sys.path, sys.arguments.clone())?;
        let report = Arc::new(Report::default());
        let (spawn, told) = (sys.clone(), Teller(Arc::clone(&report)));
        let kernel = self.kernel.handle();
        let program = move |child: &dyn Sys| -> i32 {
            let arguments: Vec<&str> = image.arguments.iter().map(String::as_str).collect();
            let failed = prepare(kernel.get(), child, &spawn).err().unwrap_or_else(|| match child
                .exec(&image.name, &arguments)
            {
                Err(errno) => errno,
                Ok(never) => match never {},
            });
            told.0.tell(failed.raw());
            127
        };
        let mut first = Some(First::Program(Box::new(program)));
        report.expect(executor::current());
        let pid = self.interruptible(After::Restart, || self.fork_once(&mut first))?;
        match report.wait() {
            0 => Ok(pid),
            errno => {
                self.wait_for_failed(pid);
                Err(Errno::from_raw(errno))
            }
        }
    }

    /// Takes away what is left of a child that could not be executed.
    fn wait_for_failed(&self, pid: Pid) {
        while self.wait_for(Children::One(pid), WaitOptions::EXITED) == Err(Errno::EINTR) {}
    }
}

/// What a spawned child tells its parent: 0 when it has executed, or why it cannot.
#[derive(Debug, Default)]
struct Report {
    /// −1 until it is told.
    told: AtomicI32,
    parent: OnceLock<Fiber>,
}

/// The child's end of a report, which is let go of when the child has executed, or was killed
/// before it could: it was made all the same.
struct Teller(Arc<Report>);

impl Drop for Teller {
    fn drop(&mut self) {
        if self.0.told.load(Ordering::Relaxed) == -1 {
            self.0.tell(0);
        }
    }
}

impl Report {
    fn expect(&self, parent: Fiber) {
        self.told.store(-1, Ordering::Relaxed);
        let _ = self.parent.set(parent);
    }

    fn tell(&self, errno: i32) {
        // SYNC spawned: pairs with `Report::wait`.
        self.told.store(errno, Ordering::Release);
        if let Some(parent) = self.parent.get() {
            parent.unpark();
        }
    }

    fn wait(&self) -> i32 {
        loop {
            // SYNC spawned: pairs with `Report::tell`.
            match self.told.load(Ordering::Acquire) {
                -1 => executor::park(),
                told => return told,
            }
        }
    }
}

/// What posix_spawn(3) does between fork and exec.
fn prepare(kernel: &Kernel, sys: &dyn Sys, spawn: &Spawn) -> Result<()> {
    if spawn.session {
        sys.setsid()?;
    }
    if let Some(group) = spawn.group {
        sys.setpgid(Pid::number_only(0), group.unwrap_or(Pid::number_only(0)))?;
    }
    for signal in spawn.defaults.difference(SigSet::UNBLOCKABLE).iter() {
        sys.sigaction(signal, Some(crate::action::SigAction::DEFAULT))?;
    }
    if let Some(proc) = kernel.find(sys.getpid()) {
        kernel.on_master(|| kernel.move_descriptors(&proc, &spawn.descriptors))?;
    }
    if let Some(mask) = spawn.mask {
        sys.sigprocmask(Some((crate::action::How::Set, mask)))?;
    }
    Ok(())
}
