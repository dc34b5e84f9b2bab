//! Tests of which signals the five wait methods must lose and must not lose. Each test runs in its
//! own process, which forks the receiver while it is single-threaded.

use tontine_bench::machine::topology::Placement;
use tontine_host::peer::in_a_process_of_its_own;

use super::*;

type Checked = std::result::Result<(), String>;

/// Returns the placement that a run uses.
fn usual() -> Placement {
    Topology::of_this_machine().placements()[0]
}

fn scene(way: WaitMethod, window_ns: f64) -> std::result::Result<BurstReceiver, String> {
    of_signals(way, window_ns, [SIGNAL; 2])
}

fn of_signals(
    way: WaitMethod,
    window_ns: f64,
    signals: [libc::c_int; 2],
) -> std::result::Result<BurstReceiver, String> {
    let plan = BurstPlan { way, placement: usual(), window_ns, clock: Clock::monotonic(), signals };
    BurstReceiver::new(&plan).map_err(|trouble| trouble.to_string())
}

#[test]
fn atomic_unblock_and_wait_misses_no_wake_up() {
    in_a_process_of_its_own(|| {
        for way in
            [WaitMethod::Sigsuspend, WaitMethod::Sigwait, WaitMethod::Signalfd, WaitMethod::Library]
        {
            for window_ns in [0.0, 20_000.0] {
                let missed = scene(way, window_ns)?.acknowledged(100);
                let missed = missed.map_err(|trouble| format!("{way:?}: {trouble}"))?;
                if missed.len() != 100 || missed.contains(&true) {
                    return Err(format!(
                        "{way:?} with {window_ns} ns missed a wake-up: {missed:?}"
                    ));
                }
            }
        }
        Ok(())
    });
}

/// The default action of SIGQUIT would end the receiver.
#[test]
fn two_signals_are_each_reported_by_their_number() {
    in_a_process_of_its_own(|| {
        for way in
            [WaitMethod::Pause, WaitMethod::Sigsuspend, WaitMethod::Sigwait, WaitMethod::Signalfd]
        {
            let missed = of_signals(way, 0.0, [SIGNAL, libc::SIGQUIT])?.acknowledged(40);
            let missed = missed.map_err(|trouble| format!("{way:?}: {trouble}"))?;
            if missed.len() != 40 || (way != WaitMethod::Pause && missed.contains(&true)) {
                return Err(format!("{way:?} missed a wake-up: {missed:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn signal_between_check_and_pause_is_missed() {
    in_a_process_of_its_own(|| {
        // The window is wide enough for the sender to reply inside it, even on one processor; on a
        // busy machine, one of the wider windows is.
        for window_ns in [2_000_000.0, 20_000_000.0, 200_000_000.0] {
            let missed = scene(WaitMethod::Pause, window_ns)?.acknowledged(20);
            if missed.map_err(|trouble| trouble.to_string())?.contains(&true) {
                return Ok(());
            }
        }
        Err("nothing was missed".into())
    });
}

#[test]
fn burst_signals_merge_and_counts_stay_consistent() {
    in_a_process_of_its_own(|| -> Checked {
        for way in [
            WaitMethod::Pause,
            WaitMethod::Sigsuspend,
            WaitMethod::Sigwait,
            WaitMethod::Signalfd,
            WaitMethod::Library,
        ] {
            let bursts = scene(way, 0.0)?.bursts(20);
            let bursts = bursts.map_err(|trouble| format!("{way:?}: {trouble}"))?;
            let sane = |burst: &Burst| {
                (1..=BURST).contains(&burst.reached) && burst.announced <= burst.reached
            };
            let one_by_one = |burst: &Burst| burst.announced == burst.reached && !burst.missed;
            if bursts.len() != 20 || !bursts.iter().all(sane) {
                return Err(format!("{way:?}: {bursts:?}"));
            }
            if way != WaitMethod::Pause && !bursts.iter().all(one_by_one) {
                return Err(format!("{way:?} lost what it had in hand: {bursts:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn slow_receiver_sees_merged_signals() {
    in_a_process_of_its_own(|| {
        for window_ns in [2_000_000.0, 20_000_000.0, 200_000_000.0] {
            let bursts = scene(WaitMethod::Sigwait, window_ns)?.bursts(5);
            let bursts = bursts.map_err(|trouble| trouble.to_string())?;
            if bursts.iter().any(|burst| burst.reached < BURST) {
                return Ok(());
            }
        }
        Err("nothing merged".into())
    });
}

#[test]
fn library_loses_no_queued_signal() {
    in_a_process_of_its_own(|| {
        for window_ns in [0.0, 100_000.0] {
            let scene = of_signals(WaitMethod::Library, window_ns, [libc::SIGRTMIN(); 2])?;
            let bursts = scene.bursts(20).map_err(|trouble| trouble.to_string())?;
            let all = Burst { announced: BURST, reached: BURST, missed: false };
            if bursts != [all; 20] {
                return Err(format!("{window_ns}: {bursts:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn tgkill_reaches_named_thread() {
    in_a_process_of_its_own(|| {
        let threads = ThreadSetup { main_blocks: false, one_runs: false };
        let taken = directed::to_thread(threads, usual(), 4 * THREADS);
        for (named, takers) in taken.map_err(|trouble| trouble.to_string())? {
            if takers != [named] {
                return Err(format!("sent to thread {named}, taken by {takers:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn process_directed_signal_reaches_unblocked_thread() {
    in_a_process_of_its_own(|| {
        for one_runs in [false, true] {
            let threads = ThreadSetup { main_blocks: true, one_runs };
            let taken = directed::to_process(threads, usual(), 1, 20);
            let taken = taken.map_err(|trouble| trouble.to_string())?;
            let right = |takers: &Vec<u32>| takers.len() == 1 && takers[0] != MAIN;
            if !taken.iter().all(right) {
                return Err(format!("main blocks the signal: {taken:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn every_cell_of_a_full_run_yields_shares() {
    in_a_process_of_its_own(|| {
        let topology = Topology::of_this_machine();
        for variant in VARIANTS {
            let cells = LostSignals.params(variant.name, &topology, Size::Full);
            if cells.is_empty() {
                return Err(format!("{} has no cell", variant.name));
            }
            for params in cells {
                let observed = measure(variant.name, &params, 20)
                    .map_err(|trouble| format!("{} {params:?}: {trouble}", variant.name))?;
                let sane = |series: &Series| {
                    series.unit == "share"
                        && !series.samples.is_empty()
                        && series.samples.iter().all(|share| (0.0..=1.0).contains(share))
                };
                if observed.series.is_empty() || !observed.series.iter().all(sane) {
                    return Err(format!("{} {params:?}: {observed:?}", variant.name));
                }
                // A burst may lose signals without missing a wake-up; with single signals, each
                // loss is a missed wake-up.
                if WaitMethod::of(variant.name).is_some() {
                    let metrics = observed.series.iter().map(|series| series.metric.as_str());
                    let burst = word(&params, "sending") == IN_BURSTS;
                    let expected: &[&str] =
                        if burst { &["lost", "merged", "missed"] } else { &["lost"] };
                    // The signals of the warm-up are not counted.
                    let counted = if burst { 4 } else { 20 };
                    let all = observed.series.iter().all(|one| one.samples.len() == counted);
                    if !all || !metrics.eq(expected.iter().copied()) {
                        return Err(format!("{} {params:?}: {observed:?}", variant.name));
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn note_counts_missed_wake_ups() {
    let note = |missed: &[bool]| of_acknowledged(missed).notes.concat();
    assert_eq!(note(&[false, false]), "none of 2 wake-ups was missed");
    assert!(note(&[true, false]).starts_with("1 of 2 wake-ups were missed"));
}

#[test]
fn unknown_variant_or_parameter_fails() {
    let params = Params::from([
        ("placement".to_owned(), usual().name.to_owned()),
        ("sending".to_owned(), ACKNOWLEDGED.to_owned()),
    ]);
    let found = measure("pigeon", &params, 1).expect_err("there are no pigeons");
    assert!(found.why().contains("pigeon"), "{found}");
}
