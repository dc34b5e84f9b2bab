//! The system calls of both backends, those of POSIX and of 4.3BSD: [`Sys`].

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

/// The program of a forked process. The value that it returns is the exit status.
pub type Program = Box<dyn FnOnce(&dyn Sys) -> i32 + Send>;

/// The program of a new thread.
pub type ThreadBody = Box<dyn FnOnce(&dyn Sys) + Send>;

/// The system calls of one thread of one process.
///
/// A program is a function of `&dyn Sys`. It runs unchanged on [`Linux`](crate::Linux) (real
/// processes) and on the `Virtual` of `tontine-unix-sim` (a Unix in this process). Each thread has
/// its own handle, which its function receives as an argument ([`Sys::thread_boxed`]).
///
/// Each call returns the errno that Linux returns for the same mistake. A call that a backend does
/// not implement returns `ENOSYS`; [`Sys::lacks`] gives the reason.
///
/// From a call that signals may interrupt, `EINTR` means that a handler ran that was installed
/// without [`ActionFlags::RESTART`](crate::ActionFlags::RESTART).
pub trait Sys {
    /// Returns the calls that this backend does not implement, each with the reason.
    fn lacks(&self) -> &'static [(&'static str, &'static str)];

    // Processes

    /// Returns the caller's process.
    fn getpid(&self) -> Pid;
    /// Returns the parent of the caller's process, or number 0 if the parent is outside the system.
    fn getppid(&self) -> Pid;
    /// Returns the calling thread.
    fn gettid(&self) -> Tid;
    /// Creates a process that runs `child`. See [`fork`](trait.Sys.html#method.fork), which boxes
    /// the closure.
    ///
    /// # Errors
    /// `EAGAIN` if the user or the system has reached its limit of processes.
    fn fork_boxed(&self, child: Program) -> Result<Pid>;
    /// Replaces the caller's program with another. Returns only on failure.
    ///
    /// # Errors
    /// 1. `ENOENT`, `EACCES`, `ENOEXEC`, `ENOMEM` or `E2BIG`, as execve(2) specifies.
    /// 2. `EINVAL` if an argument contains a NUL byte.
    fn exec(&self, path: &str, arguments: &[&str]) -> Result<Infallible>;
    /// Forks and calls exec in one step. If the child cannot exec the program, the call fails and
    /// leaves no child: no wait finds a child, and no SIGCHLD is sent.
    ///
    /// # Errors
    /// 1. The errors of [`Sys::fork_boxed`] and [`Sys::exec`].
    /// 2. On `Linux`, `EAGAIN` also if the child was killed before its exec succeeded.
    fn spawn(&self, spawn: &SpawnRequest) -> Result<Pid>;
    /// Terminates the process with the low eight bits of `status`.
    ///
    /// On `Virtual`, a destructor must not call `exit` while the stack unwinds, whether the program
    /// panicked or the process is killed, exits or calls exec. Other calls fail there, but `exit`
    /// can neither return nor unwind further: it aborts the host process with a message that blames
    /// the program.
    fn exit(&self, status: i32) -> !;
    /// Waits until a child changes state as `options` specify. With `NOHANG`, returns `None`
    /// immediately if no child has changed state.
    ///
    /// # Errors
    /// 1. `ECHILD` if no such child exists, or another thread has reaped it.
    /// 2. `EINTR` if a handler interrupted the wait.
    /// 3. `EINVAL` if `options` contain an unknown bit or name no change to wait for, or if the
    ///    number cannot be a child's or a group's.
    fn waitid(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>>;

    // Signals

    /// Sends a signal, or with `None` only checks whether it could be sent. The bare number of any
    /// thread denotes the thread's process.
    ///
    /// # Errors
    /// 1. `ESRCH` if no such process exists, or `target` is the group with the lowest number,
    ///    `i32::MIN`.
    /// 2. `EPERM` if the caller may signal none of the processes.
    /// 3. `EINVAL` if `target` is a group with any other negative number.
    fn kill(&self, target: SignalTarget, signal: Option<Signal>) -> Result<()>;
    /// Sends a signal to one thread.
    ///
    /// # Errors
    /// 1. `ESRCH` if there is no such thread in the process; `EPERM` if the caller may not signal
    ///    it.
    /// 2. `EAGAIN` if the queue is full.
    /// 3. `EINVAL` if a number cannot be a thread's.
    fn tgkill(&self, process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()>;
    /// Sends a signal with a value.
    ///
    /// # Errors
    /// 1. `ESRCH` if there is no such process; `EPERM` if the caller may not signal it.
    /// 2. `EAGAIN` if the queue is full.
    fn sigqueue(&self, process: Pid, signal: Option<Signal>, value: i32) -> Result<()>;
    /// Raises one of [`FAULTS`](crate::FAULTS), as if an instruction of the caller had caused it.
    /// The signal is delivered to this thread immediately, and terminates the process if it is
    /// blocked or ignored.
    ///
    /// # Errors
    /// `EINVAL` for any other signal.
    fn fault(&self, signal: Signal) -> Result<()>;
    /// Returns the action for a signal; with `Some`, also replaces it.
    ///
    /// # Errors
    /// `EINVAL` if the call would change the action for SIGKILL or SIGSTOP.
    fn sigaction(&self, signal: Signal, action: Option<SigAction>) -> Result<SigAction>;
    /// Returns the signal mask; with `Some`, also changes it. The returned mask is the previous
    /// one.
    ///
    /// # Errors
    /// Neither backend returns an error; another implementation may.
    fn sigprocmask(&self, change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet>;
    /// Returns the signals that are pending and blocked.
    fn sigpending(&self) -> SigSet;
    /// Replaces the signal mask with `mask` until a handler has run. Always returns an error,
    /// usually `EINTR`.
    fn sigsuspend(&self, mask: SigSet) -> Errno;
    /// Waits until a handler has run. Always returns an error, usually `EINTR`.
    fn pause(&self) -> Errno;
    /// Takes one of these signals without running a handler, the lowest first. Waits for at most
    /// `timeout`. An ignored signal is taken only if it was blocked before.
    ///
    /// # Errors
    /// 1. `EAGAIN` if the timeout expired.
    /// 2. `EINTR` if a handler ran for another signal, or the process was stopped.
    fn sigtimedwait(&self, set: SigSet, timeout: Option<Duration>) -> Result<SigInfo>;
    /// Sends the process SIGALRM after a number of seconds; 0 cancels the alarm. Returns the
    /// remaining seconds of the previous alarm.
    fn alarm(&self, seconds: u32) -> u32;
    /// Sleeps for this long.
    ///
    /// # Errors
    /// `EINTR`, with the remaining time, if a handler interrupted the sleep.
    fn nanosleep(&self, duration: Duration) -> std::result::Result<(), (Errno, Duration)>;

    // Groups, sessions, the terminal

    /// Returns the group of a process; number 0 denotes the caller.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process.
    fn getpgid(&self, process: Pid) -> Result<Pid>;
    /// Moves a process into a group. Process 0 denotes the caller, and group 0 the group with the
    /// process's number.
    ///
    /// # Errors
    /// 1. `EACCES` if the process is a child that has called exec.
    /// 2. `EINVAL` if the group's number is negative.
    /// 3. `EPERM` if the process leads a session, or the process or the group is in another
    ///    session.
    /// 4. `ESRCH` if the process is neither the caller nor its child.
    fn setpgid(&self, process: Pid, group: Pid) -> Result<()>;
    /// Returns the session of a process; number 0 denotes the caller.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process.
    fn getsid(&self, process: Pid) -> Result<Pid>;
    /// Makes the caller the leader of a new session and a new group, without a controlling
    /// terminal.
    ///
    /// # Errors
    /// `EPERM` if the caller leads a group already.
    fn setsid(&self) -> Result<Pid>;
    /// Creates a pseudoterminal. Returns its controlling end, which a user or a program uses, and
    /// the terminal itself.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE` if the process or the system has too many open files.
    fn openpty(&self) -> Result<(Fd, Fd)>;
    /// Opens the controlling terminal, like `/dev/tty`.
    ///
    /// # Errors
    /// 1. `EMFILE` if the process has too many open files.
    /// 2. `ENXIO` if the session has no terminal, or its leader took the terminal after the caller
    ///    had been forked.
    fn open_tty(&self) -> Result<Fd>;
    /// Makes a terminal the controlling terminal (`TIOCSCTTY`) of the session that the caller
    /// leads. It is the controlling terminal of the caller and of the processes that it forks from
    /// now on: see tty(4).
    ///
    /// # Errors
    /// 1. `ENOTTY` if the descriptor is not a terminal.
    /// 2. `EPERM` if the caller does not lead a session, the session has a terminal, or the
    ///    terminal is another session's.
    fn set_controlling(&self, terminal: Fd) -> Result<()>;
    /// Returns the foreground group of a terminal.
    ///
    /// # Errors
    /// `ENOTTY` if the descriptor is not a terminal, or not the caller's controlling terminal.
    fn tcgetpgrp(&self, terminal: Fd) -> Result<Pid>;
    /// Makes a group the foreground group of a terminal. A caller in the background receives
    /// SIGTTOU, unless it blocks or ignores the signal.
    ///
    /// # Errors
    /// 1. `ENOTTY` if the descriptor is not a terminal or not the caller's controlling terminal, or
    ///    the caller is in an orphaned background group.
    /// 2. `EPERM` if the group is in another session. POSIX also requires an error for the number
    ///    of a process of the same session that leads no group; Linux accepts the number, and so do
    ///    both backends.
    /// 3. `EINVAL` if the number is negative.
    /// 4. `ESRCH` if there is no such group.
    fn tcsetpgrp(&self, terminal: Fd, group: Pid) -> Result<()>;
    /// Returns the session of a terminal.
    ///
    /// # Errors
    /// `ENOTTY` if the descriptor is not a terminal.
    fn tcgetsid(&self, terminal: Fd) -> Result<Pid>;
    /// Returns the attributes of a terminal.
    ///
    /// # Errors
    /// `ENOTTY` if the descriptor is not a terminal.
    fn tcgetattr(&self, terminal: Fd) -> Result<Termios>;
    /// Changes the attributes of a terminal. A caller in the background receives SIGTTOU, as with
    /// [`Sys::tcsetpgrp`].
    ///
    /// # Errors
    /// 1. `ENOTTY` if the descriptor is not a terminal.
    /// 2. `EIO` if the caller is in an orphaned background group, or the terminal has hung up.
    fn tcsetattr(&self, terminal: Fd, termios: &Termios) -> Result<()>;

    // Descriptors

    /// Creates a pipe. Returns the read end and the write end. Exec closes these and all other new
    /// descriptors, except for copies that [`Sys::dup2`] or a [`SpawnRequest`] makes.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE` if the process or the system has too many open files.
    fn pipe(&self) -> Result<(Fd, Fd)>;
    /// Reads the available bytes; waits for at least one byte. Returns 0 at end-of-file.
    ///
    /// # Errors
    /// 1. `EBADF` if the descriptor is not open for reading; `EINTR` if a handler interrupted the
    ///    call.
    /// 2. `EIO` if the descriptor is a terminal that has hung up, or if the caller reads its
    ///    controlling terminal from the background and is in an orphaned group or blocks or ignores
    ///    SIGTTIN.
    fn read(&self, descriptor: Fd, buffer: &mut [u8]) -> Result<usize>;
    /// Writes bytes. Blocks while there is no free space. Returns the number of bytes written.
    ///
    /// # Errors
    /// 1. `EBADF` if the descriptor is not open for writing; `EINTR` if a handler interrupted the
    ///    call.
    /// 2. `EPIPE`, with SIGPIPE, if the pipe has no reader.
    /// 3. `EIO` if the terminal has hung up, or has `TOSTOP` and the caller is in an orphaned
    ///    background group.
    fn write(&self, descriptor: Fd, bytes: &[u8]) -> Result<usize>;
    /// Closes a descriptor.
    ///
    /// # Errors
    /// `EBADF` if the descriptor is not open.
    fn close(&self, descriptor: Fd) -> Result<()>;
    /// Makes `to` a copy of `from`, and closes the file to which `to` referred.
    ///
    /// # Errors
    /// `EBADF` if `from` is not open, or `to` is negative or not below the descriptor limit.
    fn dup2(&self, from: Fd, to: Fd) -> Result<()>;

    // Threads

    /// Creates a thread that runs `body`. See [`thread`](trait.Sys.html#method.thread), which boxes
    /// the closure.
    ///
    /// # Errors
    /// `EAGAIN` if the user or the system has too many threads.
    fn thread_boxed(&self, body: ThreadBody) -> Result<Tid>;
    /// Waits until a thread of this process has ended. Each thread can be joined only once.
    ///
    /// # Errors
    /// 1. `ESRCH` if the process has no such thread or it was joined before; on `Linux` also for
    ///    the first thread of the process.
    /// 2. `EDEADLK` if the thread is the caller.
    /// 3. `EINVAL` if another thread is already joining it.
    fn join(&self, thread: Tid) -> Result<()>;
    /// Yields the processor to other threads.
    fn sched_yield(&self);
    /// Gives signals an opportunity to interrupt, stop or terminate a program that computes without
    /// making other calls.
    fn poll(&self);
    /// Uses the processor for this long, during which signals may interrupt, stop or terminate the
    /// program. The modelled executor advances its clock; the others poll until the time has passed
    /// on the system's clock.
    fn compute(&self, duration: Duration) {
        compute_by_polls(self, duration);
    }
    /// Sets the processor for the threads and processes that this process creates from now on;
    /// `None` permits any processor.
    ///
    /// # Errors
    /// `EINVAL` if there is no such processor.
    fn place(&self, processor: Option<usize>) -> Result<()>;
    /// Returns the processor on which the caller runs.
    fn processor(&self) -> usize;
    /// Returns the time of the monotonic clock.
    fn now(&self) -> Duration;

    // Users, limits, priorities

    /// Returns the real user.
    fn getuid(&self) -> u32;
    /// Returns the effective user.
    fn geteuid(&self) -> u32;
    /// Sets the real and the effective user, as setuid(2) does.
    ///
    /// # Errors
    /// 1. `EPERM` if the caller may not become this user.
    /// 2. `EINVAL` if `uid` is `u32::MAX`, which is not a user.
    fn setuid(&self, uid: u32) -> Result<()>;
    /// Returns a limit of the caller's process.
    fn getrlimit(&self, resource: Resource) -> Rlimit;
    /// Changes a limit of the caller's process.
    ///
    /// # Errors
    /// 1. `EINVAL` if the soft limit exceeds the hard limit.
    /// 2. `EPERM` if the caller may not raise the hard limit, or if the descriptor limit exceeds
    ///    the system's limit for a process.
    fn setrlimit(&self, resource: Resource, limit: Rlimit) -> Result<()>;
    /// Returns the lowest nice value (the highest priority) of these processes.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process.
    fn getpriority(&self, whose: PriorityScope) -> Result<i32>;
    /// Sets the nice value of these processes, clamped to −20 to 19.
    ///
    /// # Errors
    /// 1. `ESRCH` if there is no such process.
    /// 2. `EPERM` if a process belongs to another user.
    /// 3. `EACCES` if the value is lowered without privilege.
    fn setpriority(&self, whose: PriorityScope, nice: i32) -> Result<()>;
    /// Returns the processor time that the process has used.
    fn getrusage(&self) -> Usage;
    /// Makes the caller a subreaper, to which orphaned descendants are reparented
    /// (`PR_SET_CHILD_SUBREAPER`), or an ordinary process again.
    ///
    /// # Errors
    /// Neither backend returns an error; another implementation may.
    fn set_subreaper(&self, on: bool) -> Result<()>;
    /// Starts to profile the calling thread: each clock tick adds one to `counts[mark]`, where
    /// `mark` is the value that the thread last passed to [`Sys::mark`]. `None` ends the profile.
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
    /// 1. `ESRCH` if no such process exists, or if the request requires a stopped tracee of the
    ///    calling thread and the process is not such a tracee.
    /// 2. `EPERM` if the process is traced already or belongs to another user.
    fn ptrace(&self, request: Ptrace) -> Result<()>;

    // 4.3BSD

    /// Returns the action for a signal; with `Some`, also replaces it, as 4.3BSD does: like
    /// [`Sys::sigaction`], but interrupted calls always restart.
    ///
    /// # Errors
    /// Like [`Sys::sigaction`].
    fn sigvec(&self, signal: Signal, vector: Option<SigVec>) -> Result<SigVec>;
    /// Returns the alternate signal stack; with `Some`, also replaces it, as 4.3BSD does.
    ///
    /// # Errors
    /// 1. `EPERM` if a handler runs on the alternate stack.
    /// 2. `ENOMEM` if the size is below 2048 bytes, or exceeds the available memory.
    fn sigstack(&self, stack: Option<SigStack>) -> Result<SigStack>;
    /// Blocks the signals 1 to 32 whose bits are set. Returns the previous mask of these 32
    /// signals.
    fn sigblock(&self, mask: u32) -> u32 {
        let set = SigSet::from_bits(mask.into());
        self.sigprocmask(Some((SigmaskHow::Block, set))).map_or(0, |old| old.bits() as u32)
    }
    /// Replaces the mask of the signals 1 to 32 and leaves the others unchanged. Returns the
    /// previous mask of these 32 signals.
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

    // Calls composed of other calls

    /// Sends a signal to a process group.
    ///
    /// # Errors
    /// 1. The errors of [`Sys::kill`].
    /// 2. `EINVAL` if the group's number is negative.
    fn killpg(&self, group: Pid, signal: Option<Signal>) -> Result<()> {
        match group.number() {
            ..0 => Err(Errno::EINVAL),
            0 => self.kill(SignalTarget::OwnGroup, signal),
            _ => self.kill(SignalTarget::Group(group), signal),
        }
    }
    /// Sends a signal to the calling thread.
    ///
    /// # Errors
    /// The errors of [`Sys::tgkill`].
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
    /// The errors of [`Sys::waitid`].
    fn wait(&self) -> Result<WaitedChild> {
        self.waitpid(Children::Any, WaitOptions::empty()).map(|found| found.expect("it slept"))
    }
    /// Waits until a child terminates, or changes state in another way that `options` names.
    ///
    /// # Errors
    /// 1. The errors of [`Sys::waitid`].
    /// 2. `EINVAL` if `options` contain [`WaitOptions::NOWAIT`].
    /// 3. `ESRCH` if `children` is the group with the lowest number, `i32::MIN`, which cannot
    ///    exist.
    fn waitpid(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
        if !WaitOptions::all().difference(WaitOptions::NOWAIT).contains(options) {
            return Err(Errno::EINVAL);
        }
        if children == Children::of(i32::MIN) {
            return Err(Errno::ESRCH);
        }
        self.waitid(children, options.union(WaitOptions::EXITED))
    }
    /// Waits for any child, as 4.3BSD's `wait3` does.
    ///
    /// # Errors
    /// The errors of [`Sys::waitpid`].
    fn wait3(&self, options: WaitOptions) -> Result<Option<WaitedChild>> {
        self.waitpid(Children::Any, options)
    }
    /// Waits for the given children, as 4.3BSD's `wait4` does.
    ///
    /// # Errors
    /// The errors of [`Sys::waitpid`].
    fn wait4(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
        self.waitpid(children, options)
    }
    /// Takes one of these signals without running a handler. Restarts when a handler interrupts the
    /// wait.
    ///
    /// # Errors
    /// The errors of [`Sys::sigtimedwait`], but never `EINTR`.
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
    /// The errors of [`Sys::fork_boxed`].
    pub fn fork(&self, child: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Result<Pid> {
        self.fork_boxed(Box::new(child))
    }

    /// Creates a thread that runs `body`.
    ///
    /// # Errors
    /// The errors of [`Sys::thread_boxed`].
    pub fn thread(&self, body: impl FnOnce(&dyn Sys) + Send + 'static) -> Result<Tid> {
        self.thread_boxed(Box::new(body))
    }
}

/// Implements [`Sys::compute`] by repeated calls of [`Sys::poll`].
pub fn compute_by_polls<S: Sys + ?Sized>(sys: &S, duration: Duration) {
    let end = sys.now().saturating_add(duration);
    while sys.now() < end {
        sys.poll();
    }
}
