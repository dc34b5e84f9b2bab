//! Tests of random scenarios: their text, and the reduction to the smallest scenario with a
//! property. `cargo xtask mutants --rules` counts the rules that random scenarios cover, and shows
//! that they detect an incorrect Unix.

use std::{env, fs};

use tontine_unix_lab::random::{scenario, shrink};
use tontine_unix_lab::scenario::Scenario;

use crate::extent;

#[test]
fn random_scenario_round_trips_through_text() {
    for seed in 0..extent::seeds(2_000, 500) {
        let made = scenario(seed);
        assert_eq!(made.to_string().parse().as_ref(), Ok(&made), "seed {seed}");
    }
}

#[test]
fn seeds_reproduce_golden_scenarios() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/random.unix");
    let made: String = [1, 2, 1_000_000].map(|seed| scenario(seed).to_string()).join("\n");
    if env::var_os("WRITE_GOLDEN").is_some() {
        fs::write(path, &made).expect("the folder exists");
    }
    assert_eq!(made, fs::read_to_string(path).unwrap_or_default(), "`WRITE_GOLDEN=1` writes it");
}

#[test]
fn shrunk_scenario_keeps_only_required_statements() {
    let shows = |candidate: &Scenario| {
        let text = candidate.to_string();
        text.contains("setsid") && text.contains("getppid")
    };
    let made = (0..).map(scenario).find(shows).expect("a seed that makes both calls");
    let small = shrink(&made, 10_000, shows);
    let statements: usize = small.blocks.iter().map(|block| block.body.len()).sum();
    assert_eq!(statements, 2, "{small}");
}
