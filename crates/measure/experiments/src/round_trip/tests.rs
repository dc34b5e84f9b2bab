//! Tests of every variant with a few rounds, of leftovers, and of refused variants.

use super::*;

fn left_behind() -> Vec<String> {
    #[cfg(feature = "peers")]
    let ours = {
        let maker = tontine_bench::leftovers::maker();
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

/// An engine starts the `tontine` command inside its containers. A test's executable is not that
/// command, so the command's own tests cover those rows.
#[test]
fn every_round_trip_yields_samples_and_leaves_no_files() {
    let placement = usual();
    let names = RoundTrip.variants().iter().map(|variant| variant.name);
    for name in names.filter(|name| !WITH_ENGINE.contains(name)) {
        let found = measure(name, 200, 20, placement, StampMode::Batched);
        let Some(observed) = unless_skipped(found, name) else { continue };
        let one_way = &observed.series[0];
        assert_eq!((one_way.metric.as_str(), one_way.unit.as_str()), ("one_way", "ns"));
        assert_eq!(one_way.samples.len() * one_way.batch, 200, "{name}");
        let all = observed.series.iter().flat_map(|series| &series.samples);
        assert!(all.into_iter().all(|sample| sample.is_finite()), "{name}");
        assert!(one_way.samples.iter().sum::<f64>() > 0.0, "{name}");
        let locks = usize::from(name.starts_with("spinlock"));
        let singles = usize::from(never_sleeps(name, placement));
        assert_eq!(observed.series.len(), 1 + singles + locks, "{name}");
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn spinning_variants_never_share_a_processor() {
    let topology = Topology::of_this_machine();
    for variant in RoundTrip.variants().iter() {
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
    let placement = usual();
    if placement.here == placement.there {
        eprintln!("skipped: needs two processors");
        return;
    }
    let found =
        measure("spinlock-ttas", 200, 20, placement, StampMode::EveryRound).expect("rounds");
    assert_eq!((found.series[0].samples.len(), found.series[0].batch), (200, 1));
    assert!(found.series.iter().all(|series| series.metric != "one_way_single"));
}
