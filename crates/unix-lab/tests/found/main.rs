//! What random scenarios found: each test is a scenario on which the virtual Unix and Linux once
//! parted, and its story. They are compared in every mode, under several orders of steps.

mod families;
mod signals;
mod tracee_stops;
mod tracing;

use tontine_unix_lab::check::{Checker, Comparison, Options, against};
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::{Mode, Virtual};

/// Orders of steps that are tried.
const SEEDS: u64 = 6;

/// Steps after which both runs are cut.
const STEPS: u32 = 400;

/// How often both sides must part in a row: a busy machine now and then shows an order of events
/// within a step that is not the kernel's doing.
const TIMES: usize = 4;

/// Both do the same, in every mode.
fn is_the_same(text: &str) {
    let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut checker = Checker::new().expect("a PID namespace");
    for seed in 1..=SEEDS {
        let options = Options { seed, most_steps: STEPS, ..Options::new() };
        let parted = (0..TIMES).map_while(|_| parts(&mut checker, &scenario, &options));
        if let Some(difference) = parted.skip(TIMES - 1).last() {
            panic!("{difference}");
        }
    }
}

/// What differs in a mode, if anything does.
fn parts(checker: &mut Checker, scenario: &Scenario, options: &Options) -> Option<String> {
    let real = checker.on_linux(scenario, options).expect("it comes to rest");
    Mode::ALL.into_iter().find_map(|mode| {
        let options = Options { builder: Virtual::builder().mode(mode), ..options.clone() };
        let found = against(scenario, &options, &real).expect("it was compared on Linux");
        match found {
            Comparison::Differs(difference) => Some(format!("{mode}: {difference}")),
            _ => None,
        }
    })
}
