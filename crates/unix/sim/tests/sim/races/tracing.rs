//! Races between a tracer that waits or dies and its tracee's parent that waits or dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{
    Children, Errno, Pid, Ptrace, Resource, Rlimit, Signal, Sys, WaitOptions, WaitStatus,
};

use crate::children::{await_set, forked, pauses, send, threaded};
use crate::races::explore::holds;

const KILLED: WaitStatus = WaitStatus::Signaled(Signal::KILL, false);

/// Waits until a child or a tracee has ended and returns its status.
fn end(sys: &dyn Sys, pid: Pid) -> Result<WaitStatus, Errno> {
    loop {
        let found = sys.waitpid(pid.into(), WaitOptions::empty())?;
        let status = found.expect("the wait blocks").status;
        if status.is_terminated() {
            return Ok(status);
        }
    }
}

/// A tracee ends, and two threads of its tracer wait for it. Tracer and parent are each notified
/// once; the parent is notified after the tracer has waited or died. Until then the parent's wait
/// never fails with `ECHILD`.
fn both_wait(sys: &dyn Sys, tracer_waits: bool) -> i32 {
    let child = forked(sys, pauses);
    let attached = Arc::new(AtomicBool::new(false));
    let says = attached.clone();
    let tracer = forked(sys, move |sys| {
        sys.ptrace(Ptrace::Attach(child)).expect("permitted");
        says.store(true, Ordering::Relaxed);
        send(sys, child, Signal::KILL);
        if !tracer_waits {
            return 0;
        }
        let lost = Arc::new(AtomicBool::new(false));
        let other_lost = lost.clone();
        let other = threaded(sys, move |sys| {
            other_lost.store(end(sys, child) == Err(Errno::ECHILD), Ordering::Relaxed);
        });
        let mine = end(sys, child);
        sys.join(other).expect("a thread of the caller");
        let other_lost = lost.load(Ordering::Relaxed);
        i32::from(match mine {
            Ok(status) => status != KILLED || !other_lost,
            Err(errno) => errno != Errno::ECHILD || other_lost,
        })
    });
    await_set(sys, &attached);
    let seen = loop {
        match sys.waitpid(child.into(), WaitOptions::NOHANG) {
            Ok(None) => sys.sched_yield(),
            other => break other.map(|found| found.map(|waited| waited.status)),
        }
    };
    let tracers = end(sys, tracer);
    let alone = sys.waitpid(Children::Any, WaitOptions::NOHANG) == Err(Errno::ECHILD);
    i32::from((seen, tracers, alone) != (Ok(Some(KILLED)), Ok(WaitStatus::Exited(0)), true))
}

/// A tracee has ended. Its parent dies while its tracer waits for it or dies too. The subreaper
/// that inherits the tracee reaps it after the tracer.
fn parent_dies(sys: &dyn Sys, tracer_waits: bool) -> i32 {
    sys.set_subreaper(true).expect("permitted");
    let ended = Arc::new(AtomicBool::new(false));
    let (says, sees) = (ended.clone(), ended);
    forked(sys, move |sys| {
        let child = forked(sys, pauses);
        forked(sys, move |sys| {
            sys.ptrace(Ptrace::Attach(child)).expect("permitted");
            send(sys, child, Signal::KILL);
            let looks = WaitOptions::EXITED | WaitOptions::NOWAIT;
            while !sys
                .waitid(child.into(), looks)
                .expect("a tracee of the caller")
                .expect("the wait blocks")
                .status
                .is_terminated()
            {
                sys.sched_yield();
            }
            says.store(true, Ordering::Relaxed);
            i32::from(tracer_waits && end(sys, child) != Ok(KILLED))
        });
        await_set(sys, &sees);
        0
    });
    let mut ends = Vec::new();
    while let Ok(waited) = sys.wait() {
        ends.push(waited.status);
    }
    let killed = ends.iter().filter(|status| **status == KILLED).count();
    let exited = ends.iter().filter(|status| **status == WaitStatus::Exited(0)).count();
    i32::from((killed, exited, ends.len()) != (1, 2, 3))
}

#[test]
fn waiting_tracer_and_parent_are_each_notified_once() {
    holds(|sys| both_wait(sys, true));
}

#[test]
fn parent_is_notified_once_while_the_tracer_dies() {
    holds(|sys| both_wait(sys, false));
}

#[test]
fn ended_tracee_is_inherited_once_while_the_tracer_waits() {
    holds(|sys| parent_dies(sys, true));
}

#[test]
fn ended_tracee_is_inherited_once_while_the_tracer_dies() {
    holds(|sys| parent_dies(sys, false));
}

/// Polls until a child has ended; returns `false` if the child does not exist.
fn polls(sys: &dyn Sys, child: Pid) -> bool {
    loop {
        match sys.waitpid(child.into(), WaitOptions::NOHANG) {
            Ok(None) => {}
            waited => return waited.is_ok(),
        }
    }
}

/// A tracer kills its tracee and exits, while the parent of both polls for the tracee. The tracee
/// is counted as ended only once, so its user's process count is correct afterwards.
#[test]
fn tracee_ending_with_its_tracer_is_counted_once() {
    holds(|sys| {
        sys.setuid(7).expect("permitted");
        let tracee = forked(sys, pauses);
        let tracer = forked(sys, move |sys| {
            sys.ptrace(Ptrace::Attach(tracee)).expect("permitted");
            send(sys, tracee, Signal::KILL);
            (0..5).for_each(|_| sys.sched_yield());
            0
        });
        let both = polls(sys, tracee) && polls(sys, tracer);
        let alone = sys.wait() == Err(Errno::ECHILD);
        sys.setrlimit(Resource::Processes, Rlimit { soft: 1, hard: 1 })
            .expect("the limit is lowered");
        let full = sys.fork(|_| 0) == Err(Errno::EAGAIN);
        i32::from(!(both && alone && full))
    });
}
