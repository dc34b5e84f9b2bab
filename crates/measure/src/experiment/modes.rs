//! The modes of the virtual Unix as variants, beside the machine's own kernel: [`mode`], [`ran`].
//!
//! Source 001 compares two kernels, one that does all process and signal work on a master processor
//! and one that does it in parallel; both are modes of `tontine-unix`. What the experiments measure
//! in them is theirs.

use tontine_unix::{Ending, Mode, Report};

use super::Variant;
use crate::machine::topology::Topology;
use crate::trouble::{Result, Trouble};

/// That a system call there is a function call.
pub(super) const CALLS_NOTE: &str =
    "a virtual Unix inside one process: a system call is a function call, not a trap";
/// That a fork there is no fork.
pub(super) const FORK_NOTE: &str =
    "a virtual fork copies no address space: the child runs another closure in the same memory";

/// The mode that a variant's name means.
pub(super) fn mode(variant: &str) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode.to_string() == variant)
}

/// The variants, each a mode.
pub(super) const VARIANTS: [Variant; 5] = [
    Variant { name: "uniprocessor", summary: "virtual Unix on one processor, without locks" },
    Variant {
        name: "master",
        summary: "virtual Unix, OSF/1.0's way: every call but exec runs on processor 0",
    },
    Variant { name: "coarse", summary: "virtual Unix, one lock for all relations of processes" },
    Variant { name: "parallel", summary: "virtual Unix, OSF/1.1's way: the source's locks" },
    Variant {
        name: "per-process",
        summary: "virtual Unix, locks of each process in place of the relation lock (its §9)",
    },
];

/// Processors that a mode has here: at most `most`.
pub(super) fn processors(mode: Mode, allowed: &[usize], most: usize) -> usize {
    if mode == Mode::Uniprocessor { 1 } else { allowed.len().clamp(1, most) }
}

/// Whether the machine has a second processor.
pub(super) fn two_processors(topology: &Topology) -> bool {
    topology.placement("cross-core").is_some()
}

/// That a run ended as it should.
///
/// # Errors
/// Failed: with the state of the system, where it did not.
pub(super) fn ran(report: &Report) -> Result<()> {
    let fine = report.status.and_then(|status| status.exited()) == Some(0);
    if fine && report.ending == Ending::Finished {
        return Ok(());
    }
    let state = report.state.as_ref().map(ToString::to_string).unwrap_or_default();
    let ended = report.status.map_or("did not end".to_owned(), |status| status.to_string());
    Err(Trouble::fail(format!("the virtual Unix {ended} ({:?})\n{state}", report.ending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_a_variant() {
        let named: Vec<_> = VARIANTS.iter().filter_map(|variant| mode(variant.name)).collect();
        assert_eq!(named, Mode::ALL);
        assert_eq!(mode("linux"), None);
    }

    #[test]
    fn a_run_that_stalls_is_a_failure_that_shows_who_waits() {
        let unix = tontine_unix::Virtual::builder().build().expect("a system");
        let report = unix.run(|sys| {
            sys.pause();
            0
        });
        let found = ran(&report).expect_err("it waits for ever");
        assert!(found.why().contains("Stalled") && found.why().contains("program"), "{found}");
    }
}
