//! Tests of every variant with a few thousand increments, of the count, and of the losses.

use super::*;

#[test]
fn every_counter_cell_is_timed_and_only_shared_loses() {
    for variant in ThreadLocal.variants() {
        for params in ThreadLocal.params(variant.name, &Topology::of_this_machine(), Size::Quick) {
            let seen = processors(&params).and_then(|on| measure(variant.name, &on, 20_000));
            let Some(observed) = unless_skipped(seen, (variant, &params)) else { continue };
            assert_eq!(metrics(&observed), ["increment", "lost"]);
            assert!(series(&observed, "increment").samples[0] > 0.0, "{variant:?} {params:?}");
            let lost = series(&observed, "lost").samples[0];
            let may_lose = variant.name == "shared" && params["threads"] == "2";
            assert!(lost == 0.0 || may_lose && lost < 1.0, "{variant:?} {params:?}: {lost}");
        }
    }
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
        let seen = measure("shared", &[place.here, place.there], 2_000_000).expect("a race");
        series(&seen, "lost").samples[0] > 0.0
    });
    assert!(lost, "20 billion increments of each of two threads, and none was lost");
}
