//! The checker: the same scenario on both backends in lock-step.

mod examples;

use examples::examples;
use tontine_unix::check::{CheckError, Checker, Comparison, Options};
use tontine_unix::{Mode, Virtual};

const MODES: [Mode; 5] =
    [Mode::Uniprocessor, Mode::Master, Mode::Coarse, Mode::Parallel, Mode::PerProcess];

#[test]
fn every_example_is_the_same_on_both_in_every_mode() {
    let mut checker = Checker::new().expect("a PID namespace");
    let only = std::env::var("ONLY").unwrap_or_default();
    let begin = std::time::Instant::now();
    let mut runs = 0;
    for (name, scenario) in examples() {
        if !name.contains(&only) {
            continue;
        }
        for mode in MODES {
            for seed in 1..4 {
                let mut options = Options::new();
                options.seed = seed;
                options.builder = Virtual::builder().mode(mode);
                runs += 1;
                match checker.check(&scenario, &options) {
                    Ok(Comparison::Same(trace)) => {
                        if !only.is_empty() {
                            eprintln!("{name}: same {} {}", trace.steps.len(), trace.ending)
                        }
                    }
                    Ok(Comparison::Differs(difference)) => {
                        eprintln!("{name} {mode:?}:\n{difference}")
                    }
                    Err(CheckError::Unfit { line, why }) => eprintln!("{name}:{line}: {why}"),
                    Err(error) => eprintln!("{name} {mode:?} {error}"),
                }
            }
        }
    }
    eprintln!("{runs} in {:?}", begin.elapsed());
}
