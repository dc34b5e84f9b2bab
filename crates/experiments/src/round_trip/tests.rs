//! Tests of every variant with a few rounds, of leftovers, and of errors when the peer has died.

use std::sync::{Mutex, PoisonError};

use tontine_bench::size::Size;
use tontine_host::peer::{PeerHandle, spin_until};

use super::harness::{RoundTripEnd, between_processes, between_threads, time};
use super::*;

/// The runs share names in the file system that `left_behind` searches for, so only one runs at a
/// time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn here() -> (Topology, Placement) {
    let topology = Topology::of_this_machine();
    let first = topology.placements()[0];
    (topology, first)
}

fn left_behind() -> Vec<String> {
    #[cfg(feature = "peers")]
    let ours = {
        let maker = tontine_host::leftovers::maker();
        ["tontine-zmq-", "tontine-ice-", "tontine_ice_"].map(|kind| kind.to_owned() + &maker)
    };
    #[cfg(not(feature = "peers"))]
    let ours: [String; 0] = [];
    let queue_or_memory = format!("tontine-{}-", std::process::id());
    let temporary = std::env::temp_dir();
    ["/dev/shm", "/dev/mqueue", temporary.to_str().expect("UTF-8")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            name.starts_with(&queue_or_memory) || ours.iter().any(|start| name.starts_with(start))
        })
        .collect()
}

#[test]
fn every_round_trip_yields_samples_and_leaves_no_files() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, placement) = here();
    // An engine starts the `tontine` command inside its containers. A test's executable is not that
    // command, so the command's own tests cover those rows.
    for variant in VARIANTS.iter().filter(|variant| !WITH_ENGINE.contains(&variant.name)) {
        let observed = match measure(variant.name, 200, 20, placement, StampMode::Batched) {
            Ok(observed) => observed,
            Err(MeasureError::Skipped(why)) => {
                eprintln!("{}: skipped: {why}", variant.name);
                continue;
            }
            Err(trouble) => panic!("{}: {trouble}", variant.name),
        };
        let one_way = &observed.series[0];
        assert_eq!((one_way.metric.as_str(), one_way.unit.as_str()), ("one_way", "ns"));
        assert_eq!(one_way.samples.len() * one_way.batch, 200, "{}", variant.name);
        for series in &observed.series {
            assert!(series.samples.iter().all(|sample| sample.is_finite()), "{}", variant.name);
        }
        assert!(one_way.samples.iter().sum::<f64>() > 0.0, "{}", variant.name);
        let locks = usize::from(variant.name.starts_with("spinlock"));
        let singles = usize::from(never_sleeps(variant.name, placement));
        assert_eq!(observed.series.len(), 1 + singles + locks, "{}", variant.name);
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn spinning_variants_never_share_a_processor() {
    let (topology, _) = here();
    for variant in VARIANTS.iter() {
        let params = RoundTrip.params(variant.name, &topology, Size::Quick);
        assert!(!params.is_empty(), "{}", variant.name);
        for param in params {
            assert_eq!(param["pacing"], "hot");
            let same = param["placement"] == "same-core";
            assert!(!(same && spins(variant.name)), "{}", variant.name);
        }
    }
}

#[test]
fn spinning_variant_with_a_stamp_in_every_round_runs() {
    let (_, placement) = here();
    if placement.here == placement.there {
        eprintln!("skipped: needs two processors");
        return;
    }
    let found =
        measure("spinlock-ttas", 200, 20, placement, StampMode::EveryRound).expect("rounds");
    assert_eq!((found.series[0].samples.len(), found.series[0].batch), (200, 1));
    assert!(found.series.iter().all(|series| series.metric != "one_way_single"));
}

#[test]
fn first_error_of_two_threads_is_returned() {
    let plan = plan();
    let first = || MeasureError::skip("this came first");
    let late = |peer: PeerHandle<'_>| spin_until(peer, true, || false);
    assert_eq!(between_threads(&plan, late, |_| Err(first())).err(), Some(first()));
    assert_eq!(between_threads::<()>(&plan, |_| Err(first()), late).err(), Some(first()));
}

#[test]
fn unknown_round_trip_variant_fails() {
    let task = InvocationTask {
        experiment: "round-trip".into(),
        variant: "pigeon".into(),
        params: Params::new(),
        size: Size::Quick,
    };
    let Err(MeasureError::Failed(why) | MeasureError::Skipped(why)) = RoundTrip.run(&task) else {
        panic!("there are no pigeons");
    };
    assert!(why.contains("pigeon") || why.contains("two processors"), "{why}");
}

/// An end that waits for a message that never arrives.
struct Deaf<'a>(PeerHandle<'a>);

impl RoundTripEnd for Deaf<'_> {
    fn send(&mut self) -> tontine_host::error::Result<()> {
        Ok(())
    }

    fn wait(&mut self) -> tontine_host::error::Result<()> {
        spin_until(self.0, true, || false)
    }
}

fn plan() -> RoundPlan<'static> {
    RoundPlan {
        rounds: 100,
        warm_up: 10,
        stamps: StampMode::EveryRound,
        placement: here().1,
        clock: Clock::calibrated(),
        paced: None,
    }
}

#[test]
fn peer_exit_during_spinning_ping_reports_its_status() {
    let dies = |_: PeerHandle<'_>| -> tontine_host::error::Result<()> {
        tontine_host::os::child::exit_at_once(7)
    };
    let found = between_processes(&plan(), |peer| time(&plan(), &mut Deaf(peer)), dies);
    let why = found.expect_err("no peer answers").to_string();
    assert!(why.contains("exited with status 7"), "{why}");
}

#[test]
fn peer_kill_during_blocked_ping_reports_its_signal() {
    use std::io::Read;
    let (mut read, write) = std::io::pipe().expect("pipe");
    // The write end stays open here, so only the nudge reports the death, not an end of file.
    let found = between_processes(
        &plan(),
        |peer| loop {
            // `read_exact` would hide the interruption.
            match read.read(&mut [0]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => peer.check()?,
                other => return Err::<(), _>(MeasureError::fail(format!("read: {other:?}"))),
            }
        },
        |_| {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .map_err(|error| MeasureError::fail(error.to_string()))
        },
    );
    let why = found.expect_err("no peer answers").to_string();
    assert!(why.contains("killed by signal 9"), "{why}");
    drop(write);
}

#[test]
fn echo_set_up_failure_is_returned() {
    let skips = |_: PeerHandle<'_>| Err(MeasureError::skip("no such thing here"));
    let found = between_processes(&plan(), |peer| time(&plan(), &mut Deaf(peer)), skips);
    assert_eq!(found.err(), Some(MeasureError::skip("no such thing here")));
}
