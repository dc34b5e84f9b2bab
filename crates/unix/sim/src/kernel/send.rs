//! `kill` and related calls (§2.1): the selection of the processes that a program signals, and the
//! check of its permission. During the call, a reference keeps a process valid (§5.2), and a
//! group's lock keeps the group valid (§5.1).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::{Errno, Pid, Result, SigCode, SigInfo, Signal, SignalTarget, Tid};

use super::Kernel;
use super::call::Caller;
use super::generate::To;
use super::pid_table::PidKeeper;
use super::proc::{Phase, ProcState};
use super::references::ProcRef;
use super::session::Pgrp;
use super::users::Ids;
use crate::costs::CostKind;
use crate::executor::{self, Object};

impl Caller<'_> {
    pub(super) fn send(&self, target: SignalTarget, signal: Option<Signal>) -> Result<()> {
        let target = match target {
            // `SignalTarget::of` documents the meaning of such numbers to kill(2).
            SignalTarget::Process(pid) if pid.number() <= 0 => return Err(Errno::ESRCH),
            SignalTarget::Group(pid) if pid.number() == i32::MIN => return Err(Errno::ESRCH),
            SignalTarget::Group(pid) if pid.number() < 0 => return Err(Errno::EINVAL),
            SignalTarget::Group(pid) if pid.number() == 0 => SignalTarget::OwnGroup,
            other => other,
        };
        self.guarded(|| match target {
            SignalTarget::Process(pid) => {
                self.send_to_one(pid, None, self.info(signal, SigCode::User, 0))
            }
            SignalTarget::Group(id) => {
                let group = self.kernel.find_group(id).ok_or(Errno::ESRCH)?;
                self.send_to_group(&group, self.info(signal, SigCode::User, 0))
            }
            SignalTarget::OwnGroup => {
                let group = self.kernel.refer_to_group(&self.state()).ok_or(Errno::ESRCH)?;
                self.send_to_group(&group, self.info(signal, SigCode::User, 0))
            }
            SignalTarget::Everyone => self.send_to_everyone(self.info(signal, SigCode::User, 0)),
        })
    }

    pub(super) fn send_to_thread(
        &self,
        process: Pid,
        thread: Tid,
        signal: Option<Signal>,
    ) -> Result<()> {
        if process.number() <= 0 || thread.0 <= 0 {
            return Err(Errno::EINVAL);
        }
        self.guarded(|| {
            self.send_to_one(process, Some(thread.0), self.info(signal, SigCode::Tkill, 0))
        })
    }

    pub(super) fn send_value(
        &self,
        process: Pid,
        signal: Option<Signal>,
        value: i32,
    ) -> Result<()> {
        if process.number() <= 0 {
            return Err(Errno::ESRCH);
        }
        self.guarded(|| self.send_to_one(process, None, self.info(signal, SigCode::Queue, value)))
    }

    /// Returns the information that the target receives, or `None` if nothing is sent.
    fn info(&self, signal: Option<Signal>, code: SigCode, value: i32) -> Option<SigInfo> {
        let signal = signal?;
        let (pid, uid) = (self.proc.number(), self.proc.ids().real);
        Some(SigInfo { signal, code, pid, uid, value, status: 0 })
    }

    fn send_to_one(&self, pid: Pid, thread: Option<i32>, info: Option<SigInfo>) -> Result<()> {
        let target = match self.kernel.find(pid) {
            None if thread.is_none() => self.kernel.find_by_thread(pid),
            found => found,
        };
        let target = target.ok_or(Errno::ESRCH)?;
        let mine = (target.slot != self.proc.slot).then(|| self.proc.ids());
        let mut state = charged(|| target.state()).ok_or(Errno::ESRCH)?;
        if let Some(tid) = thread
            && state.member(tid).is_none()
            && (state.phase == Phase::Live || tid != pid.number())
        {
            return Err(Errno::ESRCH);
        }
        if mine.is_some_and(|mine| !permits(mine, &state, info)) {
            return Err(Errno::EPERM);
        }
        let to = thread.map_or(To::Process, To::Thread);
        self.post_if_any(&mut state, info, to)
    }

    /// Posts a signal. If `info` is `None`, sends nothing and succeeds.
    fn post_if_any(&self, state: &mut ProcState, info: Option<SigInfo>, to: To) -> Result<()> {
        info.map_or(Ok(()), |info| self.kernel.post(state, info, to))
    }

    /// Signals each member that the caller may signal.
    fn send_to_group(&self, group: &Arc<Pgrp>, info: Option<SigInfo>) -> Result<()> {
        let members = group.members.read(&self.kernel.locks);
        let mine = self.proc.ids();
        let mut result = Err(Errno::ESRCH);
        for &slot in &members.slots {
            let member = self.kernel.slab.get(slot);
            let mut state = charged(|| member.lock(&self.kernel.locks));
            result = tally(result, self.send_if_permitted(mine, &mut state, info));
        }
        result
    }

    /// Signals all processes except the caller's and the first one. The table of groups is locked,
    /// so that no group changes and a process that is about to fork can wait for the end of the
    /// walk.
    fn send_to_everyone(&self, info: Option<SigInfo>) -> Result<()> {
        let kernel = self.kernel;
        let mine = self.proc.ids();
        let _groups = kernel.pgrphash.write(&kernel.locks);
        // If a fork's child is given a slot that this walk has already passed, the fork locks that
        // slot after the walk did, and so sees this flag.
        kernel.set_walking(true);
        let mut result = Err(Errno::ESRCH);
        for proc in kernel.slab.iter() {
            if kernel.is_init(proc) || proc.slot == self.proc.slot {
                continue;
            }
            let mut state = proc.lock(&kernel.locks);
            if state.phase != Phase::Free {
                // As on Linux, a process that the caller may not signal does not make the call
                // fail.
                result = match self.send_if_permitted(mine, &mut state, info) {
                    Err(Errno::EPERM) => result.or(Ok(())),
                    other => tally(result, other),
                };
            }
        }
        kernel.set_walking(false);
        result
    }

    fn send_if_permitted(
        &self,
        mine: Ids,
        state: &mut ProcState,
        info: Option<SigInfo>,
    ) -> Result<()> {
        if !permits(mine, state, info) {
            return Err(Errno::EPERM);
        }
        self.post_if_any(state, info, To::Process)
    }
}

impl Kernel {
    /// Returns the process that has a thread with this number, which kill(2) accepts too. If the
    /// number is that of a thread, all processes are searched for it.
    fn find_by_thread(&self, pid: Pid) -> Option<ProcRef<'_>> {
        if pid.birth().is_some() || !self.pids.is_kept(pid.number(), PidKeeper::Thread) {
            return None;
        }
        let all = self.slab.iter().map(|proc| ProcRef::new(self, proc));
        let mut of_it = all.filter(|found| {
            found.state().is_some_and(|mut state| state.member(pid.number()).is_some())
        });
        of_it.next()
    }

    fn set_walking(&self, walking: bool) {
        executor::changes(Object::System);
        self.walking.store(walking, Ordering::Relaxed);
    }

    /// Returns `true` while all processes are being signalled. Called under the `p_lock` of a slot.
    pub(super) fn everyone_walked(&self) -> bool {
        executor::looks_at(Object::System);
        self.walking.load(Ordering::Relaxed)
    }
}

/// Locks a target, and charges for a signal: half of its cost arises before the lock is held, and
/// half under the lock.
fn charged<G>(lock: impl FnOnce() -> G) -> G {
    executor::spend_half(CostKind::Send);
    let held = lock();
    executor::spend_half(CostKind::Send);
    held
}

/// Combines two results: one success makes the result a success; otherwise a refusal replaces the
/// initial `ESRCH`.
fn tally(sum: Result<()>, one: Result<()>) -> Result<()> {
    match (sum, one) {
        (Ok(()), _) | (_, Ok(())) => Ok(()),
        (Err(_), Err(errno)) => Err(errno),
    }
}

/// Returns `true` if the caller may signal the process, because of the caller's users or because
/// the signal is SIGCONT and both are in the same session.
fn permits(mine: Ids, state: &ProcState, info: Option<SigInfo>) -> bool {
    let session = || state.pgrp.as_ref().map(|group| group.session.id.number());
    mine.may_signal(&state.credentials)
        || (info.is_some_and(|info| info.signal == Signal::CONT) && session() == Some(mine.session))
}
