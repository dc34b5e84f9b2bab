//! Processor time: the process that is charged, and the limit.

use super::seconds::in_computed_seconds;
use crate::rules::harness::*;

/// Processor time that a computation uses, which is many times what a fork and a wait use.
const WORK: Duration = Duration::from_millis(100);

fn used(usage: Usage) -> Duration {
    usage.user + usage.system
}

/// Computes until the calling process itself has used `work`.
fn compute(sys: &dyn Sys, work: Duration) {
    while used(sys.getrusage()) < work {
        sys.poll();
    }
}

fn waited(sys: &dyn Sys, child: Pid) -> WaitedChild {
    sys.waitpid(child.into(), WaitOptions::empty()).unwrap().expect("the wait blocks")
}

#[test]
fn reaped_child_time_counts_and_unreaped_does_not() {
    everywhere(|sys| {
        let worker = |sys: &dyn Sys| {
            compute(sys, WORK);
            21
        };
        let child = sys.fork(worker).unwrap();
        let found = waited(sys, child);
        assert_eq!(found.status, WaitStatus::Exited(21));
        assert!(used(found.usage) >= WORK, "the child's own time");
        for ignored in [false, true] {
            let child = sys
                .fork(move |sys| {
                    if ignored {
                        act(sys, Signal::CHLD, SigAction::IGNORE);
                    }
                    sys.fork(worker).unwrap();
                    i32::from(sys.wait() == Err(Errno::ECHILD))
                })
                .unwrap();
            let found = waited(sys, child);
            assert_eq!(found.status, WaitStatus::Exited(ignored.into()));
            assert_eq!(used(found.usage) < WORK, ignored, "the grandchild's time");
        }
    })
    .and_on_linux();
}

#[test]
#[ignore = "computes for seconds"]
fn sigxcpu_repeats_until_sigkill_at_the_hard_limit() {
    in_computed_seconds(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let child = sys
            .fork(move |sys| {
                let tell = SigAction::handler(move |sys, _| {
                    let _ = sys.write(to, b"!");
                });
                act(sys, Signal::XCPU, tell);
                sys.setrlimit(Resource::Cpu, Rlimit { soft: 1, hard: 3 }).unwrap();
                loop {
                    sys.poll();
                }
            })
            .unwrap();
        sys.close(to).unwrap();
        let found = waited(sys, child);
        assert_eq!(found.status, WaitStatus::Signaled(Signal::KILL, false));
        // Linux excludes only the time that the hypervisor stole from this figure.
        assert!(used(found.usage) > Duration::from_secs(2), "{:?}", found.usage);
        assert_eq!(sys.read(from, &mut [0; 8]), Ok(2), "after one second and after two");
    });
}

#[test]
#[ignore = "computes for seconds"]
fn child_inherits_the_cpu_limit_with_no_time_used() {
    in_computed_seconds(|sys| {
        let child = sys
            .fork(|sys| {
                sys.setrlimit(Resource::Cpu, Rlimit::of(1)).unwrap();
                compute(sys, Duration::from_millis(500));
                let child = sys
                    .fork(|sys| {
                        loop {
                            sys.poll();
                        }
                    })
                    .unwrap();
                let found = waited(sys, child);
                assert_eq!(found.status, WaitStatus::Signaled(Signal::KILL, false));
                let used = used(found.usage);
                assert!(used > Duration::from_millis(700), "{used:?}");
                0
            })
            .unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(0));
    });
}
