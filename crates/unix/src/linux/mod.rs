//! Real processes: [`Linux`].
//!
//! Children are held by pidfds in a table ([`table`]); they come in by [`fork`] and [`spawn`] and
//! leave by [`wait`]. Signals go out by [`send`] and arrive in [`handlers`] and [`masks`]. The rest
//! stands in files named after what they speak of; [`convert`] and [`info`] translate.
//!
//! Nothing here decides what a call means: that is the kernel's, and each returns the kernel's
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

/// The backend with real processes, for Linux 5.5 and later on x86-64; it builds for AArch64, and
/// is untested there.
///
/// All state belongs to the process: every `Linux` of a process is the same, and any thread may use
/// any of them.
///
/// - **Children** that [`Sys::fork_boxed`] and [`Sys::spawn`] make are held by pidfds. A handle of
///   one that was reaped is `ESRCH` (`ECHILD` to wait for), whoever has its number by now. A handle
///   as a *group* goes on to mean the group that the process led while that has members (Linux 6.9;
///   before, it is stale with the process). Calls for which the kernel wants a number, as
///   [`Sys::setpgid`], [`Sys::tgkill`] and [`Sys::ptrace`], look first whether the child has it
///   yet, as it does until it is waited for; only where SIGCHLD is ignored may it vanish, and the
///   number be another's, in between.
/// - [`Children::Any`] and groups find **children that were made here** only; those of
///   [`std::process::Command`] stay `Command`'s, unless [`Sys::set_subreaper`] is or was on, or the
///   process is number 1: then whoever comes is reaped. By bare number any child can be waited for.
///   If another thread takes the last child while one waits for any, and the program has children
///   of others, then the waiter learns of it when one of those changes.
/// - [`Sys::fork_boxed`] really forks: the child has the calling thread alone, the parent's memory
///   as it was, and other threads' locks as they were; in a program of many threads it should do
///   little. It ends with `_exit`, without flushing what is buffered; by SIGABRT if it panics.
/// - A child of this program **begins** with the dispositions that [`Sys::sigaction`] has set here,
///   and without those of Rust's runtime. The runtime ignores SIGPIPE, handles SIGSEGV and SIGBUS,
///   and gives each thread an alternate stack; in the child the three signals have their defaults,
///   and there is no alternate stack. A library's handler of SIGSEGV or SIGBUS goes too; its other
///   handlers stay, and so do other ignored signals, as nohup(1) requires. SIGPIPE also has its
///   default in programs that [`Sys::spawn`] and [`Sys::exec`] start, as with
///   [`std::process::Command`]. To ignore it there, call [`Sys::sigaction`]. The calling process
///   itself is not changed: a program that you run on a `Linux` without a fork finds SIGPIPE
///   ignored. Children of a child inherit everything, as fork(2) specifies.
/// - [`Sys::spawn`] copies nothing. Its path is one; `PATH` is not searched. An ignored signal
///   stays ignored unless it is among the defaults.
/// - **Descriptors** made here are closed by exec; [`Sys::dup2`] and [`SpawnRequest::descriptors`]
///   pass them on.
/// - [`Sys::sigaction`] installs real handlers: see [`Handler`](crate::Handler) for what they may
///   do. Those calls that allocate are not among it: to make or reap a child or a thread, to wait
///   for any or a group, to install a handler or a stack. A handler never finds a lock of this type
///   held by the thread that it interrupts.
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
    /// `ENOSYS`: the kernel has no pidfds, or no clone3 (older than 5.5, or forbidden by a filter).
    pub fn new() -> Result<Self> {
        use rustix::process::{PidfdFlags, getpid, pidfd_open};
        pidfd_open(getpid(), PidfdFlags::empty()).map_err(to_errno)?;
        spawn::probe()?;
        Ok(Self(()))
    }

    /// The same for a process that has no children but its own, those from before it executed its
    /// program among them, where no number is given out again soon: it waits in one call, as any
    /// program would, and so do the processes that it forks. Dispositions are taken to be the
    /// program's own. The caller has asked the kernel before.
    #[doc(hidden)]
    pub fn alone() -> Self {
        wait::take_at_once();
        handlers::mark_as_program();
        Self(())
    }
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

    fn gettid(&self) -> Tid {
        threads::current()
    }

    fn fork_boxed(&self, child: Program) -> Result<Pid> {
        fork::fork(child)
    }

    fn exec(&self, path: &str, arguments: &[&str]) -> Result<Infallible> {
        fork::exec(path, arguments)
    }

    fn spawn(&self, spawn: &SpawnRequest) -> Result<Pid> {
        spawn::spawn(spawn)
    }

    fn exit(&self, status: i32) -> ! {
        fork::exit(status)
    }

    fn waitid(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
        wait::wait(children, options)
    }

    fn kill(&self, target: SignalTarget, signal: Option<Signal>) -> Result<()> {
        send::kill(target, signal)
    }

    fn tgkill(&self, process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()> {
        send::tgkill(process, thread, signal)
    }

    fn sigqueue(&self, process: Pid, signal: Option<Signal>, value: i32) -> Result<()> {
        send::queue(process, signal, value)
    }

    fn fault(&self, signal: Signal) -> Result<()> {
        send::fault(signal)
    }

    fn sigaction(&self, signal: Signal, action: Option<SigAction>) -> Result<SigAction> {
        handlers::action(signal, action)
    }

    fn sigprocmask(&self, change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet> {
        masks::change(change)
    }

    fn sigpending(&self) -> SigSet {
        masks::pending()
    }

    fn sigsuspend(&self, mask: SigSet) -> Errno {
        masks::suspend(mask)
    }

    fn pause(&self) -> Errno {
        masks::pause()
    }

    fn sigtimedwait(&self, set: SigSet, timeout: Option<Duration>) -> Result<SigInfo> {
        masks::timed_wait(set, timeout)
    }

    fn alarm(&self, seconds: u32) -> u32 {
        masks::alarm(seconds)
    }

    fn nanosleep(&self, duration: Duration) -> std::result::Result<(), (Errno, Duration)> {
        masks::sleep(duration)
    }

    fn getpgid(&self, process: Pid) -> Result<Pid> {
        groups::group(process)
    }

    fn setpgid(&self, process: Pid, group: Pid) -> Result<()> {
        groups::set_group(process, group)
    }

    fn getsid(&self, process: Pid) -> Result<Pid> {
        groups::session(process)
    }

    fn setsid(&self) -> Result<Pid> {
        groups::set_session()
    }

    fn openpty(&self) -> Result<(Fd, Fd)> {
        terminal::open_pair()
    }

    fn open_tty(&self) -> Result<Fd> {
        terminal::open_own()
    }

    fn set_controlling(&self, terminal: Fd) -> Result<()> {
        terminal::set_controlling(terminal)
    }

    fn tcgetpgrp(&self, terminal: Fd) -> Result<Pid> {
        terminal::foreground(terminal)
    }

    fn tcsetpgrp(&self, terminal: Fd, group: Pid) -> Result<()> {
        terminal::set_foreground(terminal, group)
    }

    fn tcgetsid(&self, terminal: Fd) -> Result<Pid> {
        terminal::session(terminal)
    }

    fn tcgetattr(&self, terminal: Fd) -> Result<Termios> {
        terminal::attributes(terminal)
    }

    fn tcsetattr(&self, terminal: Fd, termios: &Termios) -> Result<()> {
        terminal::set_attributes(terminal, termios)
    }

    fn pipe(&self) -> Result<(Fd, Fd)> {
        descriptors::pipe()
    }

    fn read(&self, descriptor: Fd, buffer: &mut [u8]) -> Result<usize> {
        descriptors::read(descriptor, buffer)
    }

    fn write(&self, descriptor: Fd, bytes: &[u8]) -> Result<usize> {
        descriptors::write(descriptor, bytes)
    }

    fn close(&self, descriptor: Fd) -> Result<()> {
        descriptors::close(descriptor)
    }

    fn dup2(&self, from: Fd, to: Fd) -> Result<()> {
        descriptors::duplicate(from, to)
    }

    fn thread_boxed(&self, body: ThreadBody) -> Result<Tid> {
        threads::start(body)
    }

    fn join(&self, thread: Tid) -> Result<()> {
        threads::join(thread)
    }

    fn sched_yield(&self) {
        rustix::thread::sched_yield();
    }

    /// Nothing: the kernel interrupts, stops and ends a program anywhere.
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

    fn setuid(&self, uid: u32) -> Result<()> {
        limits::set_user(uid)
    }

    fn getrlimit(&self, resource: Resource) -> Rlimit {
        limits::limit(resource)
    }

    fn setrlimit(&self, resource: Resource, limit: Rlimit) -> Result<()> {
        limits::set_limit(resource, limit)
    }

    fn getpriority(&self, whose: PriorityScope) -> Result<i32> {
        limits::priority(whose)
    }

    fn setpriority(&self, whose: PriorityScope, nice: i32) -> Result<()> {
        limits::set_priority(whose, nice)
    }

    fn getrusage(&self) -> Usage {
        limits::usage()
    }

    fn set_subreaper(&self, on: bool) -> Result<()> {
        limits::set_subreaper(on)
    }

    fn profil(&self, _counts: Option<Arc<[AtomicU32]>>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Nothing: there is no [`Sys::profil`].
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
