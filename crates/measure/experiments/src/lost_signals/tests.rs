//! Tests of which signals the five wait methods must lose and must not lose. Each test runs in its
//! own process, which forks the receiver while it is single-threaded.

use super::*;

fn receiver(way: WaitMethod, window_ns: f64, signals: [libc::c_int; 2]) -> BurstReceiver {
    let plan = BurstPlan { way, placement: usual(), window_ns, clock: Clock::monotonic(), signals };
    BurstReceiver::new(plan).expect("a receiver")
}

const ALL: [WaitMethod; 5] = [
    WaitMethod::Pause,
    WaitMethod::Sigsuspend,
    WaitMethod::Sigwait,
    WaitMethod::Signalfd,
    WaitMethod::Library,
];

/// Nanoseconds between a report and the next wait. The sender replies inside the first window, even
/// on one processor. If the machine is busy, it replies inside one of the wider windows.
const WINDOWS_NS: [f64; 3] = [2_000_000.0, 20_000_000.0, 200_000_000.0];

/// The default action of SIGQUIT would end the receiver. Each signal is reported by its number.
#[test]
fn atomic_unblock_and_wait_misses_no_wake_up() {
    in_a_process_of_its_own(|| {
        for way in ALL {
            for (window_ns, second) in [(0.0, SIGNAL), (20_000.0, SIGNAL), (0.0, libc::SIGQUIT)] {
                if way == WaitMethod::Library && second != SIGNAL {
                    continue;
                }
                let missed = receiver(way, window_ns, [SIGNAL, second]).acknowledged(100);
                let missed = missed.expect("reports");
                let right = way == WaitMethod::Pause || !missed.contains(&true);
                assert!(missed.len() == 100 && right, "{way:?} with {window_ns} ns: {missed:?}");
            }
        }
    });
}

#[test]
fn signal_between_check_and_pause_is_missed() {
    in_a_process_of_its_own(|| {
        let missed = |window_ns| {
            receiver(WaitMethod::Pause, window_ns, [SIGNAL; 2]).acknowledged(20).expect("reports")
        };
        assert!(WINDOWS_NS.into_iter().any(|window| missed(window).contains(&true)));
    });
}

#[test]
fn burst_signals_merge_and_counts_stay_consistent() {
    in_a_process_of_its_own(|| {
        for way in ALL {
            let bursts = receiver(way, 0.0, [SIGNAL; 2]).bursts(20).expect("bursts");
            assert_eq!(bursts.len(), 20);
            for burst in bursts {
                let Burst { announced, reached, missed } = burst;
                assert!(
                    (1..=BURST).contains(&reached) && announced <= reached,
                    "{way:?}: {burst:?}"
                );
                let whole = announced == reached && !missed;
                assert!(way == WaitMethod::Pause || whole, "{way:?} lost what it had: {burst:?}");
            }
        }
    });
}

#[test]
fn slow_receiver_sees_merged_signals() {
    in_a_process_of_its_own(|| {
        let bursts = |window_ns| {
            receiver(WaitMethod::Sigwait, window_ns, [SIGNAL; 2]).bursts(5).expect("bursts")
        };
        let merged = |window| bursts(window).iter().any(|burst| burst.reached < BURST);
        assert!(WINDOWS_NS.into_iter().any(merged), "nothing merged");
    });
}

#[test]
fn library_loses_no_queued_signal() {
    in_a_process_of_its_own(|| {
        for window_ns in [0.0, 100_000.0] {
            let bursts = receiver(WaitMethod::Library, window_ns, [libc::SIGRTMIN(); 2]).bursts(20);
            let all = Burst { announced: BURST, reached: BURST, missed: false };
            assert_eq!(bursts.expect("bursts"), [all; 20], "{window_ns}");
        }
    });
}

#[test]
fn tgkill_reaches_named_thread() {
    in_a_process_of_its_own(|| {
        let threads = ThreadSetup { main_blocks: false, one_runs: false };
        let taken = directed::to_thread(threads, usual(), 4 * THREADS).expect("signals");
        assert!(taken.iter().all(|(named, takers)| takers == &[*named]), "{taken:?}");
    });
}

#[test]
fn process_directed_signal_reaches_unblocked_thread() {
    in_a_process_of_its_own(|| {
        for one_runs in [false, true] {
            let threads = ThreadSetup { main_blocks: true, one_runs };
            let taken = directed::to_process(threads, usual(), 1, 20).expect("signals");
            let right = |takers: &Vec<u32>| takers.len() == 1 && takers[0] != MAIN;
            assert!(taken.iter().all(right), "main blocks the signal: {taken:?}");
        }
    });
}

/// A burst may lose signals without missing a wake-up; with single signals, each loss is a missed
/// wake-up. The signals of the warm-up are not counted.
#[test]
fn every_cell_of_a_full_run_yields_shares() {
    in_a_process_of_its_own(|| {
        for variant in LostSignals.variants() {
            let cells = LostSignals.params(variant.name, &Topology::of_this_machine(), Size::Full);
            assert!(!cells.is_empty(), "{} has no cell", variant.name);
            for params in cells {
                let observed = measure(variant.name, &params, 20).expect("shares");
                let found = metrics(&observed);
                assert!(observed.series.iter().all(|series| series.unit == "share"));
                if WaitMethod::of(variant.name).is_some() {
                    let burst = word(&params, "sending") == IN_BURSTS;
                    let expected =
                        if burst { &["lost", "merged", "missed"][..] } else { &["lost"] };
                    let counted = if burst { 4 } else { 20 };
                    assert_eq!(found, expected, "{} {params:?}", variant.name);
                    assert!(observed.series.iter().all(|one| one.samples.len() == counted));
                }
            }
        }
    });
}

#[test]
fn note_counts_missed_wake_ups() {
    let note = |missed: &[bool]| of_acknowledged(missed).notes.concat();
    assert_eq!(note(&[false, false]), "none of 2 wake-ups was missed");
    assert!(note(&[true, false]).starts_with("1 of 2 wake-ups were missed"));
}
