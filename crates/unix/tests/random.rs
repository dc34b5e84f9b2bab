//! Random scenarios: what they are, and what they meet.

use tontine_unix::random::scenario;

#[test]
fn every_seed_gives_a_scenario_that_is_read_as_it_is_printed() {
    for seed in 0..2_000 {
        let made = scenario(seed);
        assert_eq!(made.to_string().parse().as_ref(), Ok(&made), "seed {seed}");
    }
}
