//! The modelled executor, whose time is the sum of the costs of its steps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tontine_unix::{SigAction, SigSet, SigmaskHow, Signal, Sys};
use tontine_unix_sim::{CostKind, CostModel, EndReason, Executor, LockingMode, RunReport, Virtual};

use crate::children::forked;

/// Runs `program` on a system with `processors` processors, and returns its result and the report.
fn run<T: Send + 'static>(
    (mode, processors, seed, costs): (LockingMode, usize, u64, CostModel),
    program: impl FnOnce(&dyn Sys) -> T + Send + 'static,
) -> (T, RunReport) {
    let unix = Virtual::builder()
        .mode(mode)
        .processors(processors)
        .executor(Executor::Modelled { seed })
        .costs(costs)
        .statistics(true)
        .build()
        .expect("a valid configuration");
    let found = Arc::new(Mutex::new(None));
    let ours = Arc::clone(&found);
    let report = unix.run(move |sys| {
        *ours.lock().expect("no panic") = Some(program(sys));
        0
    });
    assert_eq!(report.ending, EndReason::Finished, "{report:?}");
    let found = found.lock().expect("no panic").take().expect("the program has ended");
    (found, report)
}

/// Waits for `children` children.
fn wait_for(sys: &dyn Sys, children: usize) {
    for _ in 0..children {
        sys.wait().expect("a child exists");
    }
}

/// Returns a program that runs pairs of processes that signal each other. Each pair has its own two
/// processors if there are enough, and the program returns the elapsed time.
fn pairs(pairs: usize, processors: usize) -> impl FnOnce(&dyn Sys) -> Duration + Send + 'static {
    move |sys| {
        let block = SigSet::of(&[Signal::USR1]);
        sys.sigprocmask(Some((SigmaskHow::Block, block))).expect("a mask");
        let begun = sys.now();
        for pair in 0..pairs {
            sys.place(Some(2 * pair % processors)).expect("a processor");
            let receiver = forked(sys, |sys| {
                sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).expect("set");
                for _ in 0..200 {
                    sys.sigsuspend(SigSet::EMPTY);
                }
                0
            });
            sys.place(Some((2 * pair + 1) % processors)).expect("a processor");
            forked(sys, move |sys| {
                while sys.kill(receiver.into(), Some(Signal::USR1)).is_ok() {}
                0
            });
        }
        wait_for(sys, 2 * pairs);
        sys.now() - begun
    }
}

#[test]
fn modelled_run_repeats_for_equal_seed_and_costs() {
    for mode in LockingMode::ALL {
        let processors = if mode == LockingMode::Uniprocessor { 1 } else { 4 };
        let once =
            |seed| run((mode, processors, seed, CostModel::published()), pairs(3, processors));
        let ((time, one), (again, two)) = (once(7), once(7));
        assert_eq!((time, one.digest, one.steps), (again, two.digest, two.steps), "{mode}");
        assert_eq!(one.locks, two.locks, "{mode}");
        assert_ne!(one.digest, once(8).1.digest, "{mode}");
    }
}

#[test]
fn modelled_processors_compute_concurrently() {
    let work = Duration::from_millis(30);
    for (processors, least, most) in [(1, 4.0, 4.1), (2, 2.0, 2.1), (4, 1.0, 1.1), (8, 1.0, 1.1)] {
        let at = (LockingMode::Parallel, processors, 1, CostModel::published());
        let (time, _) = run(at, move |sys| {
            let begun = sys.now();
            for number in 0..4 {
                // A running process stays on its processor, as on real processors.
                sys.place(Some(number % processors)).expect("a processor");
                forked(sys, move |sys| {
                    sys.compute(work);
                    0
                });
            }
            wait_for(sys, 4);
            sys.now() - begun
        });
        let ratio = time.as_secs_f64() / work.as_secs_f64();
        assert!(ratio >= least && ratio < most, "{processors}: {ratio}");
    }
}

#[test]
fn modelled_sleep_uses_time_but_no_processor() {
    let (times, report) = run((LockingMode::Parallel, 1, 1, CostModel::published()), |sys| {
        let begun = sys.now();
        for _ in 0..3 {
            forked(sys, |sys| i32::from(sys.nanosleep(Duration::from_secs(3600)).is_err()));
        }
        let forked = sys.now() - begun;
        wait_for(sys, 3);
        (forked, sys.now() - begun)
    });
    assert!(times.0 < Duration::from_millis(1), "{times:?}");
    let hour = Duration::from_secs(3600);
    assert!(times.1 >= hour && times.1 < hour + Duration::from_millis(1), "{times:?}");
    assert_eq!(report.abandoned, 0);
}

#[test]
fn modelled_call_time_grows_with_the_cost_of_its_steps() {
    let per_call = |costs: CostModel| {
        let (time, _) = run((LockingMode::Parallel, 1, 1, costs), |sys| {
            let begun = sys.now();
            (0..1000).for_each(|_| sys.poll());
            sys.now() - begun
        });
        time.as_nanos() as f64 / 1000.0
    };
    let cheap = per_call(CostModel::NONE.with(CostKind::Call, 10.0));
    let dear = per_call(CostModel::NONE.with(CostKind::Call, 110.0));
    // The mean of a thousand costs, each of which varies by an eighth, is accurate within 1%.
    assert!((9.9..10.1).contains(&cheap), "{cheap}");
    assert!((108.9..111.1).contains(&dear), "{dear}");
}

#[test]
fn modelled_lock_waits_appear_in_the_lock_statistics() {
    let at = |processors| {
        // A waiting thread blocks after a fiftieth of the usual time.
        let costs = CostModel::published().with(CostKind::Spin, 0.5);
        let (_, report) = run((LockingMode::Parallel, processors, 1, costs), move |sys| {
            for number in 0..processors {
                sys.place(Some(number)).expect("a processor");
                forked(sys, |sys| {
                    for _ in 0..100 {
                        forked(sys, |_| 0);
                        sys.wait().expect("a child exists");
                    }
                    0
                });
            }
            wait_for(sys, processors);
        });
        let locks = report.locks.expect("statistics were collected");
        let group = locks.rows.into_iter().find(|row| row.name == "pg_lock").expect("a row");
        (group.waited_percent().expect("the lock was taken"), group.blocked)
    };
    let (alone, blocked_alone) = at(1);
    let (many, blocked) = at(16);
    assert_eq!((alone, blocked_alone), (0.0, 0));
    assert!(many > 10.0 && blocked > 0, "{many} %, {blocked} blocked");
}

/// Regression: a service fiber of the master processed new calls as long as any arrived. With eight
/// pairs on ten processors, calls arrived without end, so processes that had slept in a call and
/// had been woken never ran again. Receivers handled only one signal in thousands.
#[test]
fn master_resumes_processes_that_slept_in_a_call() {
    let ((), report) = run((LockingMode::Master, 10, 1, CostModel::published()), |sys| {
        pairs(10, 10)(sys);
    });
    // Each of 10 receivers takes 200 signals, and each kill lasts at most a microsecond.
    assert!(report.elapsed < Duration::from_millis(50), "{:?}", report.elapsed);
}
