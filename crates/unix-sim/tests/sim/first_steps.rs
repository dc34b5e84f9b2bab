//! Basic programs, in every mode and on every executor.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tontine_unix::*;
use tontine_unix_sim::*;

use crate::systems::{is_included, of};

fn all() -> Vec<Virtual> {
    let mut all = vec![];
    for mode in LockingMode::ALL {
        for executor in
            [Executor::Simulated { seed: 1 }, Executor::Simulated { seed: 99 }, Executor::Parallel]
        {
            if is_included(mode, executor) {
                all.push(of(mode, executor).build().unwrap());
            }
        }
    }
    all
}

#[test]
fn wait_returns_child_status() {
    for unix in all() {
        eprintln!("{unix:?}");
        let report = unix.run(|sys| {
            let child = sys.fork(|_| 7).unwrap();
            let waited = sys.wait().unwrap();
            assert_eq!(waited.pid, child);
            assert_eq!(sys.wait(), Err(Errno::ECHILD));
            waited.status.exited().unwrap()
        });
        assert_eq!(
            (report.ending, report.status),
            (EndReason::Finished, Some(WaitStatus::Exited(7))),
            "{report:?}"
        );
    }
}

#[test]
fn two_processes_exchange_signals() {
    for unix in all() {
        eprintln!("{unix:?}");
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let report = unix.run(move |sys| {
            let inner = Arc::clone(&seen);
            sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::USR1])))).unwrap();
            let child = sys
                .fork(move |sys| {
                    let n = Arc::clone(&inner);
                    sys.sigaction(
                        Signal::USR1,
                        Some(SigAction::handler(move |_, _| {
                            n.fetch_add(1, Ordering::Relaxed);
                        })),
                    )
                    .unwrap();
                    while inner.load(Ordering::Relaxed) < 100 {
                        sys.sigsuspend(SigSet::EMPTY);
                    }
                    3
                })
                .unwrap();
            while sys.kill(child.into(), Some(Signal::USR1)).is_ok() {
                if let Ok(Some(waited)) = sys.waitpid(child.into(), WaitOptions::NOHANG) {
                    return waited.status.exited().unwrap_or(99);
                }
            }
            1
        });
        assert_eq!(
            (report.ending, report.status),
            (EndReason::Finished, Some(WaitStatus::Exited(3))),
            "{report:?}"
        );
    }
}

#[test]
fn cpu_limit_terminates_computing_program() {
    for unix in all() {
        if format!("{unix:?}").contains("Simulated") {
            continue;
        }
        let report = unix.run(|sys| {
            let child = sys
                .fork(|sys| {
                    sys.setrlimit(Resource::Cpu, Rlimit { soft: 1, hard: u64::MAX }).unwrap();
                    loop {
                        sys.poll();
                    }
                })
                .unwrap();
            let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(waited.status, WaitStatus::Signaled(Signal::XCPU, true));
            assert!(
                waited.usage.user + waited.usage.system >= std::time::Duration::from_millis(900)
            );
            0
        });
        assert_eq!(report.status, Some(WaitStatus::Exited(0)), "{unix:?}");
    }
}

#[inline(never)]
fn deep(n: u64) -> u64 {
    let a = [n; 64];
    std::hint::black_box(&a);
    if n == u64::MAX { 0 } else { deep(n + 1) + a[(n % 64) as usize] }
}

#[test]
fn stack_overflow_raises_sigsegv_in_its_process() {
    for unix in all() {
        let report = unix.run(|sys| {
            let child = sys
                .fork(|_| {
                    std::hint::black_box(deep(0));
                    0
                })
                .unwrap();
            let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(waited.status, WaitStatus::Signaled(Signal::SEGV, true));
            0
        });
        assert_eq!(report.status, Some(WaitStatus::Exited(0)), "{unix:?} {report:?}");
    }
}
