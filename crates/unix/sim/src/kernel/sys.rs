//! The system calls of the virtual Unix (§2.1): [`Sys`] for [`Caller`]. Each method records its
//! name, so that a sleeping thread can be inspected, and calls the method that implements it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use tontine_unix::internal::compute_by_polls;
use tontine_unix::{
    Children, Errno, Fd, Pid, PriorityScope, Program, Ptrace, Resource, Result, Rlimit, SigAction,
    SigInfo, SigSet, SigStack, SigVec, SigmaskHow, Signal, SignalTarget, SpawnRequest, Sys,
    Termios, ThreadBody, Tid, Usage, WaitOptions, WaitStatus, WaitedChild,
};

use super::call::Caller;
use crate::executor;

/// Implements calls, each with the name that is recorded, and the method of [`Caller`] that
/// implements it.
macro_rules! recorded {
    ($($name:literal $call:ident($($argument:ident: $Type:ty),*) -> $Result:ty = $method:ident;)*)
        => {$(
            fn $call(&self, $($argument: $Type),*) -> $Result {
                self.thread.calls(&$name);
                self.$method($($argument),*)
            }
        )*};
}

impl Sys for Caller<'_> {
    fn lacks(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn getpid(&self) -> Pid {
        self.proc.pid()
    }

    fn getppid(&self) -> Pid {
        self.plain(Pid::number_only(0), || self.kernel.parent_of(self.proc))
    }

    fn gettid(&self) -> Tid {
        Tid(self.thread.tid())
    }

    recorded! {
        "fork" fork_boxed(child: Program) -> Result<Pid> = fork;
        "exec" exec(path: &str, arguments: &[&str]) -> Result<Infallible> = execute;
        "spawn" spawn(spawn: &SpawnRequest) -> Result<Pid> = spawn_process;
    }

    fn exit(&self, status: i32) -> ! {
        self.thread.calls(&"exit");
        self.leave_with(WaitStatus::Exited(status & 0xff))
    }

    recorded! {
        "wait" waitid(children: Children, options: WaitOptions) -> Result<Option<WaitedChild>>
            = wait_for;
        "kill" kill(target: SignalTarget, signal: Option<Signal>) -> Result<()> = send;
        "tgkill" tgkill(process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()>
            = send_to_thread;
        "sigqueue" sigqueue(process: Pid, signal: Option<Signal>, value: i32) -> Result<()>
            = send_value;
        "fault" fault(signal: Signal) -> Result<()> = raise_fault;
        "sigaction" sigaction(signal: Signal, action: Option<SigAction>) -> Result<SigAction> = act;
        "sigprocmask" sigprocmask(change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet> = mask;
        "sigpending" sigpending() -> SigSet = pending;
        "sigsuspend" sigsuspend(mask: SigSet) -> Errno = suspend;
        "pause" pause() -> Errno = wait_for_handler;
        "sigtimedwait" sigtimedwait(set: SigSet, timeout: Option<Duration>) -> Result<SigInfo>
            = accept;
        "alarm" alarm(seconds: u32) -> u32 = set_alarm;
        "nanosleep" nanosleep(duration: Duration) -> std::result::Result<(), (Errno, Duration)>
            = sleep_for;
        "getpgid" getpgid(process: Pid) -> Result<Pid> = group_of;
        "setpgid" setpgid(process: Pid, group: Pid) -> Result<()> = set_group;
        "getsid" getsid(process: Pid) -> Result<Pid> = session_of;
        "setsid" setsid() -> Result<Pid> = new_session;
        "openpty" openpty() -> Result<(Fd, Fd)> = open_pty;
        "open" open_tty() -> Result<Fd> = open_controlling;
        "ioctl" set_controlling(terminal: Fd) -> Result<()> = take_terminal;
        "tcgetpgrp" tcgetpgrp(terminal: Fd) -> Result<Pid> = foreground;
        "tcsetpgrp" tcsetpgrp(terminal: Fd, group: Pid) -> Result<()> = set_foreground;
        "tcgetsid" tcgetsid(terminal: Fd) -> Result<Pid> = terminal_session;
        "tcgetattr" tcgetattr(terminal: Fd) -> Result<Termios> = termios;
    }

    fn tcsetattr(&self, terminal: Fd, termios: &Termios) -> Result<()> {
        self.thread.calls(&"tcsetattr");
        self.set_termios(terminal, *termios)
    }

    recorded! {
        "pipe" pipe() -> Result<(Fd, Fd)> = make_pipe;
        "read" read(descriptor: Fd, buffer: &mut [u8]) -> Result<usize> = read_from;
        "write" write(descriptor: Fd, bytes: &[u8]) -> Result<usize> = write_to;
        "close" close(descriptor: Fd) -> Result<()> = close_one;
        "dup2" dup2(from: Fd, to: Fd) -> Result<()> = duplicate;
        "thread" thread_boxed(body: ThreadBody) -> Result<Tid> = make_thread;
        "join" join(thread: Tid) -> Result<()> = join_thread;
    }

    fn sched_yield(&self) {
        self.thread.calls(&"sched_yield");
        self.plain((), executor::yield_now);
    }

    fn poll(&self) {
        self.plain((), || {});
    }

    fn compute(&self, duration: Duration) {
        let mut left = duration;
        while !left.is_zero() {
            let piece = left.min(executor::STRETCH);
            if !executor::compute(piece) {
                return compute_by_polls(self, left);
            }
            left -= piece;
            self.look_up();
        }
    }

    fn place(&self, processor: Option<usize>) -> Result<()> {
        self.thread.calls(&"place");
        if processor.is_some_and(|processor| processor >= self.kernel.config.processors) {
            return Err(Errno::EINVAL);
        }
        self.guarded(|| {
            self.state().place = processor;
            Ok(())
        })
    }

    fn processor(&self) -> usize {
        executor::processor()
    }

    fn now(&self) -> Duration {
        self.kernel.executor.now()
    }

    fn getuid(&self) -> u32 {
        self.proc.ids().real
    }

    fn geteuid(&self) -> u32 {
        self.proc.ids().effective
    }

    recorded! {
        "setuid" setuid(uid: u32) -> Result<()> = set_user;
        "getrlimit" getrlimit(resource: Resource) -> Rlimit = limit;
        "setrlimit" setrlimit(resource: Resource, limit: Rlimit) -> Result<()> = set_limit;
        "getpriority" getpriority(whose: PriorityScope) -> Result<i32> = priority;
        "setpriority" setpriority(whose: PriorityScope, nice: i32) -> Result<()> = set_priority;
    }

    fn getrusage(&self) -> Usage {
        self.thread.calls(&"getrusage");
        self.plain(Usage::default(), || self.kernel.used(self.proc))
    }

    fn set_subreaper(&self, on: bool) -> Result<()> {
        self.thread.calls(&"prctl");
        self.guarded(|| {
            let _state = self.state();
            self.proc.set_subreaper(on);
            Ok(())
        })
    }

    fn profil(&self, counts: Option<Arc<[AtomicU32]>>) -> Result<()> {
        self.thread.calls(&"profil");
        self.guarded(|| {
            self.update_profile();
            self.profile.set(counts.clone());
            Ok(())
        })
    }

    fn mark(&self, mark: usize) {
        self.move_mark(mark);
    }

    recorded! {
        "ptrace" ptrace(request: Ptrace) -> Result<()> = trace;
        "sigvec" sigvec(signal: Signal, vector: Option<SigVec>) -> Result<SigVec> = vector;
        "sigstack" sigstack(stack: Option<SigStack>) -> Result<SigStack> = stack;
    }
}
