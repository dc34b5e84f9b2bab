//! Tests of every variant with a few thousand increments, of the count, and of the losses.

use tontine_bench::observe::Statistic;

use super::*;

const FEW: usize = 20_000;

fn series(observed: &Observed, metric: &str) -> f64 {
    let found = observed.series.iter().find(|series| series.metric == metric).expect(metric);
    assert_eq!(found.samples.len(), 1, "{metric}");
    found.samples[0]
}

/// Runs every cell of every variant, with few increments.
fn all(mut look: impl FnMut(&str, &Params, Observed)) {
    let topology = Topology::of_this_machine();
    for variant in VARIANTS {
        for params in ThreadLocal.params(variant.name, &topology, Size::Quick) {
            let seen = processors(&params).and_then(|on| measure(variant.name, &on, FEW));
            match seen {
                Ok(observed) => look(variant.name, &params, observed),
                Err(MeasureError::Skipped(why)) => {
                    assert!(why.contains("processor") || why.contains("placement"), "{why}");
                }
                Err(trouble) => panic!("{} {params:?}: {trouble}", variant.name),
            }
        }
    }
}

#[test]
fn every_counter_cell_is_timed_and_only_shared_loses() {
    let mut seen = 0;
    all(|variant, params, observed| {
        assert!(series(&observed, "increment") > 0.0, "{variant} {params:?}");
        let lost = series(&observed, "lost");
        if variant == "shared" && params["threads"] == "2" {
            assert!((0.0..1.0).contains(&lost), "{params:?}: {lost}");
        } else {
            assert_eq!(lost, 0.0, "{variant} {params:?}");
        }
        assert!(observed.series.iter().any(|one| one.statistic == Statistic::Mean));
        seen += 1;
    });
    assert!(seen >= VARIANTS.len(), "{seen}");
}

/// Two threads that run at the same time lose increments within a moment. A busy machine may delay
/// the moment when both run, so the test tries until then.
#[test]
fn plain_shared_counter_on_two_processors_loses_increments() {
    let place = Topology::of_this_machine().placement("cross-core");
    let Some(place) = place.filter(|place| place.here != place.there) else {
        return eprintln!("skipped: needs two processors");
    };
    let lost = (0..10_000).any(|_| {
        let seen = measure("shared", &[place.here, place.there], 2_000_000);
        series(&seen.expect("a race"), "lost") > 0.0
    });
    assert!(lost, "20 billion increments of each of two threads, and none was lost");
}

#[test]
fn unknown_variant_or_parameter_is_named() {
    let wrong = measure("pigeon", &[0], 1).expect_err("no such way");
    assert!(wrong.why().contains("pigeon"), "{wrong}");
    let params = Params::from([("threads".into(), "3".into())]);
    let wrong = processors(&params).expect_err("no such number");
    assert!(wrong.why().contains("`3`"), "{wrong}");
}
