//! The system calls, whoever answers them: [`Sys`]; those of 4.3BSD beside POSIX (§2.1).

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

/// What a forked process runs. What it returns is its exit status.
pub type Program = Box<dyn FnOnce(&dyn Sys) -> i32 + Send>;

/// What a new thread runs.
pub type ThreadBody = Box<dyn FnOnce(&dyn Sys) + Send>;

/// The system calls of one thread of one process.
///
/// A program is a function of `&dyn Sys`, and runs unchanged on [`Linux`](crate::Linux) (real
/// processes) and on the `Virtual` of `tontine-unix-sim` (a Unix in this process). A handle is its
/// thread's own: another thread gets another ([`Sys::thread_boxed`]).
///
/// Each call returns the errno that Linux returns for the same mistake. What a backend cannot do
/// is `ENOSYS`, and [`Sys::lacks`] says why.
///
/// Where a signal may interrupt a call, `EINTR` means that a handler ran which was installed
/// without [`ActionFlags::RESTART`](crate::ActionFlags::RESTART).
pub trait Sys {
    /// What this backend cannot do: the call and the reason.
    fn lacks(&self) -> &'static [(&'static str, &'static str)];

    // Processes

    /// The caller's process.
    fn getpid(&self) -> Pid;
    /// Its parent; number 0 where that is outside.
    fn getppid(&self) -> Pid;
    /// The caller.
    fn gettid(&self) -> Tid;
    /// Makes a process that runs `child`. Use [`fork`](trait.Sys.html#method.fork), which boxes.
    ///
    /// # Errors
    /// `EAGAIN`: the user has as many processes as the limit allows, or the system has.
    fn fork_boxed(&self, child: Program) -> Result<Pid>;
    /// Runs another program in place of this one; returns only to say why not.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, `ENOEXEC`, `ENOMEM`, `E2BIG`; `EINVAL`: an argument with a zero in it.
    fn exec(&self, path: &str, arguments: &[&str]) -> Result<Infallible>;
    /// `fork` and `exec` in one. A child that could not be executed is an error here, and leaves
    /// nothing behind: nobody can wait for it, and no SIGCHLD comes.
    ///
    /// # Errors
    /// Those of both. `EAGAIN` also on `Linux`: the child was killed before it had executed.
    fn spawn(&self, spawn: &SpawnRequest) -> Result<Pid>;
    /// Ends the process with the low eight bits of `status`.
    ///
    /// On `Virtual` a destructor must not call it while the stack is unwound, be
    /// it by the program's panic or because the process is killed, exits or executes: the other
    /// calls are refused there, but this one can neither return nor unwind any further. It is a
    /// fault of the program that aborts the host process and says so.
    fn exit(&self, status: i32) -> !;
    /// Waits for a child to change, as `options` say; `None` with `NOHANG` where none has.
    ///
    /// # Errors
    /// `ECHILD`: there is no such child, or another thread has it. `EINTR`. `EINVAL`: `options`
    /// names nothing to wait for, or something unknown; a number that cannot be a child's or a
    /// group's.
    fn waitid(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>>;

    // Signals

    /// Sends a signal, or with `None` only asks whether it could be sent. The bare number of any
    /// thread names its process.
    ///
    /// # Errors
    /// `ESRCH`: nobody there. `EPERM`: nobody of those may be signalled. `EINVAL`: a negative
    /// group, but `ESRCH` for the lowest number.
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
    /// Reads, and with `Some` replaces, what is done about a signal.
    ///
    /// # Errors
    /// `EINVAL`: SIGKILL or SIGSTOP is to be changed.
    fn sigaction(&self, signal: Signal, action: Option<SigAction>) -> Result<SigAction>;
    /// Reads, and with `Some` changes, the mask.
    ///
    /// # Errors
    /// None; the result is for the shape of it.
    fn sigprocmask(&self, change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet>;
    /// Signals that were sent and are blocked.
    fn sigpending(&self) -> SigSet;
    /// Waits, with this mask, until a handler has run.
    fn sigsuspend(&self, mask: SigSet) -> Errno;
    /// Waits for a handler.
    fn pause(&self) -> Errno;
    /// Takes one of these signals without a handler, the lowest first; waits for at most `timeout`.
    /// One that is ignored comes only if it was blocked before.
    ///
    /// # Errors
    /// `EAGAIN`: time is over. `EINTR`: a handler ran for another signal, or the process was
    /// stopped.
    fn sigtimedwait(&self, set: SigSet, timeout: Option<Duration>) -> Result<SigInfo>;
    /// SIGALRM after so many seconds, 0 for none; returns those that were left of the one before.
    fn alarm(&self, seconds: u32) -> u32;
    /// Sleeps.
    ///
    /// # Errors
    /// `EINTR` with what was left.
    fn nanosleep(&self, duration: Duration) -> std::result::Result<(), (Errno, Duration)>;

    // Groups, sessions, the terminal

    /// A process's group; number 0 is the caller.
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
    /// A process's session; number 0 is the caller.
    ///
    /// # Errors
    /// `ESRCH`.
    fn getsid(&self, process: Pid) -> Result<Pid>;
    /// Makes the caller leader of a session and a group of its own, without a terminal.
    ///
    /// # Errors
    /// `EPERM`: it leads a group already.
    fn setsid(&self) -> Result<Pid>;
    /// A new terminal: its controlling end, where a user or a program sits, and the terminal
    /// itself.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    fn openpty(&self) -> Result<(Fd, Fd)>;
    /// The controlling terminal, as opening `/dev/tty` gives it.
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
    /// The terminal's foreground group.
    ///
    /// # Errors
    /// `ENOTTY`: no terminal, or not the caller's.
    fn tcgetpgrp(&self, terminal: Fd) -> Result<Pid>;
    /// Puts a group into the foreground.
    ///
    /// # Errors
    /// `ENOTTY`: no terminal, not the caller's, or asked for from an orphaned background group;
    /// `EPERM`: a group of another session, or a process that leads none, which Linux lets be;
    /// `EINVAL`: a negative number; `ESRCH`. From the background SIGTTOU is sent, unless it is
    /// blocked or ignored.
    fn tcsetpgrp(&self, terminal: Fd, group: Pid) -> Result<()>;
    /// The terminal's session.
    ///
    /// # Errors
    /// `ENOTTY`.
    fn tcgetsid(&self, terminal: Fd) -> Result<Pid>;
    /// How the terminal behaves.
    ///
    /// # Errors
    /// `ENOTTY`.
    fn tcgetattr(&self, terminal: Fd) -> Result<Termios>;
    /// Changes it.
    ///
    /// # Errors
    /// `ENOTTY`; `EIO`: from an orphaned background group, or hung up. Else as [`Sys::tcsetpgrp`].
    fn tcsetattr(&self, terminal: Fd, termios: &Termios) -> Result<()>;

    // Descriptors

    /// A pipe: the end to read from, the end to write to. These and all other new descriptors are
    /// closed by exec; copies that [`Sys::dup2`] or a [`SpawnRequest`] makes are not.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    fn pipe(&self) -> Result<(Fd, Fd)>;
    /// Reads what is there, at least one byte; 0 at the end.
    ///
    /// # Errors
    /// `EBADF`, `EINTR`; `EIO`: a terminal, from an orphaned background group or with SIGTTIN
    /// blocked or ignored, or hung up.
    fn read(&self, descriptor: Fd, buffer: &mut [u8]) -> Result<usize>;
    /// Writes; sleeps where there is no room.
    ///
    /// # Errors
    /// `EBADF`, `EINTR`; `EPIPE`, with SIGPIPE; `EIO`.
    fn write(&self, descriptor: Fd, bytes: &[u8]) -> Result<usize>;
    /// Closes.
    ///
    /// # Errors
    /// `EBADF`.
    fn close(&self, descriptor: Fd) -> Result<()>;
    /// Makes `to` another name of `from`, and closes what it was.
    ///
    /// # Errors
    /// `EBADF`.
    fn dup2(&self, from: Fd, to: Fd) -> Result<()>;

    // Threads

    /// Makes a thread. Use [`thread`](trait.Sys.html#method.thread), which boxes.
    ///
    /// # Errors
    /// `EAGAIN`: too many.
    fn thread_boxed(&self, body: ThreadBody) -> Result<Tid>;
    /// Waits until a thread of this process has ended; a thread is joined once.
    ///
    /// # Errors
    /// `ESRCH`: no such thread of this process; on Linux its first one too. `EDEADLK`: the caller
    /// itself. `EINVAL`: somebody joins it.
    fn join(&self, thread: Tid) -> Result<()>;
    /// Lets others run.
    fn sched_yield(&self);
    /// For a program that computes: a place to be interrupted, stopped and ended.
    fn poll(&self);
    /// Computes for so long, as a program does that uses its processor: it may be interrupted,
    /// stopped and ended meanwhile. The modelled executor moves its clock; the others poll until
    /// the system's clock says that it is over.
    fn compute(&self, duration: Duration) {
        compute_by_polls(self, duration);
    }
    /// On which processor those run that this process makes from now on; `None` for any.
    ///
    /// # Errors
    /// `EINVAL`: there is no such processor.
    fn place(&self, processor: Option<usize>) -> Result<()>;
    /// The processor that the caller runs on.
    fn processor(&self) -> usize;
    /// The monotonic clock.
    fn now(&self) -> Duration;

    // Users, limits, priorities

    /// Real user.
    fn getuid(&self) -> u32;
    /// Effective user.
    fn geteuid(&self) -> u32;
    /// Sets real and effective user, as setuid(2) does.
    ///
    /// # Errors
    /// `EPERM`; `EINVAL`: `u32::MAX`, which is nobody's.
    fn setuid(&self, uid: u32) -> Result<()>;
    /// A limit of the caller's process.
    fn getrlimit(&self, resource: Resource) -> Rlimit;
    /// Changes one.
    ///
    /// # Errors
    /// `EINVAL`: soft above hard. `EPERM`: hard is raised; more descriptors than the system has for
    /// one process.
    fn setrlimit(&self, resource: Resource, limit: Rlimit) -> Result<()>;
    /// The lowest nice value (the highest priority) of those meant.
    ///
    /// # Errors
    /// `ESRCH`.
    fn getpriority(&self, whose: PriorityScope) -> Result<i32>;
    /// Sets it; −20 to 19, what lies beyond is brought there.
    ///
    /// # Errors
    /// `ESRCH`; `EPERM`: another user's; `EACCES`: to a lower value without privilege.
    fn setpriority(&self, whose: PriorityScope, nice: i32) -> Result<()>;
    /// Time used by the process.
    fn getrusage(&self) -> Usage;
    /// `PR_SET_CHILD_SUBREAPER`: orphaned descendants become the caller's children.
    ///
    /// # Errors
    /// None on both backends; the result is for the shape of it.
    fn set_subreaper(&self, on: bool) -> Result<()>;
    /// Counts where the program is, tick by tick: from now on tick n of this thread adds one to
    /// `counts[mark]`, where the mark is what [`Sys::mark`] said last. `None` ends it.
    ///
    /// # Errors
    /// `ENOSYS` on [`Linux`](crate::Linux).
    fn profil(&self, counts: Option<std::sync::Arc<[std::sync::atomic::AtomicU32]>>) -> Result<()>;
    /// Says where the program is, for [`Sys::profil`].
    fn mark(&self, mark: usize);

    // ptrace

    /// Traces.
    ///
    /// # Errors
    /// `ESRCH`: no such process, not a tracee of the calling thread, or not stopped. `EPERM`:
    /// traced already, or somebody else's.
    fn ptrace(&self, request: Ptrace) -> Result<()>;

    // 4.3BSD

    /// 4.3BSD's `sigaction`: without it, calls start again.
    ///
    /// # Errors
    /// As [`Sys::sigaction`].
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
    /// As [`Sys::sigsuspend`], with a mask of 32 bits.
    fn sigpause(&self, mask: u32) -> Errno {
        self.sigsuspend(SigSet::from_bits(mask.into()))
    }

    // What others are made of

    /// Signals a process group.
    ///
    /// # Errors
    /// As [`Sys::kill`]; `EINVAL`: a negative number.
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
    /// As [`Sys::tgkill`].
    fn raise(&self, signal: Signal) -> Result<()> {
        self.tgkill(self.getpid(), self.gettid(), Some(signal))
    }
    /// The caller's group.
    fn getpgrp(&self) -> Pid {
        self.getpgid(Pid::number_only(0)).expect("the caller has a group")
    }
    /// Waits for any child to end.
    ///
    /// # Errors
    /// As [`Sys::waitid`].
    fn wait(&self) -> Result<WaitedChild> {
        self.waitpid(Children::Any, WaitOptions::empty()).map(|found| found.expect("it slept"))
    }
    /// Waits for children to end, and what else `options` names.
    ///
    /// # Errors
    /// As [`Sys::waitid`]; `EINVAL`: [`WaitOptions::NOWAIT`]; `ESRCH`: the lowest number, of which
    /// there is no group.
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
    /// As [`Sys::waitpid`].
    fn wait3(&self, options: WaitOptions) -> Result<Option<WaitedChild>> {
        self.waitpid(Children::Any, options)
    }
    /// 4.3BSD's `wait4`.
    ///
    /// # Errors
    /// As [`Sys::waitpid`].
    fn wait4(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
        self.waitpid(children, options)
    }
    /// Takes one of these signals without a handler.
    ///
    /// # Errors
    /// As [`Sys::sigtimedwait`], but never `EINTR`.
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
    /// Makes a process that runs `child`; what that returns is its exit status.
    ///
    /// # Errors
    /// As [`Sys::fork_boxed`].
    pub fn fork(&self, child: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Result<Pid> {
        self.fork_boxed(Box::new(child))
    }

    /// Makes a thread that runs `body`.
    ///
    /// # Errors
    /// As [`Sys::thread_boxed`].
    pub fn thread(&self, body: impl FnOnce(&dyn Sys) + Send + 'static) -> Result<Tid> {
        self.thread_boxed(Box::new(body))
    }
}

/// [`Sys::compute`], by polls.
pub fn compute_by_polls<S: Sys + ?Sized>(sys: &S, duration: Duration) {
    let end = sys.now().saturating_add(duration);
    while sys.now() < end {
        sys.poll();
    }
}
