//! `wait` (§6.2): each child is owned by one waiter at most, and whoever finds none left is told.

use std::sync::atomic::Ordering;

use super::call::{After, Call, Stop};
use super::proc::{News, Phase, Proc, ProcState};
use crate::errno::{Errno, Result};
use crate::process::Pid;
use crate::wait::{Children, Status, Usage, WaitOptions, Waited};

/// What a look at the children found.
enum Found<'k> {
    /// This one, which the caller owns now.
    Child(&'k Proc, Waited, bool),
    /// Some that may change.
    Later,
    /// None that the caller could wait for.
    Nobody,
}

impl Call<'_> {
    pub(super) fn wait_for(
        &self,
        children: Children,
        options: WaitOptions,
    ) -> Result<Option<Waited>> {
        let wanted = WaitOptions::EXITED | WaitOptions::STOPPED | WaitOptions::CONTINUED;
        if !options.intersects(wanted) {
            return Err(Errno::EINVAL);
        }
        self.interruptible(After::Restart, || {
            self.sig_lock_or_return()?.unlock();
            self.wait_once(children, options)
        })
    }

    fn wait_once(
        &self,
        children: Children,
        options: WaitOptions,
    ) -> std::result::Result<Option<Waited>, Stop> {
        let kernel = self.kernel;
        loop {
            self.set_waiting(true);
            let found = {
                let _coarse = kernel.coarse();
                self.look(children, options)
            };
            match found {
                Found::Child(child, waited, ended) => {
                    self.set_waiting(false);
                    self.take(child, ended, options);
                    return Ok(Some(waited));
                }
                Found::Nobody => {
                    self.set_waiting(false);
                    return Err(Errno::ECHILD.into());
                }
                Found::Later if options.contains(WaitOptions::NOHANG) => {
                    self.set_waiting(false);
                    return Ok(None);
                }
                Found::Later => {}
            }
            let changed = self.sleep(None, |state| {
                let member = state.member(self.thread.tid)?;
                member.changed.then_some(())
            });
            if let Err(stop) = changed {
                self.set_waiting(false);
                return Err(stop);
            }
        }
    }

    /// Says whether a child's change is to wake this thread; what came before is forgotten.
    fn set_waiting(&self, waits: bool) {
        let mut state = self.state();
        let member = self.member(&mut state);
        (member.waits, member.changed) = (waits, false);
    }

    /// Looks at the children, and owns the first whose state is wanted.
    fn look(&self, children: Children, options: WaitOptions) -> Found<'_> {
        let kernel = self.kernel;
        let own_group = match children {
            Children::OwnGroup => self.state().pgrp.as_ref().map(|group| group.id.number()),
            _ => None,
        };
        let _reading = kernel.read_family(self.proc);
        let mut later = false;
        for child in kernel.children(self.proc) {
            let mut state = child.lock(&kernel.locks);
            let matches = match children {
                Children::Any => true,
                Children::One(pid) => is_named(child, pid),
                Children::Group(group) => in_group(&state, group.number()),
                Children::OwnGroup => own_group.is_some_and(|own| in_group(&state, own)),
            };
            if !matches {
                continue;
            }
            if child.owner.load(Ordering::Relaxed) != 0 {
                // Another thread has it: we forget that we found it.
                continue;
            }
            let Some((status, ended)) = wanted(&state, options) else {
                let gone = state.phase == Phase::Zombie && !options.contains(WaitOptions::EXITED);
                later |= !gone;
                continue;
            };
            let waited = Waited {
                pid: child.pid(),
                uid: state.credentials.real,
                status,
                usage: kernel.usage(child, &state),
            };
            if !options.contains(WaitOptions::NOWAIT) {
                if ended {
                    child.owner.store(self.thread.tid, Ordering::Relaxed);
                } else {
                    state.news = None;
                }
            }
            return Found::Child(child, waited, ended);
        }
        if later { Found::Later } else { Found::Nobody }
    }

    /// Removes a child that has ended and that this thread owns.
    fn take(&self, child: &Proc, ended: bool, options: WaitOptions) {
        if !ended || options.contains(WaitOptions::NOWAIT) {
            return;
        }
        let kernel = self.kernel;
        let _coarse = kernel.coarse();
        {
            let _writing = kernel.write_family(self.proc);
            kernel.unlink(self.proc, child);
        }
        let used = {
            let state = child.lock(&kernel.locks);
            kernel.usage(child, &state)
        };
        {
            let mut state = self.state();
            add(&mut state.children_used, used);
            // Others may wait for this child alone.
            super::exit::wake_waiters(&mut state);
        }
        kernel.reap(child);
    }
}

/// Whether `pid` means this child.
fn is_named(child: &Proc, pid: Pid) -> bool {
    child.number() == pid.number() && pid.birth().is_none_or(|birth| birth == child.birth())
}

fn in_group(state: &ProcState, number: i32) -> bool {
    state.pgrp.as_ref().is_some_and(|group| group.id.number() == number)
}

/// What there is to be told of a child, and whether it has ended.
fn wanted(state: &ProcState, options: WaitOptions) -> Option<(Status, bool)> {
    match (state.phase, state.news) {
        (Phase::Zombie, _) if options.contains(WaitOptions::EXITED) => {
            Some((state.end.unwrap_or(Status::Exited(0)), true))
        }
        (Phase::Live, Some(News::Stopped(signal))) if options.contains(WaitOptions::STOPPED) => {
            Some((Status::Stopped(signal), false))
        }
        // A tracer is told of every stop, whether it asked for stops or not.
        (Phase::Live, Some(News::Trapped(signal))) => Some((Status::Trapped(signal), false)),
        (Phase::Live, Some(News::Continued)) if options.contains(WaitOptions::CONTINUED) => {
            Some((Status::Continued, false))
        }
        _ => None,
    }
}

/// Adds what somebody used.
pub(super) fn add(sum: &mut Usage, used: Usage) {
    sum.user += used.user;
    sum.system += used.system;
}
