//! Processor time: the charged process, the addition of children's time, the CPU limit, and
//! `profil` (§6.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::harness::*;

/// A processor time that is long in comparison with a few system calls.
const LONG: Duration = Duration::from_millis(300);

/// Returns the processor time that the calling process has used.
fn used(sys: &dyn Sys) -> Duration {
    total(sys.getrusage())
}

fn total(usage: Usage) -> Duration {
    usage.user + usage.system
}

/// Computes until the process has used `time`.
fn compute_until(sys: &dyn Sys, time: Duration) {
    while used(sys) < time {
        (0..100).for_each(|_| sys.poll());
    }
}

/// Returns a child that used [`LONG`] and has exited, but has not been reaped.
fn costly_child(sys: &dyn Sys) -> Pid {
    let child = forked(sys, |sys| {
        compute_until(sys, LONG);
        0
    });
    sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
    child
}

#[test]
fn wait3_and_wait4_report_the_time_of_the_child() {
    everywhere(|sys| {
        let child = costly_child(sys);
        let waited = sys.wait4(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert!(total(waited.usage) >= LONG, "{:?}", waited.usage);
        costly_child(sys);
        let waited = sys.wait3(WaitOptions::empty()).unwrap().unwrap();
        assert!(total(waited.usage) >= LONG, "{:?}", waited.usage);
        assert!(used(sys) < LONG, "the child's time is not the caller's own");
    })
    .and_on_linux();
}

#[test]
fn child_time_is_added_when_the_child_is_reaped() {
    timed(|sys| {
        let waits = forked(sys, |sys| {
            let child = costly_child(sys);
            end_of(sys, child);
            i32::from(used(sys) >= LONG)
        });
        let waited = sys.wait4(waits.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(
            waited.status,
            WaitStatus::Exited(0),
            "the child's time is not in the parent's own"
        );
        assert!(total(waited.usage) >= LONG, "{:?}", waited.usage);
    })
    .and_on_linux();
}

#[test]
fn time_of_an_unreaped_child_is_not_added() {
    timed(|sys| {
        let leaves = forked(sys, |sys| {
            costly_child(sys);
            0
        });
        let waited = sys.wait4(leaves.into(), WaitOptions::empty()).unwrap().unwrap();
        assert!(total(waited.usage) < LONG, "{:?}", waited.usage);
    })
    .and_on_linux();
}

#[test]
fn time_of_an_auto_reaped_child_is_not_added() {
    timed(|sys| {
        let ignores = forked(sys, |sys| {
            act(sys, Signal::CHLD, SigAction::IGNORE);
            let child = forked(sys, |sys| {
                compute_until(sys, LONG);
                0
            });
            let gone = sys.waitpid(child.into(), WaitOptions::empty());
            assert_eq!(gone, Err(Errno::ECHILD));
            0
        });
        let waited = sys.wait4(ignores.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.status, WaitStatus::Exited(0));
        assert!(total(waited.usage) < LONG, "{:?}", waited.usage);
    })
    .and_on_linux();
}

/// Runs a program that handles SIGXCPU, exceeds its limit, and receives the signal every second. At
/// each signal the soft limit is one second higher, until the program is killed at the hard limit.
fn exceeds_its_limit(sys: &dyn Sys) {
    let exceeded = Gate::new(sys);
    let child = forked(sys, move |sys| {
        // The signal arrives shortly after the limit was raised, perhaps while the program waits
        // for the heir.
        let opens = SigAction::handler(move |sys, _| exceeded.open(sys));
        act(sys, Signal::XCPU, opens.with_flags(ActionFlags::RESTART));
        sys.setrlimit(Resource::Cpu, Rlimit { soft: 1, hard: 3 }).unwrap();
        let raised = |sys: &dyn Sys, seconds| {
            while sys.getrlimit(Resource::Cpu).soft < seconds {
                (0..100).for_each(|_| sys.poll());
            }
        };
        raised(sys, 2);
        assert!(used(sys) >= LIMIT_AT_LEAST);
        assert_eq!(sys.getrlimit(Resource::Cpu), Rlimit { soft: 2, hard: 3 });
        let heir = forked(sys, |sys| sys.getrlimit(Resource::Cpu).soft as i32);
        assert_eq!(end_of(sys, heir), WaitStatus::Exited(2), "a child inherits the raised limit");
        raised(sys, 3);
        assert!(used(sys) >= 2 * LIMIT_AT_LEAST);
        loop {
            (0..100).for_each(|_| sys.poll());
        }
    });
    let waited = sys.wait4(child.into(), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(waited.status, WaitStatus::Signaled(Signal::KILL, false));
    assert!(total(waited.usage) >= 3 * LIMIT_AT_LEAST, "{:?}", waited.usage);
    exceeded.pass(sys);
    exceeded.pass(sys);
}

/// Minimum measured time per second of the limit. Linux enforces the limit by ticks, which are
/// samples, but reports the measured time.
const LIMIT_AT_LEAST: Duration = Duration::from_millis(500);

#[test]
fn cpu_limit_sends_sigxcpu_per_second_then_sigkill() {
    simulated(|sys| {
        exceeds_its_limit(sys);
    })
    .and_on_linux();
}

#[test]
fn processor_clock_charges_running_process() {
    let unix = Virtual::builder().processors(2).build().unwrap();
    let report = unix.run(|sys| {
        exceeds_its_limit(sys);
        0
    });
    assert_eq!(report.status, Some(WaitStatus::Exited(0)), "{report:?}");
}

#[test]
fn sigxcpu_default_action_terminates_process() {
    simulated(|sys| {
        let end = end_as(sys, |sys| {
            sys.setrlimit(Resource::Cpu, Rlimit { soft: 1, hard: 9 }).unwrap();
            loop {
                sys.poll();
            }
        });
        assert_eq!(end.signaled(), Some(Signal::XCPU));
    })
    .and_on_linux();
}

/// Adds the program `computes`.
fn with_computes(builder: Builder) -> Builder {
    builder.program("computes", |sys, _| {
        compute_until(sys, used(sys) + LONG);
        0
    })
}

type Counts = Arc<[AtomicU32]>;

fn counts() -> Counts {
    Arc::new([const { AtomicU32::new(0) }; 3])
}

fn all(counts: &Counts) -> [u32; 3] {
    [0, 1, 2].map(|mark| counts[mark].load(Ordering::Relaxed))
}

/// Computes until `ticks` ticks have been counted for `mark`.
fn compute_at(sys: &dyn Sys, counts: &Counts, mark: usize, ticks: u32) {
    sys.mark(mark);
    while all(counts)[mark] < ticks {
        sys.poll();
    }
}

#[test]
fn profile_counts_each_tick_at_the_current_mark() {
    everywhere(|sys| {
        let counts = counts();
        let before = used(sys);
        sys.profil(Some(counts.clone())).unwrap();
        compute_at(sys, &counts, 0, 3);
        compute_at(sys, &counts, 2, 5);
        sys.profil(None).unwrap();
        let [zero, one, two] = all(&counts);
        assert!(zero >= 3 && one == 0 && two >= 5, "{:?}", [zero, one, two]);
        let charged = (used(sys) - before).as_millis() / 10;
        // One tick may have arrived between the last check and the end of the profile.
        assert!(u128::from(zero + two) <= charged, "{charged} ticks: {zero} and {two}");
        compute_until(sys, used(sys) + LONG);
        assert_eq!(all(&counts), [zero, one, two], "the profile still counts after its end");
    });
}

#[test]
fn ticks_at_a_mark_out_of_range_are_not_counted() {
    timed(|sys| {
        let counts = counts();
        sys.profil(Some(counts.clone())).unwrap();
        sys.mark(3);
        compute_until(sys, used(sys) + LONG);
        sys.mark(1);
        assert_eq!(all(&counts), [0; 3]);
    });
}

#[test]
fn profile_is_per_thread_and_not_inherited() {
    timed_with(with_computes, |sys| {
        let (mine, others) = (counts(), counts());
        sys.profil(Some(mine.clone())).unwrap();
        sys.mark(1);
        let theirs = others.clone();
        let thread = sys.thread(move |sys| {
            compute_until(sys, used(sys) + LONG);
            sys.profil(Some(theirs.clone())).unwrap();
            compute_at(sys, &theirs, 2, 3);
        });
        sys.join(thread.unwrap()).unwrap();
        let child = forked(sys, |sys| {
            compute_until(sys, LONG);
            0
        });
        end_of(sys, child);
        sys.profil(None).unwrap();
        let [zero, one, two] = all(&mine);
        // Some ticks also land in this thread's system calls.
        assert!(zero == 0 && two == 0 && one < 15, "{:?}", [zero, one, two]);
        assert_eq!(all(&others)[..2], [0, 0]);
        let unprofiled = counts();
        let end = end_as(sys, {
            let unprofiled = unprofiled.clone();
            move |sys| {
                sys.profil(Some(unprofiled)).unwrap();
                sys.mark(1);
                sys.exec("computes", &[]).map_or(1, |never| match never {})
            }
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert!(all(&unprofiled)[1] < 15, "exec does not end the profile");
    });
}

/// While a program makes no system call, the clock writes only to the thread's own word. The next
/// call, or the next mark, counts the ticks that have arrived for the previous mark.
#[test]
fn ticks_between_marks_count_for_earlier_mark() {
    let unix = Virtual::builder().build().unwrap();
    let report = unix.run(|sys| {
        let counts = counts();
        sys.profil(Some(counts.clone())).unwrap();
        sys.mark(1);
        let begun = Instant::now();
        while all(&counts)[1] == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the clock does not tick");
            let slice = Instant::now();
            while slice.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
            sys.mark(2);
            assert_eq!(all(&counts)[2], 0);
            sys.mark(1);
        }
        0
    });
    assert_eq!(report.status, Some(WaitStatus::Exited(0)), "{report:?}");
}

#[test]
fn linux_profil_returns_enosys_and_is_listed() {
    let linux: &dyn Sys = &Linux::new().unwrap();
    assert_eq!(linux.profil(None), Err(Errno::ENOSYS));
    assert!(linux.lacks().iter().any(|(call, _)| *call == "profil"), "{:?}", linux.lacks());
}

#[test]
#[ignore = "computes for seconds"]
fn child_inherits_the_cpu_limit_with_no_time_used() {
    in_real_time(|sys| {
        let end = end_as(sys, |sys| {
            sys.setrlimit(Resource::Cpu, Rlimit::of(1)).unwrap();
            compute_until(sys, Duration::from_millis(500));
            let child = sys.fork(|sys| {
                loop {
                    sys.poll();
                }
            });
            let child = sys.wait4(child.unwrap().into(), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(child.status, WaitStatus::Signaled(Signal::KILL, false));
            assert!(total(child.usage) > Duration::from_millis(700), "{:?}", child.usage);
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn child_starts_with_no_processor_time_used() {
    timed(|sys| {
        compute_until(sys, LONG);
        end_of(sys, costly_child(sys));
        let child = forked(sys, |sys| i32::from(used(sys) < LONG));
        let waited = sys.wait4(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.status, WaitStatus::Exited(1));
        assert!(total(waited.usage) < LONG, "the time of an earlier child: {:?}", waited.usage);
    })
    .and_on_linux();
}
