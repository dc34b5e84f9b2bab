//! The extent of the tests of the virtual Unix: [`is_full`], and the number of seeds, [`seeds`].
//!
//! By default a test runs on a sample of the systems. With the environment variable
//! `TONTINE_ALL_SYSTEMS` it runs on all of them: in every mode, on every executor, with every seed.
//! `TONTINE_ALL_SYSTEMS=1 cargo test -p tontine-unix-sim -p tontine-unix-lab` takes minutes.

use std::sync::LazyLock;

/// Name of the environment variable.
const ALL_SYSTEMS: &str = "TONTINE_ALL_SYSTEMS";

/// Returns `true` if tests run on all systems.
pub(crate) fn is_full() -> bool {
    static FULL: LazyLock<bool> = LazyLock::new(|| std::env::var_os(ALL_SYSTEMS).is_some());
    *FULL
}

/// Returns the number of seeds to run: `all`, or `sample`.
pub(crate) fn seeds(all: u64, sample: u64) -> u64 {
    if is_full() { all } else { sample }
}
