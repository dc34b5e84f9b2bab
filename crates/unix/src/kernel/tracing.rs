//! `ptrace`: one process in another's hands.
//!
//! A tracee stops whenever a signal is delivered to it, in the state *waiting* (`sig_lock_to_wait`), so
//! that none of its threads delivers another one; its tracer, which is its parent for as long, says
//! with which signal it goes on (`sig_wait_to_lock`).

use super::Kernel;
use super::call::Call;
use super::proc::{News, Phase, Proc, ProcRef};
use super::siglock::Waiting;
use super::thread::Attention;
use crate::action::{Code, SignalInfo};
use crate::errno::{Errno, Result};
use crate::executor;
use crate::process::Pid;
use crate::ptrace::Ptrace;
use crate::signal::Signal;

/// With what a stopped tracee goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resumed(Option<Signal>);

impl Call<'_> {
    pub(super) fn trace(&self, request: Ptrace) -> Result<()> {
        self.guarded(|| match request {
            Ptrace::TraceMe => self.let_parent_trace(),
            Ptrace::Attach(pid) => self.attach(pid),
            Ptrace::Continue(pid, signal) => self.resume_tracee(pid, signal, false),
            Ptrace::Kill(pid) => self.resume_tracee(pid, Some(Signal::KILL), false),
            Ptrace::Detach(pid, signal) => self.resume_tracee(pid, signal, true),
        })
    }

    fn let_parent_trace(&self) -> Result<()> {
        let kernel = self.kernel;
        let _coarse = kernel.coarse();
        let (_reading, parent) = kernel.read_parent(self.proc);
        let parent = parent.filter(|parent| !kernel.is_init(parent)).ok_or(Errno::EPERM)?;
        let tracer = (parent.slot, parent.birth());
        let mut state = self.state();
        if state.tracer.is_some() {
            return Err(Errno::EPERM);
        }
        state.tracer = Some(tracer);
        Ok(())
    }

    fn attach(&self, pid: Pid) -> Result<()> {
        let kernel = self.kernel;
        let _coarse = kernel.coarse();
        let target = kernel.find(pid).ok_or(Errno::ESRCH)?;
        let mine = self.proc.ids();
        if target.slot == self.proc.slot {
            return Err(Errno::EPERM);
        }
        {
            let mut state = target.state().ok_or(Errno::ESRCH)?;
            let allowed = mine.effective == 0 || mine.effective == state.credentials.real;
            if !allowed || state.tracer.is_some() || state.phase != Phase::Live {
                return Err(Errno::EPERM);
            }
            state.tracer = Some((self.proc.slot, self.proc.birth()));
        }
        kernel.adopt_for_tracing(self.proc, &target);
        kernel.psignal_inthread(&target, self.sent(Signal::STOP));
        Ok(())
    }

    fn resume_tracee(&self, pid: Pid, signal: Option<Signal>, detach: bool) -> Result<()> {
        let kernel = self.kernel;
        let coarse = kernel.coarse();
        let target = kernel.find(pid).ok_or(Errno::ESRCH)?;
        {
            let mut state = target.state().ok_or(Errno::ESRCH)?;
            let mine = state.tracer == Some((self.proc.slot, self.proc.birth()));
            if !mine || state.trapped.is_none() {
                return Err(Errno::ESRCH);
            }
            state.trapped = None;
            state.news = None;
            state.resumed = Some(Resumed(signal));
            if detach {
                state.tracer = None;
            }
            for member in &state.threads {
                member.unpark();
            }
        }
        if detach {
            kernel.return_to_parent(self.proc, &target);
        }
        drop(coarse);
        Ok(())
    }

    fn sent(&self, signal: Signal) -> SignalInfo {
        let (pid, uid) = (self.proc.number(), self.proc.ids().real);
        SignalInfo { signal, code: Code::User, pid, uid, value: 0, status: 0 }
    }

    /// Stops for the tracer with a signal that is about to be delivered; returns what is delivered in
    /// its place.
    pub(super) fn stop_for_tracer<'s>(
        &self,
        waiting: Waiting<'s>,
        info: SignalInfo,
    ) -> (Waiting<'s>, Option<SignalInfo>) {
        {
            let mut state = self.state();
            state.trapped = Some(info.signal);
            state.resumed = None;
            state.news = Some(News::Trapped(info.signal));
        }
        self.kernel.tell_parent(self.proc, Code::Trapped, info.signal.number());
        let resumed = loop {
            {
                let mut state = self.state();
                let killed = state.pending_anywhere().contains(Signal::KILL);
                if let Some(resumed) = state.resumed.take() {
                    break resumed;
                }
                let halted = self.thread.attention().contains(Attention::HALT);
                if killed || halted || state.tracer.is_none() {
                    state.trapped = None;
                    let keeps = !killed && !halted;
                    break Resumed(keeps.then_some(info.signal));
                }
                self.parks_here(&mut state);
            }
            executor::park();
        };
        let waiting = waiting.sig_wait_to_lock().sig_lock_to_wait(&self.thread);
        let info = resumed
            .0
            .map(|signal| if signal == info.signal { info } else { SignalInfo::kernel(signal) });
        (waiting, info)
    }
}

impl Kernel {
    /// Makes the tracer the parent, for as long as it traces.
    fn adopt_for_tracing(&self, tracer: &Proc, target: &Proc) {
        loop {
            let Some(parent) = self.parent_hint(target) else { return };
            let _writing = self.write_families(parent, tracer);
            if self.parent_hint(target).map(|now| now.slot) != Some(parent.slot) {
                continue;
            }
            if parent.slot != tracer.slot {
                target.lock(&self.locks).real_parent = Some(parent.pid());
                self.unlink(parent, target);
                self.link(tracer, target);
            }
            return;
        }
    }

    /// Gives a process back to the parent that it had.
    fn return_to_parent(&self, tracer: &Proc, target: &Proc) {
        let Some(real) = target.lock(&self.locks).real_parent.take() else { return };
        let found = self.find(real);
        let parent = found.as_deref().unwrap_or_else(|| self.slab.get(self.init));
        let _writing = self.write_families(tracer, parent);
        self.unlink(tracer, target);
        self.link(parent, target);
    }

    /// A tracer that ends lets its tracees go.
    pub(super) fn release_tracees(&self, tracer: &Proc) {
        let me = (tracer.slot, tracer.birth());
        let tracees: Vec<u32> = {
            let _reading = self.read_family(tracer);
            let traced = |child: &&Proc| child.lock(&self.locks).tracer == Some(me);
            self.children(tracer).filter(traced).map(|child| child.slot).collect()
        };
        for slot in tracees {
            let found = ProcRef::new(self, self.slab.get(slot));
            {
                let Some(mut state) = found.state() else { continue };
                state.tracer = None;
                for member in &state.threads {
                    member.unpark();
                }
            }
            self.return_to_parent(tracer, &found);
        }
    }
}
