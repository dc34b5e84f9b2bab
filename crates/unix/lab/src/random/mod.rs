//! Random scenarios: [`scenario`] generates a scenario from a seed, a [`Campaign`] compares many
//! scenarios on both backends, and [`shrink`] reduces a scenario that shows a difference.
//!
//! The scenarios serve only for comparisons, because they expect only that both backends behave
//! identically. `phrase.rs` holds the elements of scenarios, and `compose.rs` combines them.
//! `cargo xtask mutants --rules` counts which rules of the semantics the scenarios exercise.

mod campaign;
mod chance;
mod compose;
mod phrase;
mod shrink;

pub use campaign::{Campaign, Divergence, SeedResult};
pub use shrink::shrink;

use crate::scenario::Scenario;

/// Returns the random scenario of a seed, which is the same on every machine.
pub fn scenario(seed: u64) -> Scenario {
    let text = compose::text(seed);
    match text.parse() {
        Ok(scenario) => scenario,
        Err(error) => panic!("seed {seed}: {error}\n{text}"),
    }
}
