//! The state that a child does not inherit from its parent.

use super::harness::*;

#[test]
fn child_of_threaded_parent_has_one_thread() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let thread = sys.thread(move |sys| bell.heard(sys)).unwrap();
        let end = end_as(sys, move |sys| {
            assert_eq!(sys.join(thread), Err(Errno::ESRCH));
            assert_eq!(sys.tgkill(sys.getpid(), thread, None), Err(Errno::ESRCH));
            assert_eq!(sys.gettid().0, sys.getpid().number());
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        bell.ring(sys);
        sys.join(thread).unwrap();
    })
    .and_on_linux();
}

#[test]
fn child_starts_with_no_processor_time_used() {
    timed(|sys| {
        let time = Duration::from_millis(100);
        let before = use_up(sys, time);
        end_as(sys, move |sys| i32::from(use_up(sys, time) < time));
        let child = sys
            .fork(move |sys| {
                let own = sys.getrusage();
                i32::from(own.user + own.system < before)
            })
            .unwrap();
        let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.status, WaitStatus::Exited(1));
        let usage = waited.usage;
        assert!(
            usage.user + usage.system < time,
            "the time of an earlier child was included: {usage:?}"
        );
    })
    .and_on_linux();
}

/// Computes until the process has used `time`; returns the processor time used by then.
fn use_up(sys: &dyn Sys, time: Duration) -> Duration {
    loop {
        let used = sys.getrusage();
        if used.user + used.system >= time {
            return used.user + used.system;
        }
        sys.poll();
    }
}

#[test]
fn child_pid_differs_from_all_live_pids_and_groups() {
    everywhere_with(
        |builder| builder.pids(320),
        |sys| {
            // Numbers below 300 are assigned only once; from 300 upwards the allocator wraps
            // around.
            while reaped(sys) < 300 {}
            let living = [(); 5].map(|()| sys.fork(sleep_on).unwrap());
            let [leader, member, ..] = living;
            sys.setpgid(leader, leader).unwrap();
            sys.setpgid(member, leader).unwrap();
            kill(sys, leader, Signal::KILL);
            end_of(sys, leader);
            let taken = living.map(Pid::number);
            let given: Vec<_> = (0..60).map(|_| reaped(sys)).collect();
            assert!(given.iter().all(|number| !taken.contains(number)), "{taken:?} {given:?}");
            let again = given.iter().filter(|&number| *number == given[0]).count();
            assert!(again > 1, "the numbers did not wrap around: {given:?}");
            sys.kill(SignalTarget::Group(leader), Some(Signal::KILL)).unwrap();
            end_of(sys, member);
            assert!((0..60).any(|_| reaped(sys) == leader.number()), "the group has no member");
        },
    );
}

/// Returns the number of a child that has exited and been reaped.
fn reaped(sys: &dyn Sys) -> i32 {
    let child = sys.fork(|_| 0).unwrap();
    end_of(sys, child);
    child.number()
}
