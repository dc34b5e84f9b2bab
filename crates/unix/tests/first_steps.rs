//! First steps.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tontine_unix::*;

fn all() -> Vec<Virtual> {
    let mut all = vec![];
    for mode in Mode::ALL {
        for executor in
            [Executor::Simulated { seed: 1 }, Executor::Simulated { seed: 99 }, Executor::Parallel]
        {
            let processors = if mode == Mode::Uniprocessor { 1 } else { 2 };
            all.push(
                Virtual::builder()
                    .mode(mode)
                    .processors(processors)
                    .executor(executor)
                    .build()
                    .unwrap(),
            );
        }
    }
    all
}

#[test]
fn a_child_is_waited_for() {
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
            (Ending::Finished, Some(Status::Exited(7))),
            "{report:?}"
        );
    }
}

#[test]
fn signals_go_back_and_forth() {
    for unix in all() {
        eprintln!("{unix:?}");
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let report = unix.run(move |sys| {
            let inner = Arc::clone(&seen);
            sys.sigprocmask(Some((How::Block, SigSet::of(&[Signal::USR1])))).unwrap();
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
            (Ending::Finished, Some(Status::Exited(3))),
            "{report:?}"
        );
    }
}
