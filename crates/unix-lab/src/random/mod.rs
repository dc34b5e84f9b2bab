//! Random scenarios: [`scenario`] makes one of a seed, a [`Campaign`] compares one after another on
//! both backends, [`shrink`] makes one smaller that shows something.
//!
//! They are made to be compared on both backends (docs/check.md): nothing is expected of them but
//! that both do the same. [`phrase`] has what they are made of, [`compose`] puts it together.
//! `cargo xtask mutants --rules` counts which rules of the semantics they meet.

mod campaign;
mod chance;
mod compose;
mod phrase;
mod shrink;

pub use campaign::{Campaign, Divergence, SeedResult};
pub use shrink::shrink;

use crate::scenario::Scenario;

/// The random scenario of this seed, on every machine the same.
///
/// ```
/// let scenario = tontine_unix_lab::random::scenario(7);
/// assert_eq!(scenario.to_string().parse(), Ok(scenario));
/// ```
///
/// # Panics
/// Never: what is composed is a scenario.
pub fn scenario(seed: u64) -> Scenario {
    let text = compose::text(seed);
    match text.parse() {
        Ok(scenario) => scenario,
        Err(error) => panic!("seed {seed}: {error}\n{text}"),
    }
}
