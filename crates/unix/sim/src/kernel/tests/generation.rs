//! Tests of table 4 (§7.1): each of the nine entry points, called from the contexts that the table
//! allows.

#[cfg(debug_assertions)]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tontine_unix::{Pid, SigInfo, SigSet, SigmaskHow, Signal, Sys};

use super::{in_each_mode, inside};
use crate::kernel::Kernel;
use crate::kernel::pgrp::PgrpRef;
use crate::kernel::references::ProcRef;
use crate::lock::spl;
use crate::mode::LockingMode;

/// The processes that the tests signal. All of them block [`SENT`], which queues, so that the
/// number of signals can be counted.
#[derive(Debug, Clone, Copy)]
struct Scene {
    /// The caller, which is not in the same group as the others.
    me: Pid,
    /// The leader of a group.
    leader: Pid,
    /// The group's other member.
    member: Pid,
}

const SENT: Signal = Signal::RTMIN;

/// Number of signals that each process received.
type Counts = [usize; 3];

impl Scene {
    fn new(sys: &dyn Sys) -> Self {
        sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[SENT])))).expect("it is allowed");
        let sleeper = || {
            let child = sys.fork(|sys| {
                sys.pause();
                0
            });
            child.expect("fork succeeds")
        };
        let scene = Self { me: sys.getpid(), leader: sleeper(), member: sleeper() };
        for child in [scene.leader, scene.member] {
            sys.setpgid(child, scene.leader).expect("the target is a child");
        }
        scene
    }

    /// Returns the number of signals that each process has received so far, in the order caller,
    /// leader, member.
    fn counts(&self, kernel: &Kernel) -> Counts {
        [self.me, self.leader, self.member].map(|pid| {
            let proc = find(kernel, pid);
            let state = proc.state().expect("the process exists");
            state.queued()
        })
    }

    /// Returns the counts after all deferred signals have been generated.
    fn counts_later(&self, sys: &dyn Sys) -> Counts {
        let slept = sys.nanosleep(Duration::from_millis(1));
        slept.expect("the sleep is not interrupted");
        inside(|kernel| self.counts(kernel))
    }
}

fn find(kernel: &Kernel, pid: Pid) -> ProcRef<'_> {
    kernel.find(pid).expect("the process exists")
}

fn group<'k>(kernel: &'k Kernel, scene: &Scene) -> PgrpRef<'k> {
    kernel.find_group(scene.leader).expect("the group exists")
}

fn info() -> SigInfo {
    SigInfo::kernel(SENT)
}

/// An entry point, called for a scene.
type Entry = fn(&Kernel, &PgrpRef<'_>, &ProcRef<'_>, &ProcRef<'_>);

const PGSIGNAL: Entry = |kernel, group, _, _| kernel.pgsignal(group, info());
const PGSIGNAL_SELF: Entry = |kernel, group, _, me| kernel.pgsignal_self(group, me, info());
const PSIGNAL_INTHREAD: Entry = |kernel, _, leader, _| kernel.psignal_inthread(leader, info());
const PGSIGNAL_INTHREAD: Entry = |kernel, group, _, _| kernel.pgsignal_inthread(group, info());
const PGSIGNAL_INTHREAD_SELF: Entry =
    |kernel, group, _, me| kernel.pgsignal_inthread_self(group, me, info());
const PSIGNAL_INDIRECT: Entry = |kernel, _, leader, _| kernel.psignal_indirect(leader, info());
const PGSIGNAL_INDIRECT: Entry =
    |kernel, group, _, _| kernel.pgsignal_indirect(group, info(), None);
const PGSIGNAL_INTERNAL: Entry =
    |kernel, group, _, me| kernel.pgsignal_internal(group, info(), Some(me));

const TO_ONE: Counts = [0, 1, 0];
const TO_GROUP: Counts = [0, 1, 1];
const TO_GROUP_AND_SELF: Counts = [1, 1, 1];
const TO_NONE: Counts = [0, 0, 0];

/// Calls an entry point in a thread or in a clock tick, and compares the numbers of signals on
/// return and later.
fn call(entry: Entry, in_tick: bool, at_once: Counts, later: Counts) {
    in_each_mode(move |sys| {
        let scene = Scene::new(sys);
        let counts = inside(|kernel| {
            let (leader, me) = (find(kernel, scene.leader), find(kernel, scene.me));
            let group = group(kernel, &scene);
            {
                let _tick = in_tick.then(spl::tick);
                entry(kernel, &group, &leader, &me);
            }
            scene.counts(kernel)
        });
        assert_eq!(counts, at_once, "at once");
        assert_eq!(scene.counts_later(sys), later, "later");
    });
}

/// On a uniprocessor, `psignal` is the direct routine, which may be called there from any context;
/// in all other modes it is the deferred one.
#[test]
fn psignal_is_safe_in_any_context_of_each_mode() {
    for in_tick in [false, true] {
        in_each_mode(move |sys| {
            let scene = Scene::new(sys);
            let (counts, direct) = inside(|kernel| {
                let leader = find(kernel, scene.leader);
                {
                    let _tick = in_tick.then(spl::tick);
                    kernel.psignal(&leader, info());
                }
                (scene.counts(kernel), kernel.config.mode == LockingMode::Uniprocessor)
            });
            assert_eq!(counts, if direct { TO_ONE } else { TO_NONE }, "at once");
            assert_eq!(scene.counts_later(sys), TO_ONE, "later");
        });
    }
}

#[test]
fn pgsignal_and_pgsignal_self_are_always_deferred() {
    for in_tick in [false, true] {
        call(PGSIGNAL, in_tick, TO_NONE, TO_GROUP);
        call(PGSIGNAL_SELF, in_tick, TO_NONE, TO_GROUP_AND_SELF);
    }
}

#[test]
fn inthread_routines_signal_immediately() {
    call(PSIGNAL_INTHREAD, false, TO_ONE, TO_ONE);
    call(PGSIGNAL_INTHREAD, false, TO_GROUP, TO_GROUP);
    call(PGSIGNAL_INTHREAD_SELF, false, TO_GROUP_AND_SELF, TO_GROUP_AND_SELF);
    call(PGSIGNAL_INTERNAL, false, TO_GROUP_AND_SELF, TO_GROUP_AND_SELF);
}

#[test]
fn indirect_routines_are_deferred_in_any_context() {
    for in_tick in [false, true] {
        call(PSIGNAL_INDIRECT, in_tick, TO_NONE, TO_ONE);
        call(PGSIGNAL_INDIRECT, in_tick, TO_NONE, TO_GROUP);
    }
}

/// §7.2.3: a member is signalled once, as a member, and not again as *self*.
#[test]
fn pgsignal_self_signals_member_once() {
    for in_tick in [false, true] {
        in_each_mode(move |sys| {
            let scene = Scene::new(sys);
            inside(|kernel| {
                let (leader, group) = (find(kernel, scene.leader), group(kernel, &scene));
                let _tick = in_tick.then(spl::tick);
                kernel.pgsignal_self(&group, &leader, info());
            });
            assert_eq!(scene.counts_later(sys), TO_GROUP);
        });
    }
}

/// *Self* is the process that created the event, whichever thread generates the signal and
/// whichever group *self* has joined or left since.
#[test]
fn deferred_event_keeps_sending_process() {
    in_each_mode(|sys| {
        let scene = Scene::new(sys);
        inside(|kernel| {
            let (member, group) = (find(kernel, scene.member), group(kernel, &scene));
            let _tick = spl::tick();
            kernel.pgsignal_self(&group, &member, info());
        });
        sys.setpgid(scene.member, scene.member).expect("the target is a child");
        assert_eq!(scene.counts_later(sys), TO_GROUP, "it has left the group");
    });
}

/// On a uniprocessor `psignal_inthread` takes no lock, so a tick may call it: `psignal` is this
/// routine there.
#[cfg(debug_assertions)]
#[test]
fn inthread_routines_panic_in_tick() {
    let takes_locks: [(Entry, bool); 4] = [
        (PSIGNAL_INTHREAD, false),
        (PGSIGNAL_INTHREAD, true),
        (PGSIGNAL_INTHREAD_SELF, true),
        (PGSIGNAL_INTERNAL, true),
    ];
    for (entry, on_a_uniprocessor) in takes_locks {
        in_each_mode(move |sys| {
            let scene = Scene::new(sys);
            let refused = inside(|kernel| {
                let (leader, me) = (find(kernel, scene.leader), find(kernel, scene.me));
                let group = group(kernel, &scene);
                let called = catch_unwind(AssertUnwindSafe(|| {
                    let _tick = spl::tick();
                    entry(kernel, &group, &leader, &me);
                }));
                if !on_a_uniprocessor && kernel.config.mode == LockingMode::Uniprocessor {
                    called.expect("no lock is taken in this mode");
                    return false;
                }
                let refused = called.expect_err("a tick may occur while these locks are held");
                let text = refused.downcast::<String>().expect("a text");
                assert!(text.contains("spl: "), "{text}");
                true
            });
            assert_eq!(scene.counts_later(sys), if refused { TO_NONE } else { TO_ONE });
        });
    }
}
