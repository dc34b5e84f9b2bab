//! The switch that turns off the protections that the patches in this folder can remove: [`is_on`].

use std::sync::OnceLock;

/// Returns `true` if the environment variable `MUTANT` names this protection, so that the kernel
/// omits it.
pub(crate) fn is_on(name: &str) -> bool {
    static MUTANT: OnceLock<Option<String>> = OnceLock::new();
    MUTANT.get_or_init(|| std::env::var("MUTANT").ok()).as_deref() == Some(name)
}
