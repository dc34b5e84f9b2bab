//! The backend with real processes: [`Linux`].
//!
//! [`table`] holds this process's children by pidfds. [`fork`] and [`spawn`] insert children, and
//! [`wait`] removes them. [`send`] sends signals; [`handlers`] and [`masks`] receive them.
//! [`convert`] and [`info`] convert between the kernel's types and the crate's. The other modules
//! are named after the calls that they make.
//!
//! The kernel, and no module, defines the meaning of a call, and each call returns the kernel's
//! errno.

mod convert;
mod descriptors;
mod foreign;
mod fork;
mod groups;
mod handlers;
mod info;
mod kill;
mod limits;
mod masks;
mod place;
mod send;
mod spawn;
mod stack;
mod table;
mod terminal;
mod threads;
mod tracing;
mod wait;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::time::ClockId;

use crate::errno::{Errno, Result};
use crate::limit::{Resource, Rlimit};
use crate::process::{Pid, PriorityScope, SigStack, SignalTarget, SpawnRequest, Tid};
use crate::ptrace::Ptrace;
use crate::signal::{SigSet, Signal};
use crate::sys::{ActionFlags, Program, SigAction, SigInfo, SigVec, SigmaskHow, Sys, ThreadBody};
use crate::terminal::{Fd, Termios};
use crate::wait::{Children, Usage, WaitOptions, WaitedChild};
use convert::to_errno;

/// The backend with real processes, for Linux 5.5 and later on x86-64. It compiles for AArch64 but
/// is untested there.
///
/// All state belongs to the process: all `Linux` values of a process are equivalent, and any thread
/// may use any of them.
///
/// - **Children** that [`Sys::fork_boxed`] and [`Sys::spawn`] create are held by pidfds. A call
///   with the handle of a reaped child returns `ESRCH` (`ECHILD` if the call waits), even if
///   another process now has the number. As a *group*, a handle denotes the group that the child
///   led, as long as the group has members (since Linux 6.9; on earlier kernels the handle becomes
///   stale with the process). For calls that need a number, such as [`Sys::setpgid`],
///   [`Sys::tgkill`] and [`Sys::ptrace`], the backend first checks that the child still has its
///   number. A child keeps its number until it is waited for. Only if SIGCHLD is ignored may the
///   child vanish between the check and the call, and another process receive the number.
/// - [`Children::Any`] and groups match only **children that this backend created**. Children of
///   [`std::process::Command`] are left to `Command`. If [`Sys::set_subreaper`] is or was on, or
///   the process has number 1, a wait reaps any child. Any child can be waited for by its bare
///   number. If one thread waits for any child, another thread reaps the backend's last child, and
///   the program has children that the backend did not create, then the waiter returns when one of
///   these changes state.
/// - [`Sys::fork_boxed`] calls fork(2): the child has only the calling thread and a copy of the
///   parent's memory, in which locks that other threads held stay locked. In a multithreaded
///   program the child should do little. It exits with `_exit`, without flushing buffers; if it
///   panics, SIGABRT terminates it.
/// - A child of this program **starts** with the dispositions that [`Sys::sigaction`] has set here,
///   and without the dispositions of Rust's runtime. The runtime ignores SIGPIPE, handles SIGSEGV
///   and SIGBUS, and gives each thread an alternate stack; in the child the three signals have
///   their default actions, and no alternate stack is set. A library's handler of SIGSEGV or SIGBUS
///   is removed too; its other handlers stay, and so do other ignored signals, as nohup(1)
///   requires. SIGPIPE also has its default action in programs that [`Sys::spawn`] and
///   [`Sys::exec`] start, as with [`std::process::Command`]. To ignore SIGPIPE in such a program,
///   call [`Sys::sigaction`]. The calling process itself is not changed: in a program that you run
///   on a `Linux` without a fork, SIGPIPE is ignored. Children of a child inherit everything, as
///   fork(2) specifies.
/// - [`Sys::spawn`] copies no memory. Its path is used as it is; `PATH` is not searched. An ignored
///   signal stays ignored unless it is among the defaults.
/// - **Descriptors** that the backend creates are closed by exec; [`Sys::dup2`] and
///   [`SpawnRequest::descriptors`] pass them on.
/// - [`Sys::sigaction`] installs real handlers: see [`Handler`](crate::Handler) for what they may
///   do. Handlers may not make calls that allocate: calls that create or reap a child or a thread,
///   wait for any child or a group, or install a handler or a stack. The thread that a handler
///   interrupts never holds a lock of this type.
///
/// ```
/// use tontine_unix::{Linux, WaitStatus, Sys};
///
/// let linux = Linux::new()?;
/// let sys: &dyn Sys = &linux;
/// let child = sys.fork(|_| 7)?;
/// let waited = sys.waitpid(child.into(), Default::default())?;
/// assert_eq!(waited.map(|waited| waited.status), Some(WaitStatus::Exited(7)));
/// # Ok::<(), tontine_unix::Errno>(())
/// ```
#[derive(Debug, Clone)]
pub struct Linux(());

impl Linux {
    /// Creates the backend, after a check that the kernel supports it.
    ///
    /// # Errors
    /// `ENOSYS` if the kernel has no pidfds or no clone3, because it is older than 5.5 or a filter
    /// forbids them.
    pub fn new() -> Result<Self> {
        use rustix::process::{PidfdFlags, getpid, pidfd_open};
        pidfd_open(getpid(), PidfdFlags::empty()).map_err(to_errno)?;
        spawn::probe()?;
        Ok(Self(()))
    }

    /// Creates the backend for a process whose children are all the backend's, including children
    /// from before the process called exec, in a system that does not soon reuse a process number.
    /// Such a process, and the processes that it forks, wait in one call, as any program would. All
    /// dispositions count as set by the program. The caller must have checked that the kernel
    /// supports the backend.
    #[doc(hidden)]
    pub fn alone() -> Self {
        wait::take_at_once();
        handlers::mark_as_program();
        Self(())
    }
}

/// Implements calls, each with the function that implements it.
macro_rules! delegated {
    ($($call:ident($($argument:ident: $Type:ty),*) -> $Result:ty
        = $module:ident::$function:ident;)*) => {$(
            fn $call(&self, $($argument: $Type),*) -> $Result {
                $module::$function($($argument),*)
            }
        )*};
}

impl Sys for Linux {
    fn lacks(&self) -> &'static [(&'static str, &'static str)] {
        &[(
            "profil",
            "Linux has no such call, and a tick cannot ask where another thread's program is",
        )]
    }

    fn getpid(&self) -> Pid {
        Pid::number_only(rustix::process::getpid().as_raw_nonzero().get())
    }

    fn getppid(&self) -> Pid {
        Pid::number_only(rustix::process::Pid::as_raw(rustix::process::getppid()))
    }

    delegated! {
        gettid() -> Tid = threads::current;
        fork_boxed(child: Program) -> Result<Pid> = fork::fork;
        exec(path: &str, arguments: &[&str]) -> Result<Infallible> = fork::exec;
        spawn(spawn: &SpawnRequest) -> Result<Pid> = spawn::spawn;
    }

    fn exit(&self, status: i32) -> ! {
        fork::exit(status)
    }

    delegated! {
        waitid(children: Children, options: WaitOptions) -> Result<Option<WaitedChild>>
            = wait::wait;
        kill(target: SignalTarget, signal: Option<Signal>) -> Result<()> = send::kill;
        tgkill(process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()> = send::tgkill;
        sigqueue(process: Pid, signal: Option<Signal>, value: i32) -> Result<()> = send::queue;
        fault(signal: Signal) -> Result<()> = send::fault;
        sigaction(signal: Signal, action: Option<SigAction>) -> Result<SigAction>
            = handlers::action;
        sigprocmask(change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet> = masks::change;
        sigpending() -> SigSet = masks::pending;
        sigsuspend(mask: SigSet) -> Errno = masks::suspend;
        pause() -> Errno = masks::pause;
        sigtimedwait(set: SigSet, timeout: Option<Duration>) -> Result<SigInfo> = masks::timed_wait;
        alarm(seconds: u32) -> u32 = masks::alarm;
        nanosleep(duration: Duration) -> std::result::Result<(), (Errno, Duration)> = masks::sleep;
        getpgid(process: Pid) -> Result<Pid> = groups::group;
        setpgid(process: Pid, group: Pid) -> Result<()> = groups::set_group;
        getsid(process: Pid) -> Result<Pid> = groups::session;
        setsid() -> Result<Pid> = groups::set_session;
        openpty() -> Result<(Fd, Fd)> = terminal::open_pair;
        open_tty() -> Result<Fd> = terminal::open_own;
        set_controlling(terminal: Fd) -> Result<()> = terminal::set_controlling;
        tcgetpgrp(terminal: Fd) -> Result<Pid> = terminal::foreground;
        tcsetpgrp(terminal: Fd, group: Pid) -> Result<()> = terminal::set_foreground;
        tcgetsid(terminal: Fd) -> Result<Pid> = terminal::session;
        tcgetattr(terminal: Fd) -> Result<Termios> = terminal::attributes;
        tcsetattr(terminal: Fd, termios: &Termios) -> Result<()> = terminal::set_attributes;
        pipe() -> Result<(Fd, Fd)> = descriptors::pipe;
        read(descriptor: Fd, buffer: &mut [u8]) -> Result<usize> = descriptors::read;
        write(descriptor: Fd, bytes: &[u8]) -> Result<usize> = descriptors::write;
        close(descriptor: Fd) -> Result<()> = descriptors::close;
        dup2(from: Fd, to: Fd) -> Result<()> = descriptors::duplicate;
        thread_boxed(body: ThreadBody) -> Result<Tid> = threads::start;
        join(thread: Tid) -> Result<()> = threads::join;
    }

    fn sched_yield(&self) {
        rustix::thread::sched_yield();
    }

    /// Does nothing, because the kernel can interrupt, stop and terminate a program at any
    /// instruction.
    fn poll(&self) {}

    fn place(&self, processor: Option<usize>) -> Result<()> {
        let mut table = table::write();
        table.placement = table.placement.moved_to(processor)?;
        Ok(())
    }

    fn processor(&self) -> usize {
        rustix::thread::sched_getcpu()
    }

    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }

    fn getuid(&self) -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn geteuid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    delegated! {
        setuid(uid: u32) -> Result<()> = limits::set_user;
        getrlimit(resource: Resource) -> Rlimit = limits::limit;
        setrlimit(resource: Resource, limit: Rlimit) -> Result<()> = limits::set_limit;
        getpriority(whose: PriorityScope) -> Result<i32> = limits::priority;
        setpriority(whose: PriorityScope, nice: i32) -> Result<()> = limits::set_priority;
        getrusage() -> Usage = limits::usage;
        set_subreaper(on: bool) -> Result<()> = limits::set_subreaper;
    }

    fn profil(&self, _counts: Option<Arc<[AtomicU32]>>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Does nothing, because the backend has no [`Sys::profil`].
    fn mark(&self, _mark: usize) {}

    fn ptrace(&self, request: Ptrace) -> Result<()> {
        tracing::ptrace(request)
    }

    fn sigvec(&self, signal: Signal, vector: Option<SigVec>) -> Result<SigVec> {
        let known = ActionFlags::ONSTACK | ActionFlags::RESETHAND;
        let action = vector.map(|SigVec { action }| {
            let flags = action.flags.intersection(known).union(ActionFlags::RESTART);
            action.with_flags(flags)
        });
        let old = self.sigaction(signal, action)?;
        let flags = old.flags.intersection(known);
        Ok(SigVec { action: old.with_flags(flags) })
    }

    fn sigstack(&self, stack: Option<SigStack>) -> Result<SigStack> {
        stack::sigstack(stack)
    }
}
