//! Users, limits and priorities.

use tontine_unix::{
    Errno, Pid, PriorityScope, Resource, Rlimit, SigAction, Signal, Sys, WaitStatus,
};

use crate::scene::{end, play, reap, sleeper};

/// Returns an unprivileged uid that no other test uses at the same time, because limits are per
/// user.
fn unused_uid(sys: &dyn Sys) -> u32 {
    1_000_000 + sys.getpid().number().unsigned_abs()
}

/// Returns `true` if this process may change its user; otherwise, tests that change the user are
/// skipped.
fn privileged(sys: &dyn Sys) -> bool {
    sys.geteuid() == 0
}

#[test]
fn setrlimit_sets_limit_and_refuses_soft_above_hard() {
    play(|sys| {
        for resource in Resource::ALL {
            let old = sys.getrlimit(resource);
            let new = Rlimit { soft: old.soft.min(50), hard: old.hard };
            assert_eq!(sys.setrlimit(resource, new), Ok(()));
            assert_eq!(sys.getrlimit(resource), new);
            let above = Rlimit { soft: 60, hard: 59 };
            assert_eq!(sys.setrlimit(resource, above), Err(Errno::EINVAL));
        }
    });
}

#[test]
fn fork_at_the_process_limit_returns_eagain() {
    play(|sys| {
        if !privileged(sys) {
            return;
        }
        let unused_uid = unused_uid(sys);
        sys.setuid(unused_uid).unwrap();
        assert_eq!((sys.getuid(), sys.geteuid()), (unused_uid, unused_uid));
        sys.setrlimit(Resource::Processes, Rlimit::of(2)).unwrap();
        let child = sleeper(sys);
        assert_eq!(sys.fork(|_| 0), Err(Errno::EAGAIN));
        assert_eq!(sys.thread(|_| {}), Err(Errno::EAGAIN));
        let spawn = tontine_unix::SpawnRequest::new("/bin/true", &["true"]);
        assert_eq!(sys.spawn(&spawn), Err(Errno::EAGAIN));
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        reap(sys, child);
        let child = sys.fork(|_| 0).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
        let hard = Rlimit::of(3);
        assert_eq!(sys.setrlimit(Resource::Processes, hard), Err(Errno::EPERM));
    });
}

#[test]
fn unprivileged_user_cannot_signal_or_become_another() {
    play(|sys| {
        if !privileged(sys) {
            return;
        }
        let roots = sleeper(sys);
        let child = sys.fork(move |sys| {
            sys.setuid(unused_uid(sys)).unwrap();
            assert_eq!(sys.setuid(0), Err(Errno::EPERM));
            let other = Pid::number_only(roots.number());
            assert_eq!(sys.kill(other.into(), Some(Signal::KILL)), Err(Errno::EPERM));
            0
        });
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
        sys.kill(roots.into(), Some(Signal::KILL)).unwrap();
        reap(sys, roots);
    });
}

#[test]
fn signals_queue_up_to_the_pending_limit() {
    play(|sys| {
        let signal = Signal::RTMIN;
        let set = tontine_unix::SigSet::of(&[signal]);
        sys.sigprocmask(Some((tontine_unix::SigmaskHow::Block, set))).unwrap();
        if privileged(sys) {
            sys.setuid(unused_uid(sys)).unwrap();
        }
        sys.setrlimit(Resource::PendingSignals, Rlimit::of(3)).unwrap();
        let me = sys.getpid();
        let refused = (0..10).map(|n| sys.sigqueue(me, Some(signal), n)).find(Result::is_err);
        assert_eq!(refused, Some(Err(Errno::EAGAIN)));
    });
}

#[test]
fn process_beyond_cpu_limit_receives_sigxcpu() {
    play(|sys| {
        let child = sys.fork(|sys| {
            sys.setrlimit(Resource::Cpu, Rlimit { soft: 1, hard: 10 }).unwrap();
            loop {
                sys.poll();
            }
        });
        assert_eq!(end(sys, child.unwrap()).signaled(), Some(Signal::XCPU));
    });
}

#[test]
fn nice_value_is_clamped_and_not_lowered_without_privilege() {
    play(|sys| {
        let me = PriorityScope::Process(Pid::number_only(0));
        // The user that runs the tests may already have a higher nice value.
        let nice = sys.getpriority(me).unwrap().max(5);
        sys.setpriority(me, nice).unwrap();
        assert_eq!(sys.getpriority(me), Ok(nice));
        let child = sleeper(sys);
        assert_eq!(sys.getpriority(PriorityScope::Process(child)), Ok(nice));
        sys.setpriority(PriorityScope::Process(child), 1000).unwrap();
        assert_eq!(sys.getpriority(PriorityScope::Process(child)), Ok(19));
        sys.setpgid(child, child).unwrap();
        assert_eq!(sys.getpriority(PriorityScope::Group(child)), Ok(19));
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        reap(sys, child);
        assert_eq!(sys.getpriority(PriorityScope::Process(child)), Err(Errno::ESRCH));
        assert_eq!(sys.getpriority(PriorityScope::Group(child)), Err(Errno::ESRCH));
        if privileged(sys) {
            sys.setpriority(me, -3).unwrap();
            assert_eq!(sys.getpriority(me), Ok(-3));
            sys.setuid(unused_uid(sys)).unwrap();
            assert_eq!(sys.setpriority(me, -4), Err(Errno::EACCES));
            let another = PriorityScope::Process(sys.getppid());
            assert_eq!(sys.setpriority(another, 10), Err(Errno::EPERM));
        }
    });
}

#[test]
fn cpu_limit_sends_sigxcpu_once_then_kills_at_hard_limit() {
    play(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let child = sys.fork(move |sys| {
            let handler = SigAction::handler(move |sys, _| {
                let raised = sys.getrlimit(Resource::Cpu);
                assert_eq!(sys.write(to, &[raised.soft as u8, raised.hard as u8]), Ok(2));
            });
            sys.sigaction(Signal::XCPU, Some(handler)).unwrap();
            sys.setrlimit(Resource::Cpu, Rlimit { soft: 1, hard: 2 }).unwrap();
            loop {
                sys.poll();
            }
        });
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Signaled(Signal::KILL, false));
        sys.close(to).unwrap();
        let mut told = [0; 8];
        assert_eq!((sys.read(from, &mut told), &told[..2]), (Ok(2), &[2, 2][..]));
    });
}
