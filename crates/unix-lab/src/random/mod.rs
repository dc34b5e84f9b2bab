//! Random scenarios: [`scenario`] generates one from a seed, a [`Campaign`] compares many on both
//! backends, [`shrink`] reduces one that shows a difference.
//!
//! They are made for comparisons on both backends: a scenario expects nothing but that both do the
//! same. `phrase.rs` has what they are made of, `compose.rs` puts it together.
//! `cargo xtask mutants --rules` counts which rules of the semantics they meet.

mod campaign;
mod chance;
mod compose;
mod phrase;
mod shrink;

pub use campaign::{Campaign, Divergence, SeedResult};
pub use shrink::shrink;

use crate::scenario::Scenario;

/// Returns the random scenario of a seed, which is the same on every machine.
///
/// ```
/// let scenario = tontine_unix_lab::random::scenario(7);
/// assert_eq!(scenario.to_string().parse(), Ok(scenario));
/// ```
///
/// # Panics
/// Never: a generated text is always a scenario.
pub fn scenario(seed: u64) -> Scenario {
    let text = compose::text(seed);
    match text.parse() {
        Ok(scenario) => scenario,
        Err(error) => panic!("seed {seed}: {error}\n{text}"),
    }
}
