//! `ptrace` (§3.2): the control of one process by another.
//!
//! Whenever a signal is delivered to a tracee, the tracee stops in the state *waiting*
//! (`sig_lock_to_wait`), so that none of its threads delivers another signal. Its tracer chooses
//! the signal with which the tracee continues (`sig_wait_to_lock`). The tracer does not become the
//! parent: it waits for its tracees in addition to its children. If a tracee has ended, first the
//! tracer waits for it, then the parent.
//!
//! As on Linux, one thread of the tracer does the tracing. Other threads can wait for its tracees
//! but cannot continue them. When the tracing thread ends, it releases its tracees.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{ActionFlags, Errno, Pid, Ptrace, Result, SigCode, SigInfo, Signal};

use super::Kernel;
use super::call::Caller;
use super::exit::{Notice, wake_waiters};
use super::family::WrittenRelations;
use super::generate::To;
use super::proc::{ChildEvent, Phase, Proc, ProcKey, ProcState, Resumed, ThreadEntry};
use super::siglock::SigWaiting;
use super::thread::{AstFlags, Thread};
use crate::executor;

impl Caller<'_> {
    pub(super) fn trace(&self, request: Ptrace) -> Result<()> {
        self.guarded(|| match request {
            Ptrace::TraceMe => self.let_parent_trace(),
            Ptrace::Attach(pid) => self.attach(pid),
            Ptrace::Continue(pid, signal) => self.resume_tracee(pid, signal, false),
            Ptrace::Kill(pid) => self.kill_tracee(pid),
            Ptrace::Detach(pid, signal) => self.resume_tracee(pid, signal, true),
        })
    }

    fn let_parent_trace(&self) -> Result<()> {
        let kernel = self.kernel;
        // The lock is held for writing. A parent that ends marks itself before it locks the
        // relations and checks which processes it traces. Therefore either the parent finds this
        // process there, or this process finds here that the parent is ending.
        let (_relations, parent) = kernel.write_parent(self.proc);
        let parent = parent.ok_or(Errno::EPERM)?;
        let (mut parents, mut state) = parent.lock_both(self.proc, &kernel.locks);
        if parents.phase != Phase::Live {
            return Ok(());
        }
        if state.tracer.is_some() {
            return Err(Errno::EPERM);
        }
        state.tracer = Some(parent.tenant());
        // The thread that created this process traces it, if that thread has not ended. Process 1
        // has no threads, so no thread can continue a tracee of process 1.
        let maker = parents.threads.iter().position(|one| one.thread.tid() == self.proc.maker());
        if let Some(by) = parents.threads.get_mut(maker.unwrap_or(0)) {
            by.traces = true;
            state.tracing = Some(Arc::clone(&by.thread));
        }
        Ok(())
    }

    fn attach(&self, pid: Pid) -> Result<()> {
        let kernel = self.kernel;
        let target = kernel.find(pid).ok_or(Errno::ESRCH)?;
        let mine = self.proc.ids();
        if target.slot == self.proc.slot {
            return Err(Errno::EPERM);
        }
        let stopped = {
            let mut state = target.state().ok_or(Errno::ESRCH)?;
            let theirs = [state.credentials.real, state.credentials.effective];
            let allowed = mine.effective == 0 || theirs == [mine.real; 2];
            if !allowed || state.tracer.is_some() || state.phase != Phase::Live {
                return Err(Errno::EPERM);
            }
            state.tracer = Some(self.proc.tenant());
            state.tracing = Some(Arc::clone(&self.thread));
            // A process that is already stopped is treated as having stopped for the tracer.
            let stopped = state.stopped;
            (state.trapped, state.unreported) = (stopped, stopped);
            stopped
        };
        {
            let mut state = self.state();
            state.tracees.push(target.slot);
            self.member(&mut state).traces = true;
        }
        let (pid, uid) = (self.proc.number(), mine.real);
        let stop = SigInfo { pid, uid, code: SigCode::User, ..SigInfo::kernel(Signal::STOP) };
        if let Some(mut state) = target.state() {
            // On Linux the stop is sent to a thread, which takes it before the signals of the
            // process.
            let first = state.threads.first().map(|first| To::Thread(first.thread.tid()));
            kernel.post_own(&mut state, stop, first.unwrap_or(To::Process));
        }
        if let Some(signal) = stopped {
            kernel.notify_trap(&target, SigCode::Stopped, signal);
        }
        Ok(())
    }

    /// Kills a tracee, stopped or running, as Linux 6.18 does.
    fn kill_tracee(&self, pid: Pid) -> Result<()> {
        let target = self.kernel.find(pid).ok_or(Errno::ESRCH)?;
        let mut state = target.state().ok_or(Errno::ESRCH)?;
        if !self.traces_itself(&state) {
            return Err(Errno::ESRCH);
        }
        let (pid, uid) = (self.proc.number(), self.proc.ids().real);
        let kill = SigInfo { pid, uid, code: SigCode::User, ..SigInfo::kernel(Signal::KILL) };
        self.kernel.post_own(&mut state, kill, To::Process);
        // `wait` must not find the stop of a tracee that is about to end.
        (state.trapped, state.unreported) = (None, None);
        Ok(())
    }

    /// Returns `true` if this thread traces the process with this state.
    fn traces_itself(&self, state: &ProcState) -> bool {
        state.tracing.as_ref().is_some_and(|by| Arc::ptr_eq(by, &self.thread))
    }

    /// Releases the tracees of an ending thread whose process continues.
    pub(super) fn release_own_tracees(&self) {
        let kernel = self.kernel;
        let mut tracees = self.state().tracees.clone();
        {
            let _relations = kernel.relations.read(&kernel.locks);
            tracees.extend(kernel.children(self.proc).map(|child| child.slot));
        }
        let tracer = self.proc.tenant();
        for slot in tracees {
            if kernel.release_tracee(kernel.slab.get(slot), tracer, Some(&self.thread)) {
                self.state().forget_tracee(slot);
            }
        }
        // Other threads may be waiting for only these tracees.
        wake_waiters(&mut self.state());
    }

    fn resume_tracee(&self, pid: Pid, signal: Option<Signal>, detach: bool) -> Result<()> {
        let target = self.kernel.find(pid).ok_or(Errno::ESRCH)?;
        {
            let mut state = target.state().ok_or(Errno::ESRCH)?;
            let mine = self.traces_itself(&state);
            if !mine || state.trapped.is_none() {
                return Err(Errno::ESRCH);
            }
            (state.trapped, state.unreported) = (None, None);
            // The signal is sent as if by the tracee's parent, because on Linux a tracer is the
            // parent while it traces.
            let parent = if detach { self.kernel.parent_hint(&target) } else { None };
            let sender = parent.unwrap_or(self.proc);
            let sender = (sender.number(), sender.ids().real);
            state.resumed = Some(Resumed { signal, sender });
            if detach {
                state.end_tracing();
            }
            for member in &state.threads {
                member.unpark();
            }
        }
        if detach {
            let is_child = self.kernel.keep_news(&target, self.proc);
            let mut state = self.state();
            state.forget_tracee(target.slot);
            if !is_child {
                // Other threads may be waiting for only this tracee.
                wake_waiters(&mut state);
            }
        }
        Ok(())
    }

    /// Stops a traced process that has called exec, before its new program begins.
    pub(super) fn trap_if_traced(&self, state: &mut ProcState) {
        if state.tracer.is_some() {
            let trap = SigInfo::kernel(Signal::TRAP);
            self.kernel.post_own(state, trap, To::Thread(self.thread.tid()));
        }
    }

    /// Stops for the tracer with a signal that is about to be delivered. Returns the signal to
    /// deliver instead.
    pub(super) fn stop_for_tracer<'s>(
        &self,
        waiting: SigWaiting<'s>,
        info: SigInfo,
    ) -> (SigWaiting<'s>, Option<SigInfo>) {
        {
            let mut state = self.state();
            state.resumed = None;
            (state.trapped, state.unreported) = (Some(info.signal), Some(info.signal));
        }
        self.kernel.notify_trap(self.proc, SigCode::Trapped, info.signal);
        let resumed = loop {
            {
                let mut state = self.state();
                let killed = state.pending_anywhere().contains(Signal::KILL);
                if let Some(resumed) = state.resumed.take() {
                    break resumed;
                }
                let halted = self.thread.attention().contains(AstFlags::HALT);
                if killed || halted || state.tracer.is_none() {
                    state.trapped = None;
                    // The tracer has ended. A signal that was already reported to the tracer is
                    // discarded. An unreported signal is delivered.
                    let kept = state.unreported.take().filter(|_| !killed && !halted);
                    break Resumed { signal: kept, sender: (info.pid, info.uid) };
                }
                self.parks_here(&mut state);
            }
            executor::park();
        };
        let waiting = waiting.sig_wait_to_lock().sig_lock_to_wait(&self.thread);
        let Resumed { signal, sender } = resumed;
        (waiting, signal.and_then(|signal| self.delivered_instead(info, signal, sender)))
    }

    /// Returns the signal to deliver if the tracer chose `signal`. A blocked signal stays pending
    /// until it is unblocked.
    fn delivered_instead(
        &self,
        info: SigInfo,
        signal: Signal,
        (pid, uid): (i32, u32),
    ) -> Option<SigInfo> {
        if signal == info.signal {
            return Some(info);
        }
        let chosen = SigInfo { pid, uid, code: SigCode::User, ..SigInfo::kernel(signal) };
        if !self.thread.mask().contains(signal) {
            return Some(chosen);
        }
        let mut state = self.state();
        // A real-time signal for which the queue has no space is lost.
        let _ = self.kernel.post(&mut state, chosen, To::Thread(self.thread.tid()));
        None
    }
}

impl ThreadEntry {
    /// Stops the thread.
    pub(super) fn stop(&self) {
        self.thread.demand(AstFlags::STOP);
        // A sleeping thread stops outside its call, so that it holds no file.
        self.wake();
    }
}

impl ProcState {
    /// Returns `true` if the process is traced, and, if `by` is given, by that thread.
    pub(super) fn is_traced_by(&self, by: Option<&Arc<Thread>>) -> bool {
        self.tracing.as_ref().is_some_and(|one| by.is_none_or(|by| Arc::ptr_eq(one, by)))
    }

    /// Removes one entry for the process in this slot; another thread may trace it, too.
    pub(super) fn forget_tracee(&mut self, slot: u32) {
        if let Some(at) = self.tracees.iter().position(|one| *one == slot) {
            self.tracees.remove(at);
        }
    }

    /// Returns `true` if the process is stopped and its tracer has not continued it.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some() && (self.tracer.is_none() || self.trapped.is_some())
    }

    /// Ends the tracing. If no SIGCONT has cancelled the stop of the process, the process stops
    /// again, even if its tracer had continued it.
    pub(super) fn end_tracing(&mut self) {
        (self.tracer, self.tracing) = (None, None);
        if self.phase == Phase::Live && self.stopped.is_some() {
            self.threads.iter().for_each(ThreadEntry::stop);
        }
    }
}

impl Kernel {
    /// Returns the tracer of a process if the tracer is not the parent. Called with the relations
    /// and `p_lock` locked.
    pub(super) fn other_tracer(&self, proc: &Proc, state: &ProcState) -> Option<ProcKey> {
        let parent = self.parent_hint(proc).map(|parent| parent.slot);
        state.tracer.filter(|tracer| parent != Some(tracer.slot))
    }

    /// Makes a change of the tracee available to the next `wait` of its parent, which could not
    /// wait for the change while `tracer` traced the process. As on Linux, no waiter is woken.
    /// Returns `true` if `tracer` is the parent.
    fn keep_news(&self, tracee: &Proc, tracer: &Proc) -> bool {
        let (_relations, parent) = self.read_parent(tracee);
        if let (Some(parent), Some(_)) = (parent, tracee.lock(&self.locks).news) {
            self.set_changed(parent, tracee, true);
        }
        parent.is_some_and(|parent| parent.slot == tracer.slot)
    }

    /// Sends SIGCHLD to the tracer of a process that has stopped for its tracer, before a signal
    /// takes effect or because of the signal, and wakes the threads that wait.
    pub(super) fn notify_trap(&self, proc: &Proc, code: SigCode, signal: Signal) {
        let (uid, tracer, news) = {
            let state = proc.lock(&self.locks);
            (state.credentials.real, state.tracer, state.news)
        };
        let Some(tracer) = tracer else { return };
        // The SIGCHLD for a stop names the signal that `wait` would return. As on Linux, it
        // contains 0 if `wait` has already returned that signal.
        let status = match (code, news) {
            (SigCode::Stopped, Some(ChildEvent::Stopped(stop))) => stop.number(),
            (SigCode::Stopped, _) => 0,
            _ => signal.number(),
        };
        if self.parent_hint(proc).is_some_and(|parent| parent.slot == tracer.slot) {
            return self.notify_parent(proc, code, status);
        }
        self.notify_tracer(tracer, SigInfo::child(proc.number(), uid, code, status));
    }

    /// Notifies a tracer that is not the parent of a change of a process, if the tracer still
    /// exists.
    pub(super) fn notify_tracer(&self, tenant: ProcKey, info: SigInfo) {
        let tracer = self.slab.get(tenant.slot);
        let mut state = tracer.lock(&self.locks);
        if tracer.tenant() != tenant {
            return;
        }
        let flags = state.actions.of(Signal::CHLD).flags;
        let is_stop = matches!(info.code, SigCode::Trapped | SigCode::Stopped | SigCode::Continued);
        if !is_stop || !flags.contains(ActionFlags::NOCLDSTOP) {
            self.post_own(&mut state, info, To::Process);
        }
        wake_waiters(&mut state);
    }

    /// Releases the tracees of an ending tracer: its children and `others`.
    pub(super) fn release_tracees(&self, tracer: &Proc, others: Vec<u32>) {
        let mut tracees = others;
        if !self.stays_childless(tracer) {
            let _relations = self.relations.read(&self.locks);
            tracees.extend(self.children(tracer).map(|child| child.slot));
        }
        for slot in tracees {
            self.release_tracee(self.slab.get(slot), tracer.tenant(), None);
        }
    }

    /// Ends the tracing of one process by this tracer, or by one of its threads. Returns `true` if
    /// the process was traced by it. If the process has ended, it is passed to its parent.
    fn release_tracee(&self, tracee: &Proc, tracer: ProcKey, by: Option<&Arc<Thread>>) -> bool {
        let traces = {
            let state = tracee.lock(&self.locks);
            state.tracer == Some(tracer) && state.is_traced_by(by)
        };
        if traces {
            let (relations, parent) = self.write_parent(tracee);
            self.let_go(relations, parent, tracee, tracer, by);
        }
        traces
    }

    /// Like [`Self::release_tracee`], with the relations locked. A process that ends checks
    /// under that lock whether it is traced, so either the process or the tracer handles its end.
    pub(super) fn let_go(
        &self,
        relations: WrittenRelations<'_>,
        parent: Option<&Proc>,
        tracee: &Proc,
        tracer: ProcKey,
        by: Option<&Arc<Thread>>,
    ) {
        let is_child = parent.is_some_and(|parent| parent.slot == tracer.slot);
        let ended = {
            let mut state = tracee.lock(&self.locks);
            // In the meantime, another thread may have begun to trace it, or its slot may hold
            // another process.
            if state.tracer != Some(tracer) || !state.is_traced_by(by) {
                return;
            }
            state.end_tracing();
            if let (Some(_), Some(parent)) = (state.news, parent) {
                // The parent, as the tracer, has been notified of the stop. The next parent may
                // wait for the stop.
                self.set_changed(parent, tracee, true);
            }
            tracee.owner.store(0, Ordering::Relaxed);
            for member in &state.threads {
                member.unpark();
            }
            (state.phase == Phase::Zombie).then(|| Notice::of(tracee, &state))
        };
        // A parent that traced its child was already notified of its end. The parent's action for
        // SIGCHLD decides whether a zombie is left for the process that adopts the child.
        let notified = parent.filter(|_| is_child).map(|parent| {
            let state = parent.lock(&self.locks);
            self.auto_reaps(&state)
        });
        if let Some(notice) = ended.filter(|_| notified != Some(false)) {
            self.end_for(relations, parent, tracee, notice, notified);
        }
    }
}
