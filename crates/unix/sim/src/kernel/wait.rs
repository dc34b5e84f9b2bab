//! `wait` (§6.2): at most one waiter owns each child, and a waiter that has no child left receives
//! `ECHILD`.

use std::sync::atomic::Ordering;

use tontine_unix::{Children, Errno, Pid, Result, Usage, WaitOptions, WaitStatus, WaitedChild};

use super::Kernel;
use super::call::{Caller, Partial, RestartRule};
use super::limits::add_usage;
use super::proc::{ChildEvent, Phase, Proc, ProcState};
use super::thread::WaitChannel;

/// The result of a scan of the children.
enum WaitScan<'k> {
    /// The caller now owns this child; `true` if the child has ended.
    Child(&'k Proc, WaitedChild, bool),
    /// Some children may still change.
    Later,
    /// The caller has no child that it could wait for.
    NoChild,
}

/// The result of a check of one child.
enum ChildScan {
    /// The child has this change; `true` if it has ended.
    Has(WaitedChild, bool),
    /// The child has no change yet.
    Later,
    /// The child cannot have a change that the caller waits for.
    Never,
}

impl Caller<'_> {
    pub(super) fn wait_for(
        &self,
        children: Children,
        options: WaitOptions,
    ) -> Result<Option<WaitedChild>> {
        if !options.are_valid() {
            return Err(Errno::EINVAL);
        }
        let children = match children {
            Children::One(pid) if pid.number() <= 0 => return Err(Errno::EINVAL),
            Children::Group(group) if group.number() < 0 => return Err(Errno::EINVAL),
            Children::Group(group) if group.number() == 0 => Children::OwnGroup,
            other => other,
        };
        self.thread.waits_for(match children {
            Children::Any => WaitChannel::Any,
            Children::One(pid) => WaitChannel::Child(pid.number()),
            Children::Group(pid) => WaitChannel::Group(pid.number()),
            Children::OwnGroup => WaitChannel::OwnGroup,
        });
        self.interruptible(RestartRule::Restart, || {
            self.sig_lock_or_return()?.unlock();
            self.wait_once(children, options)
        })
    }

    fn wait_once(&self, children: Children, options: WaitOptions) -> Partial<Option<WaitedChild>> {
        self.set_waiting(true);
        loop {
            match self.look(children, options) {
                WaitScan::Child(child, waited, ended) => {
                    if ended && !options.contains(WaitOptions::NOWAIT) {
                        self.take(child, waited.usage);
                    } else {
                        self.set_waiting(false);
                    }
                    return Ok(Some(waited));
                }
                WaitScan::NoChild => {
                    self.set_waiting(false);
                    return Err(Errno::ECHILD.into());
                }
                WaitScan::Later if options.contains(WaitOptions::NOHANG) => {
                    self.set_waiting(false);
                    return Ok(None);
                }
                WaitScan::Later => {}
            }
            let changed = self.sleep(None, |state| {
                // As on Linux, a change takes precedence over signals and over the thread's own
                // end. The next scan finds changes that happen from now on.
                std::mem::take(&mut self.member(state).changed).then_some(())
            });
            if let Err(stop) = changed {
                self.set_waiting(false);
                return Err(stop);
            }
        }
    }

    /// Sets whether a child's change wakes this thread. Earlier changes are discarded.
    fn set_waiting(&self, waits: bool) {
        self.say_waiting(&mut self.state(), waits);
    }

    /// Like [`Self::set_waiting`], under `p_lock`.
    fn say_waiting(&self, state: &mut ProcState, waits: bool) {
        let member = self.member(state);
        (member.waits, member.changed) = (waits, false);
    }

    /// Scans the children, and takes ownership of the first with a change that the caller waits
    /// for.
    fn look(&self, children: Children, options: WaitOptions) -> WaitScan<'_> {
        let kernel = self.kernel;
        let own_group = match children {
            Children::OwnGroup => self.state().pgrp.as_ref().map(|group| group.id),
            _ => None,
        };
        let _relations = kernel.relations.read(&kernel.locks);
        if let Children::One(pid) = children {
            let named = kernel.find_child(self.proc, pid);
            let named = named.or_else(|| self.tracees().find(|tracee| tracee.is_named(pid)));
            return named.map_or(WaitScan::NoChild, |child| match self.look_at(child, options) {
                ChildScan::Has(waited, ended) => WaitScan::Child(child, waited, ended),
                ChildScan::Later => WaitScan::Later,
                ChildScan::Never => WaitScan::NoChild,
            });
        }
        // A continuation is reported immediately, but the child is marked as changed only once it
        // runs.
        let continued = options.contains(WaitOptions::CONTINUED);
        let changed = continued || kernel.any_changed(self.proc);
        let look_at = |child: &Proc| {
            let matches = match children {
                Children::Any | Children::One(_) => true,
                Children::Group(group) => kernel.is_in_group(child, group),
                Children::OwnGroup => own_group.is_some_and(|own| kernel.is_in_group(child, own)),
            };
            if matches { self.look_at(child, options) } else { ChildScan::Never }
        };
        let mut later = false;
        for child in kernel.children(self.proc) {
            match look_at(child) {
                ChildScan::Has(waited, ended) => return WaitScan::Child(child, waited, ended),
                ChildScan::Later => later = true,
                ChildScan::Never => {}
            }
            if later && !changed {
                break;
            }
        }
        for tracee in self.tracees() {
            match look_at(tracee) {
                ChildScan::Has(waited, ended) => return WaitScan::Child(tracee, waited, ended),
                ChildScan::Later => later = true,
                ChildScan::Never => {}
            }
        }
        if later { WaitScan::Later } else { WaitScan::NoChild }
    }

    /// Returns the processes that the caller traces and that are not its children, in Linux's
    /// order: the most recently attached first.
    fn tracees(&self) -> impl Iterator<Item = &Proc> {
        let slots = self.state().tracees.clone();
        let slabs = slots.into_iter().rev().map(|slot| self.kernel.slab.get(slot));
        slabs.filter(|tracee| !self.kernel.is_child(self.proc, tracee))
    }

    /// Checks one child, and takes ownership of it if it has a change that the caller waits for.
    /// Skips a child that another thread owns.
    fn look_at(&self, child: &Proc, options: WaitOptions) -> ChildScan {
        let kernel = self.kernel;
        let mut state = child.lock(&kernel.locks);
        let traced = state.tracer == Some(self.proc.tenant());
        if !traced && !kernel.is_child(self.proc, child) {
            return ChildScan::Never;
        }
        if !traced && state.phase == Phase::Zombie && state.tracer.is_some() {
            // The tracer waits for the child first, and may already own it.
            return ChildScan::Later;
        }
        if child.owner.load(Ordering::Relaxed) != 0 {
            return ChildScan::Never;
        }
        let Some((status, ended)) = kernel.wanted(&state, options, traced) else {
            let ends_unseen =
                state.phase == Phase::Zombie && !options.contains(WaitOptions::EXITED);
            return if ends_unseen { ChildScan::Never } else { ChildScan::Later };
        };
        let waited = WaitedChild {
            pid: child.pid(),
            uid: state.credentials.real,
            status,
            usage: kernel.usage(child, &state),
        };
        if !options.contains(WaitOptions::NOWAIT) {
            if kernel.is_child(self.proc, child) {
                kernel.set_changed(self.proc, child, false);
            }
            match status {
                _ if ended => child.owner.store(self.thread.tid(), Ordering::Relaxed),
                WaitStatus::Trapped(_) => state.unreported = None,
                _ => state.news = None,
            }
        }
        ChildScan::Has(waited, ended)
    }

    /// Removes a child that has ended and that this thread owns. The thread then no longer waits.
    fn take(&self, child: &Proc, used: Usage) {
        let kernel = self.kernel;
        let (relations, parent) = kernel.write_parent(child);
        let is_child = parent.is_some_and(|parent| parent.slot == self.proc.slot);
        if is_child {
            kernel.unlink(self.proc, child);
            drop(relations);
        } else {
            kernel.let_go(relations, parent, child, self.proc.tenant(), None);
        }
        {
            let mut state = self.state();
            self.say_waiting(&mut state, false);
            state.forget_tracee(child.slot);
            if is_child {
                add_usage(&mut state.children_used, used);
            }
            // Other threads may be waiting for only this child.
            super::exit::wake_waiters(&mut state);
        }
        if is_child {
            kernel.reap(child);
        }
    }
}

impl Kernel {
    /// Returns the child that `pid` denotes. Called with the relations locked, so that the
    /// child's number is not reused.
    fn find_child(&self, parent: &Proc, pid: Pid) -> Option<&Proc> {
        let child = self.slab.get(self.pids.slot(pid.number())?);
        (child.is_named(pid) && self.is_child(parent, child)).then_some(child)
    }

    fn is_in_group(&self, proc: &Proc, id: Pid) -> bool {
        let state = proc.lock(&self.locks);
        state.pgrp.as_ref().is_some_and(|group| group.is_named(id))
    }

    /// Returns the change of a child to report, and whether the child has ended.
    fn wanted(
        &self,
        state: &ProcState,
        options: WaitOptions,
        traced: bool,
    ) -> Option<(WaitStatus, bool)> {
        // Every stop is reported to a tracer, even if the tracer did not request stops.
        if let (Phase::Live, Some(signal), true) = (state.phase, state.unreported, traced) {
            return Some((WaitStatus::Trapped(signal), false));
        }
        let (change, report) = match (state.phase, state.news) {
            (Phase::Zombie, _) => {
                let end = state.end.unwrap_or(WaitStatus::Exited(0));
                (WaitOptions::EXITED, (end, true))
            }
            // To a tracer, even if it is the parent, only the stops that it has trapped are
            // reported.
            (Phase::Live, Some(ChildEvent::Stopped(signal))) if !traced => {
                (WaitOptions::STOPPED, (WaitStatus::Stopped(signal), false))
            }
            (Phase::Live, Some(ChildEvent::Continued)) => {
                (WaitOptions::CONTINUED, (WaitStatus::Continued, false))
            }
            _ => return None,
        };
        options.contains(change).then_some(report)
    }
}
