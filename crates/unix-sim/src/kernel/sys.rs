//! The system calls of the virtual Unix (§2.1): [`Sys`] for [`Caller`]. Each method records its
//! name, so that a sleeping thread can be inspected, and calls the method that implements it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tontine_unix::internal::compute_by_polls;
use tontine_unix::{
    Children, Errno, Fd, Pid, PriorityScope, Program, Ptrace, Resource, Result, Rlimit, SigAction,
    SigInfo, SigSet, SigStack, SigVec, SigmaskHow, Signal, SignalTarget, SpawnRequest, Sys,
    Termios, ThreadBody, Tid, Usage, WaitOptions, WaitStatus, WaitedChild,
};

use super::call::Caller;
use crate::executor::{self, Object};

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

    fn fork_boxed(&self, child: Program) -> Result<Pid> {
        self.thread.calls(&"fork");
        self.fork(child)
    }

    fn exec(&self, path: &str, arguments: &[&str]) -> Result<Infallible> {
        self.thread.calls(&"exec");
        self.execute(path, arguments)
    }

    fn spawn(&self, spawn: &SpawnRequest) -> Result<Pid> {
        self.thread.calls(&"spawn");
        self.spawn_process(spawn)
    }

    fn exit(&self, status: i32) -> ! {
        self.thread.calls(&"exit");
        self.leave_with(WaitStatus::Exited(status & 0xff))
    }

    fn waitid(&self, children: Children, options: WaitOptions) -> Result<Option<WaitedChild>> {
        self.thread.calls(&"wait");
        self.wait_for(children, options)
    }

    fn kill(&self, target: SignalTarget, signal: Option<Signal>) -> Result<()> {
        self.thread.calls(&"kill");
        self.send(target, signal)
    }

    fn tgkill(&self, process: Pid, thread: Tid, signal: Option<Signal>) -> Result<()> {
        self.thread.calls(&"tgkill");
        self.send_to_thread(process, thread, signal)
    }

    fn sigqueue(&self, process: Pid, signal: Option<Signal>, value: i32) -> Result<()> {
        self.thread.calls(&"sigqueue");
        self.send_value(process, signal, value)
    }

    fn fault(&self, signal: Signal) -> Result<()> {
        self.thread.calls(&"fault");
        self.raise_fault(signal)
    }

    fn sigaction(&self, signal: Signal, action: Option<SigAction>) -> Result<SigAction> {
        self.thread.calls(&"sigaction");
        self.act(signal, action)
    }

    fn sigprocmask(&self, change: Option<(SigmaskHow, SigSet)>) -> Result<SigSet> {
        self.thread.calls(&"sigprocmask");
        self.mask(change)
    }

    fn sigpending(&self) -> SigSet {
        self.thread.calls(&"sigpending");
        self.pending()
    }

    fn sigsuspend(&self, mask: SigSet) -> Errno {
        self.thread.calls(&"sigsuspend");
        self.suspend(mask)
    }

    fn pause(&self) -> Errno {
        self.thread.calls(&"pause");
        self.wait_for_handler()
    }

    fn sigtimedwait(&self, set: SigSet, timeout: Option<Duration>) -> Result<SigInfo> {
        self.thread.calls(&"sigtimedwait");
        self.accept(set, timeout)
    }

    fn alarm(&self, seconds: u32) -> u32 {
        self.thread.calls(&"alarm");
        self.set_alarm(seconds)
    }

    fn nanosleep(&self, duration: Duration) -> std::result::Result<(), (Errno, Duration)> {
        self.thread.calls(&"nanosleep");
        self.sleep_for(duration)
    }

    fn getpgid(&self, process: Pid) -> Result<Pid> {
        self.thread.calls(&"getpgid");
        self.group_of(process)
    }

    fn setpgid(&self, process: Pid, group: Pid) -> Result<()> {
        self.thread.calls(&"setpgid");
        self.set_group(process, group)
    }

    fn getsid(&self, process: Pid) -> Result<Pid> {
        self.thread.calls(&"getsid");
        self.session_of(process)
    }

    fn setsid(&self) -> Result<Pid> {
        self.thread.calls(&"setsid");
        self.new_session()
    }

    fn openpty(&self) -> Result<(Fd, Fd)> {
        self.thread.calls(&"openpty");
        self.open_pty()
    }

    fn open_tty(&self) -> Result<Fd> {
        self.thread.calls(&"open");
        self.open_controlling()
    }

    fn set_controlling(&self, terminal: Fd) -> Result<()> {
        self.thread.calls(&"ioctl");
        self.take_terminal(terminal)
    }

    fn tcgetpgrp(&self, terminal: Fd) -> Result<Pid> {
        self.thread.calls(&"tcgetpgrp");
        self.foreground(terminal)
    }

    fn tcsetpgrp(&self, terminal: Fd, group: Pid) -> Result<()> {
        self.thread.calls(&"tcsetpgrp");
        self.set_foreground(terminal, group)
    }

    fn tcgetsid(&self, terminal: Fd) -> Result<Pid> {
        self.thread.calls(&"tcgetsid");
        self.terminal_session(terminal)
    }

    fn tcgetattr(&self, terminal: Fd) -> Result<Termios> {
        self.thread.calls(&"tcgetattr");
        self.termios(terminal)
    }

    fn tcsetattr(&self, terminal: Fd, termios: &Termios) -> Result<()> {
        self.thread.calls(&"tcsetattr");
        self.set_termios(terminal, *termios)
    }

    fn pipe(&self) -> Result<(Fd, Fd)> {
        self.thread.calls(&"pipe");
        self.make_pipe()
    }

    fn read(&self, descriptor: Fd, buffer: &mut [u8]) -> Result<usize> {
        self.thread.calls(&"read");
        self.read_from(descriptor, buffer)
    }

    fn write(&self, descriptor: Fd, bytes: &[u8]) -> Result<usize> {
        self.thread.calls(&"write");
        self.write_to(descriptor, bytes)
    }

    fn close(&self, descriptor: Fd) -> Result<()> {
        self.thread.calls(&"close");
        self.close_one(descriptor)
    }

    fn dup2(&self, from: Fd, to: Fd) -> Result<()> {
        self.thread.calls(&"dup2");
        self.duplicate(from, to)
    }

    fn thread_boxed(&self, body: ThreadBody) -> Result<Tid> {
        self.thread.calls(&"thread");
        self.make_thread(body)
    }

    fn join(&self, thread: Tid) -> Result<()> {
        self.thread.calls(&"join");
        self.join_thread(thread)
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

    fn setuid(&self, uid: u32) -> Result<()> {
        self.thread.calls(&"setuid");
        self.set_user(uid)
    }

    fn getrlimit(&self, resource: Resource) -> Rlimit {
        self.thread.calls(&"getrlimit");
        self.limit(resource)
    }

    fn setrlimit(&self, resource: Resource, limit: Rlimit) -> Result<()> {
        self.thread.calls(&"setrlimit");
        self.set_limit(resource, limit)
    }

    fn getpriority(&self, whose: PriorityScope) -> Result<i32> {
        self.thread.calls(&"getpriority");
        self.priority(whose)
    }

    fn setpriority(&self, whose: PriorityScope, nice: i32) -> Result<()> {
        self.thread.calls(&"setpriority");
        self.set_priority(whose, nice)
    }

    fn getrusage(&self) -> Usage {
        self.thread.calls(&"getrusage");
        self.plain(Usage::default(), || self.kernel.used(self.proc))
    }

    fn set_subreaper(&self, on: bool) -> Result<()> {
        self.thread.calls(&"prctl");
        self.guarded(|| {
            let _state = self.state();
            executor::changes(Object::Process(self.proc.slot));
            self.proc.subreaper.store(on, Ordering::Relaxed);
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

    fn ptrace(&self, request: Ptrace) -> Result<()> {
        self.thread.calls(&"ptrace");
        self.trace(request)
    }

    fn sigvec(&self, signal: Signal, vector: Option<SigVec>) -> Result<SigVec> {
        self.thread.calls(&"sigvec");
        self.vector(signal, vector)
    }

    fn sigstack(&self, stack: Option<SigStack>) -> Result<SigStack> {
        self.thread.calls(&"sigstack");
        self.stack(stack)
    }
}
