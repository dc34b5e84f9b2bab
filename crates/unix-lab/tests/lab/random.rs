//! Random scenarios: what they are, what they meet, and that they notice a wrong Unix.

use std::{env, fs};

use tontine_unix_lab::random::{scenario, shrink};
use tontine_unix_lab::scenario::Scenario;

#[test]
fn every_seed_gives_a_scenario_that_is_read_as_it_is_printed() {
    for seed in 0..2_000 {
        let made = scenario(seed);
        assert_eq!(made.to_string().parse().as_ref(), Ok(&made), "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_scenario_everywhere() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/random.unix");
    let made: String = [1, 2, 1_000_000].map(|seed| scenario(seed).to_string()).join("\n");
    if env::var_os("WRITE_GOLDEN").is_some() {
        fs::write(path, &made).expect("the folder is there");
    }
    assert_eq!(made, fs::read_to_string(path).unwrap_or_default(), "`WRITE_GOLDEN=1` writes it");
}

#[test]
fn what_is_shrunk_still_shows_it_and_nothing_else() {
    let shows = |candidate: &Scenario| {
        let text = candidate.to_string();
        text.contains("setsid") && text.contains("getppid")
    };
    let made = (0..).map(scenario).find(shows).expect("some seed makes both calls");
    let small = shrink(&made, 10_000, shows);
    let statements: usize = small.blocks.iter().map(|block| block.body.len()).sum();
    assert_eq!(statements, 2, "{small}");
}

/// Thousands of runs: for builds that are optimised, `cargo test --release -p tontine-unix-lab
/// --features mutations`.
#[cfg(all(feature = "mutations", not(debug_assertions)))]
mod rules {
    use std::collections::BTreeMap;

    use tontine_unix_lab::check::{Checker, Comparison, Trace, against, on_virtual};
    use tontine_unix_lab::random::{Campaign, scenario};
    use tontine_unix_sim::{Builder, Hits, Mode, Rule, Virtual};

    /// Seeds that are looked through.
    const SEEDS: u64 = 1_500;
    /// Seeds that are tried for each rule.
    const TRIED: usize = 12;

    fn builder() -> Builder {
        Virtual::builder().mode(Mode::Parallel)
    }

    /// Which rules a seed's scenario meets on the virtual Unix.
    fn met(seed: u64) -> Vec<Rule> {
        let hits = Hits::default();
        let options = Campaign::options(seed, builder().count_rules(&hits));
        on_virtual(&scenario(seed), &options, 0).expect("it can be compared");
        Rule::ALL.iter().copied().filter(|rule| hits.of(*rule) > 0).collect()
    }

    /// Seeds by the rules that they meet, as many for each as are tried.
    fn seeds_by_rule() -> BTreeMap<Rule, Vec<u64>> {
        let mut seeds: BTreeMap<_, Vec<_>> = Rule::ALL.iter().map(|rule| (*rule, vec![])).collect();
        for seed in 0..SEEDS {
            for rule in met(seed) {
                let of_it = seeds.entry(rule).or_default();
                if of_it.len() < TRIED {
                    of_it.push(seed);
                }
            }
        }
        seeds
    }

    /// What Linux did, made once for each seed; nothing where the virtual Unix does otherwise.
    struct Real {
        checker: Checker,
        made: BTreeMap<u64, Option<Trace>>,
    }

    impl Real {
        fn trace(&mut self, seed: u64) -> Option<&Trace> {
            let made = self.made.entry(seed).or_insert_with(|| {
                let (scenario, options) = (scenario(seed), Campaign::options(seed, builder()));
                let real = self.checker.on_linux(&scenario, &options).ok()?;
                let same = matches!(against(&scenario, &options, &real), Ok(Comparison::Same(_)));
                same.then_some(real)
            });
            made.as_ref()
        }
    }

    #[test]
    fn every_rule_is_met_and_nine_of_ten_that_are_broken_are_noticed() {
        let checker = Checker::new().expect("a PID namespace");
        let mut real = Real { checker, made: BTreeMap::new() };
        let (mut unmet, mut unnoticed) = (Vec::new(), Vec::new());
        for (rule, seeds) in seeds_by_rule() {
            if seeds.is_empty() {
                unmet.push(rule);
            }
            let notices = |seed: u64| {
                let Some(trace) = real.trace(seed) else { return false };
                let options = Campaign::options(seed, builder().without(rule));
                let found = against(&scenario(seed), &options, trace);
                matches!(found, Ok(Comparison::Differs(_)))
            };
            if !seeds.into_iter().any(notices) {
                unnoticed.push(rule);
            }
        }
        let all = Rule::ALL.len();
        eprintln!("{} of {all} broken rules were noticed", all - unnoticed.len());
        assert!(unmet.is_empty(), "nothing met {unmet:?}");
        assert!(unnoticed.len() * 10 <= all, "nothing noticed {unnoticed:?}, of {all}");
    }
}
