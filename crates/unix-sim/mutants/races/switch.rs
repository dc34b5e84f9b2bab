//! The switch of the protections that the patches in this folder remove: [`is_on`].

use std::sync::OnceLock;

/// Returns `true` if the environment variable `MUTANT` names this protection, which is then
/// omitted.
pub(crate) fn is_on(name: &str) -> bool {
    static MUTANT: OnceLock<Option<String>> = OnceLock::new();
    MUTANT.get_or_init(|| std::env::var("MUTANT").ok()).as_deref() == Some(name)
}
