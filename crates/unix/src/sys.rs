//! The system calls of both backends: [`Sys`]; those of POSIX and of 4.3BSD.

mod action;

use std::convert::Infallible;
use std::time::Duration;

pub use action::{
    ActionFlags, Disposition, Handler, SigAction, SigCode, SigInfo, SigVec, SigmaskHow,
};

use crate::errno::{Errno, Result};
use crate::limit::{Resource, Rlimit};
use crate::process::{Pid, PriorityScope, SigStack, SignalTarget, SpawnRequest, Tid};
use crate::ptrace::Ptrace;
use crate::signal::{SigSet, Signal};
use crate::terminal::{Fd, Termios};
use crate::wait::{Children, Usage, WaitOptions, WaitedChild};

/// The program of a forked process; its return value is the exit status.
pub type Program = Box<dyn FnOnce(&dyn Sys) -> i32 + Send>;

/// The program of a new thread.
pub type ThreadBody = Box<dyn FnOnce(&dyn Sys) + Send>;

/// The system calls of one thread of one process.
///
/// A program is a function of `&dyn Sys`, and runs unchanged on [`Linux`](crate::Linux) (real
/// processes) and on the `Virtual` of `tontine-unix-sim` (a Unix in this process). Each thread has
/// a handle of its own, which its function gets as an argument ([`Sys::thread_boxed`]).
///
/// Each call returns the errno that Linux returns for the same mistake. A call that a backend does
/// not implement returns `ENOSYS`; [`Sys::lacks`] names the reason.
///
/// If a signal may interrupt a call, `EINTR` means that a handler ran which was installed
/// without [`ActionFlags::RESTART`](crate::ActionFlags::RESTART).
pub trait Sys {
    /// Returns the calls that this backend does not implement, each with the reason.
    fn lacks(&self) -> &'static [(&'static str, &'static str)];

    // Processes

    /// Returns the caller's process.
    fn getpid(&self) -> Pid;
    /// Returns the parent of the caller's process; number 0 if it is outside the system.
    fn getppid(&self) -> Pid;
    /// Returns the calling thread.
    fn gettid(&self) -> Tid;
    /// Creates a process that runs `child`. See [`fork`](trait.Sys.html#method.fork), which boxes
    /// the closure.
    ///
    /// # Errors
    /// `EAGAIN`: the user or the system has reached its limit of processes.
    fn fork_boxed(&self, child: Program) -> Result<Pid>;
    /// Runs another program in place of this one. Returns only if that fails.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, `ENOEXEC`, `ENOMEM`, `E2BIG`; `EINVAL`: an argument contains a
    /// zero byte.
    fn exec(&self, path: &str, arguments: &[&str]) -> Result<Infallible>;
    /// Forks and executes in one call. If the child cannot execute the program, the call fails and
    /// leaves no child: there is none to wait for, and no SIGCHLD is sent.
    ///
    /// # Errors
    /// Like [`Sys::fork_boxed`] and [`Sys::exec`]. `EAGAIN` on `Linux` also: the child was killed
    /// before it had executed.
    fn spawn(&self, spawn: &SpawnRequest) -> Result<Pid>;
    /// Terminates the process with the low eight bits of `status`.
    ///
    /// On `Virtual` a destructor must not call it while the stack is unwound, be
    /// it by the program's panic or because the process is killed, exits or executes: the other
    /// calls are refused there, but this one can neither return nor unwind any further. It is a
    /// fault of the program that aborts the host process and says so.
    fn exit(&self, status: i32) -> !;
    /// Waits until a child changes state as `options` say. Returns `None` with `NOHANG` if none
    /// has.
    ///
    /// # Errors
    /// `ECHILD`: there is no such child, or another thread has it. `EINTR`. `EINVAL`: `options`
    /// names nothing to wait for, or something unknown; a number that cannot be a child's or a
    /// group's.
    fn waitid(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>>;

    // Signals

    /// Sends a signal, or with `None` only checks whether it could be sent. The bare number of any
    /// thread names its process.
    ///
    /// # Errors
    /// `ESRCH`: there is no such process. `EPERM`: the caller may signal none of them. `EINVAL`: a
    /// negative group, but `ESRCH` for the lowest number.
    fn kill(&self, target: SignalTarget, signal: Option<Signal>) -> Result<()>;
    /// Sends a signal to one thread.
    ///
    /// # Errors
    /// `ESRCH`, `EPERM`; `EAGAIN`: the queue is full; `EINVAL`: a number that cannot be a thread's.
    fn tgkill(&self, process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()>;
    /// Sends a signal with a value.
    ///
    /// # Errors
    /// `ESRCH`, `EPERM`; `EAGAIN`: the queue is full.
    fn sigqueue(&self, process: Pid, signal: Option<Signal>, value: i32) -> Result<()>;
    /// Raises a signal that the caller's own execution causes, one of [`FAULTS`](crate::FAULTS): it
    /// is delivered to this thread at once, and ends the process if it is blocked or ignored.
    ///
    /// # Errors
    /// `EINVAL`: another signal.
    fn fault(&self, signal: Signal) -> Result<()>;
    /// Returns the action for a signal, and with `Some` replaces it.
    ///
    /// # Errors
    /// `EINVAL`: SIGKILL or SIGSTOP is to be changed.
    fn sigaction(&self, signal: Signal, action: Option<SigAction>) -> Result<SigAction>;
    /// Returns the signal mask, and with `Some` changes it.
    ///
    /// # Errors
    /// None on both backends; the type leaves room for others.
    fn sigprocmask(&self, change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet>;
    /// Returns the signals that are pending and blocked.
    fn sigpending(&self) -> SigSet;
    /// Waits with this mask until a handler has run. Always returns an error, usually `EINTR`.
    fn sigsuspend(&self, mask: SigSet) -> Errno;
    /// Waits until a handler has run. Always returns an error, usually `EINTR`.
    fn pause(&self) -> Errno;
    /// Takes one of these signals without a handler, the lowest first; waits for at most `timeout`.
    /// An ignored signal is taken only if it was blocked before.
    ///
    /// # Errors
    /// `EAGAIN`: the timeout expired. `EINTR`: a handler ran for another signal, or the process was
    /// stopped.
    fn sigtimedwait(&self, set: SigSet, timeout: Option<Duration>) -> Result<SigInfo>;
    /// Sends the process SIGALRM after a number of seconds; 0 cancels it. Returns the seconds that
    /// were left of the previous alarm.
    fn alarm(&self, seconds: u32) -> u32;
    /// Sleeps.
    ///
    /// # Errors
    /// `EINTR` with the time that was left.
    fn nanosleep(&self, duration: Duration) -> std::result::Result<(), (Errno, Duration)>;

    // Groups, sessions, the terminal

    /// Returns the group of a process; number 0 is the caller.
    ///
    /// # Errors
    /// `ESRCH`.
    fn getpgid(&self, process: Pid) -> Result<Pid>;
    /// Puts a process (0: the caller) into a group (0: its own).
    ///
    /// # Errors
    /// `EACCES`: a child that has executed. `EINVAL`: a negative group. `EPERM`: a session leader,
    /// a process or group of another session. `ESRCH`: neither the caller nor a child.
    fn setpgid(&self, process: Pid, group: Pid) -> Result<()>;
    /// Returns the session of a process; number 0 is the caller.
    ///
    /// # Errors
    /// `ESRCH`.
    fn getsid(&self, process: Pid) -> Result<Pid>;
    /// Makes the caller leader of a session and a group of its own, without a terminal.
    ///
    /// # Errors
    /// `EPERM`: the caller leads a group already.
    fn setsid(&self) -> Result<Pid>;
    /// Creates a pseudoterminal. Returns its controlling end, for a user or a program, and the
    /// terminal itself.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    fn openpty(&self) -> Result<(Fd, Fd)>;
    /// Opens the controlling terminal, like `/dev/tty`.
    ///
    /// # Errors
    /// `EMFILE`; `ENXIO`: the session has none, or the caller was there before its leader took it.
    fn open_tty(&self) -> Result<Fd>;
    /// `TIOCSCTTY`: makes a terminal the session's, and the controlling one of its leader, which
    /// calls, and of those that are forked from now on: tty(4).
    ///
    /// # Errors
    /// `ENOTTY`. `EPERM`: not a session leader, or there is one already, or it is another
    /// session's.
    fn set_controlling(&self, terminal: Fd) -> Result<()>;
    /// Returns the foreground group of a terminal.
    ///
    /// # Errors
    /// `ENOTTY`: no terminal, or not the caller's.
    fn tcgetpgrp(&self, terminal: Fd) -> Result<Pid>;
    /// Makes a group the foreground group of a terminal.
    ///
    /// # Errors
    /// `ENOTTY`: no terminal, not the caller's, or asked for from an orphaned background group;
    /// `EPERM`: a group of another session, or a process that leads none, which Linux lets be;
    /// `EINVAL`: a negative number; `ESRCH`. From the background SIGTTOU is sent, unless it is
    /// blocked or ignored.
    fn tcsetpgrp(&self, terminal: Fd, group: Pid) -> Result<()>;
    /// Returns the session of a terminal.
    ///
    /// # Errors
    /// `ENOTTY`.
    fn tcgetsid(&self, terminal: Fd) -> Result<Pid>;
    /// Returns the attributes of a terminal.
    ///
    /// # Errors
    /// `ENOTTY`.
    fn tcgetattr(&self, terminal: Fd) -> Result<Termios>;
    /// Changes the attributes of a terminal.
    ///
    /// # Errors
    /// `ENOTTY`; `EIO`: from an orphaned background group, or hung up. Else like
    /// [`Sys::tcsetpgrp`].
    fn tcsetattr(&self, terminal: Fd, termios: &Termios) -> Result<()>;

    // Descriptors

    /// Creates a pipe. Returns the end to read from and the end to write to. These and all other
    /// new descriptors are closed by exec, except for copies that [`Sys::dup2`] or a
    /// [`SpawnRequest`] makes.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    fn pipe(&self) -> Result<(Fd, Fd)>;
    /// Reads the bytes that are available, waiting for at least one. Returns 0 at end-of-file.
    ///
    /// # Errors
    /// `EBADF`, `EINTR`; `EIO`: a terminal, from an orphaned background group or with SIGTTIN
    /// blocked or ignored, or hung up.
    fn read(&self, descriptor: Fd, buffer: &mut [u8]) -> Result<usize>;
    /// Writes bytes; sleeps while there is no free space.
    ///
    /// # Errors
    /// `EBADF`, `EINTR`; `EPIPE`, with SIGPIPE; `EIO`.
    fn write(&self, descriptor: Fd, bytes: &[u8]) -> Result<usize>;
    /// Closes a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    fn close(&self, descriptor: Fd) -> Result<()>;
    /// Makes `to` a copy of `from`, and closes what `to` was.
    ///
    /// # Errors
    /// `EBADF`.
    fn dup2(&self, from: Fd, to: Fd) -> Result<()>;

    // Threads

    /// Creates a thread that runs `body`. See [`thread`](trait.Sys.html#method.thread), which boxes
    /// the closure.
    ///
    /// # Errors
    /// `EAGAIN`: there are too many threads.
    fn thread_boxed(&self, body: ThreadBody) -> Result<Tid>;
    /// Waits until a thread of this process has ended. A thread can be joined once.
    ///
    /// # Errors
    /// `ESRCH`: no such thread of this process; on Linux its first one too. `EDEADLK`: the caller
    /// itself. `EINVAL`: another thread joins it.
    fn join(&self, thread: Tid) -> Result<()>;
    /// Lets other threads run.
    fn sched_yield(&self);
    /// Lets signals interrupt, stop or terminate a program that computes without other calls.
    fn poll(&self);
    /// Uses the processor for this long; signals may interrupt, stop or terminate the program
    /// meanwhile. The modelled executor moves its clock; the others poll until
    /// the system's clock says that it is over.
    fn compute(&self, duration: Duration) {
        compute_by_polls(self, duration);
    }
    /// Sets the processor of the threads and processes that this process creates from now on;
    /// `None` for any.
    ///
    /// # Errors
    /// `EINVAL`: there is no such processor.
    fn place(&self, processor: Option<usize>) -> Result<()>;
    /// Returns the processor that the caller runs on.
    fn processor(&self) -> usize;
    /// Returns the time of the monotonic clock.
    fn now(&self) -> Duration;

    // Users, limits, priorities

    /// Returns the real user.
    fn getuid(&self) -> u32;
    /// Returns the effective user.
    fn geteuid(&self) -> u32;
    /// Sets real and effective user, as setuid(2) does.
    ///
    /// # Errors
    /// `EPERM`; `EINVAL`: `u32::MAX`, which is not a user.
    fn setuid(&self, uid: u32) -> Result<()>;
    /// Returns a limit of the caller's process.
    fn getrlimit(&self, resource: Resource) -> Rlimit;
    /// Changes a limit of the caller's process.
    ///
    /// # Errors
    /// `EINVAL`: soft above hard. `EPERM`: hard is raised; more descriptors than the system has for
    /// one process.
    fn setrlimit(&self, resource: Resource, limit: Rlimit) -> Result<()>;
    /// Returns the lowest nice value (the highest priority) of these processes.
    ///
    /// # Errors
    /// `ESRCH`.
    fn getpriority(&self, whose: PriorityScope) -> Result<i32>;
    /// Sets the nice value of these processes, clamped to −20 to 19.
    ///
    /// # Errors
    /// `ESRCH`; `EPERM`: another user's; `EACCES`: to a lower value without privilege.
    fn setpriority(&self, whose: PriorityScope, nice: i32) -> Result<()>;
    /// Returns the processor time that the process has used.
    fn getrusage(&self) -> Usage;
    /// `PR_SET_CHILD_SUBREAPER`: orphaned descendants become the caller's children.
    ///
    /// # Errors
    /// None on both backends; the type leaves room for others.
    fn set_subreaper(&self, on: bool) -> Result<()>;
    /// Counts where the program is, tick by tick: from now on tick n of this thread adds one to
    /// `counts[mark]`, where the mark is what [`Sys::mark`] said last. `None` ends it.
    ///
    /// # Errors
    /// `ENOSYS` on [`Linux`](crate::Linux).
    fn profil(&self, counts: Option<std::sync::Arc<[std::sync::atomic::AtomicU32]>>) -> Result<()>;
    /// Sets the mark of the calling thread, for [`Sys::profil`].
    fn mark(&self, mark: usize);

    // ptrace

    /// Makes a request as a tracer or a tracee.
    ///
    /// # Errors
    /// `ESRCH`: no such process, not a tracee of the calling thread, or not stopped. `EPERM`:
    /// traced already, or a process of another user.
    fn ptrace(&self, request: Ptrace) -> Result<()>;

    // 4.3BSD

    /// 4.3BSD's `sigaction`: without it, calls start again.
    ///
    /// # Errors
    /// Like [`Sys::sigaction`].
    fn sigvec(&self, signal: Signal, vector: Option<SigVec>) -> Result<SigVec>;
    /// 4.3BSD's alternate stack.
    ///
    /// # Errors
    /// `EPERM`: a handler runs on it. `ENOMEM`: less than 2048 bytes, or more than there are.
    fn sigstack(&self, stack: Option<SigStack>) -> Result<SigStack>;
    /// Blocks the signals 1 to 32 whose bits are set; returns the mask before.
    fn sigblock(&self, mask: u32) -> u32 {
        let set = SigSet::from_bits(mask.into());
        self.sigprocmask(Some((SigmaskHow::Block, set))).map_or(0, |old| old.bits() as u32)
    }
    /// Blocks the signals 1 to 32 whose bits are set, and no others of those; returns the mask
    /// before.
    fn sigsetmask(&self, mask: u32) -> u32 {
        let old = self.sigprocmask(None).unwrap_or_default();
        let high = old.bits() & !u64::from(u32::MAX);
        let set = SigSet::from_bits(high | u64::from(mask));
        self.sigprocmask(Some((SigmaskHow::Set, set))).map_or(0, |old| old.bits() as u32)
    }
    /// Like [`Sys::sigsuspend`], with a mask of 32 bits.
    fn sigpause(&self, mask: u32) -> Errno {
        self.sigsuspend(SigSet::from_bits(mask.into()))
    }

    // Calls that are made of others

    /// Signals a process group.
    ///
    /// # Errors
    /// Like [`Sys::kill`]; `EINVAL`: a negative number.
    fn killpg(&self, group: Pid, signal: Option<Signal>) -> Result<()> {
        match group.number() {
            ..0 => Err(Errno::EINVAL),
            0 => self.kill(SignalTarget::OwnGroup, signal),
            _ => self.kill(SignalTarget::Group(group), signal),
        }
    }
    /// Sends the caller a signal.
    ///
    /// # Errors
    /// Like [`Sys::tgkill`].
    fn raise(&self, signal: Signal) -> Result<()> {
        self.tgkill(self.getpid(), self.gettid(), Some(signal))
    }
    /// Returns the caller's group.
    fn getpgrp(&self) -> Pid {
        self.getpgid(Pid::number_only(0)).expect("the caller has a group")
    }
    /// Waits until any child terminates.
    ///
    /// # Errors
    /// Like [`Sys::waitid`].
    fn wait(&self) -> Result<WaitedChild> {
        self.waitpid(Children::Any, WaitOptions::empty()).map(|found| found.expect("it slept"))
    }
    /// Waits until a child terminates, or changes state in another way that `options` names.
    ///
    /// # Errors
    /// Like [`Sys::waitid`]; `EINVAL`: [`WaitOptions::NOWAIT`]; `ESRCH`: the lowest number, of
    /// which there is no group.
    fn waitpid(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
        if !WaitOptions::all().difference(WaitOptions::NOWAIT).contains(options) {
            return Err(Errno::EINVAL);
        }
        if children == Children::of(i32::MIN) {
            return Err(Errno::ESRCH);
        }
        self.waitid(children, options.union(WaitOptions::EXITED))
    }
    /// 4.3BSD's `wait3`.
    ///
    /// # Errors
    /// Like [`Sys::waitpid`].
    fn wait3(&self, options: WaitOptions) -> Result<Option<WaitedChild>> {
        self.waitpid(Children::Any, options)
    }
    /// 4.3BSD's `wait4`.
    ///
    /// # Errors
    /// Like [`Sys::waitpid`].
    fn wait4(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
        self.waitpid(children, options)
    }
    /// Takes one of these signals without a handler.
    ///
    /// # Errors
    /// Like [`Sys::sigtimedwait`], but never `EINTR`.
    fn sigwait(&self, set: SigSet) -> Result<Signal> {
        loop {
            match self.sigtimedwait(set, None) {
                Err(Errno::EINTR) => {}
                other => return other.map(|info| info.signal),
            }
        }
    }
}

impl dyn Sys + '_ {
    /// Creates a process that runs `child`, whose return value is the exit status.
    ///
    /// # Errors
    /// Like [`Sys::fork_boxed`].
    pub fn fork(&self, child: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Result<Pid> {
        self.fork_boxed(Box::new(child))
    }

    /// Creates a thread that runs `body`.
    ///
    /// # Errors
    /// Like [`Sys::thread_boxed`].
    pub fn thread(&self, body: impl FnOnce(&dyn Sys) + Send + 'static) -> Result<Tid> {
        self.thread_boxed(Box::new(body))
    }
}

/// Implements [`Sys::compute`] by calls of [`Sys::poll`].
pub fn compute_by_polls<S: Sys + ?Sized>(sys: &S, duration: Duration) {
    let end = sys.now().saturating_add(duration);
    while sys.now() < end {
        sys.poll();
    }
}
