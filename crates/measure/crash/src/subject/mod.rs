//! Mechanisms under test: [`CrashTarget`], and the registry ([`all`], [`find`]).
//!
//! Each target has a [`TargetKind`]: a [`QueueSubject`] can create one mechanism and open its two
//! ends, a [`HeapTarget`] can create a heap and join it. Most queues come from `tontine-mechanisms`
//! (`opened`). A target has no knowledge of tracing, scripts or verdicts ([`crate::explore`]).
//! There are three roles: Tontine's own targets, whose failure is a bug in Tontine; *peers*, whose
//! failure is a finding; and *controls*, deliberately broken, which show that the explorer finds
//! faults. Controls run only if they are named.

mod boost;
mod broken_heaps;
mod controls;
pub mod heap;
mod opened;
mod queue;
mod shared_heap;

use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::heap::HeapTarget;
pub use self::queue::{Endpoint, QueueSubject, Wait};
use tontine_bench::error::{MeasureError, Result};
use tontine_mechanisms::about::Explored;
pub use tontine_mechanisms::operation::{Operation, QueueEnd};

/// A target: one mechanism.
pub trait CrashTarget: Sync {
    fn facts(&self) -> Explored;

    fn name(&self) -> &'static str {
        self.facts().name
    }

    /// Returns the meaning of a failure.
    fn role(&self) -> Role {
        if self.facts().own { Role::Own } else { Role::Peer }
    }

    /// Returns the first operation of the process that replaces the victim of `operation`; the
    /// replacement may be killed during it.
    fn succession(&self, operation: Operation) -> Option<Operation> {
        let mut all = self.facts().successions.iter();
        all.find_map(|(first, then)| (*first == operation).then_some(*then))
    }

    /// Returns the timeout for one reply of a survivor. It is longer if the mechanism has its own
    /// timeouts, after which it makes progress.
    fn timeout(&self) -> Duration {
        self.facts().timeout.unwrap_or(TIMEOUT)
    }

    /// Returns the number of points above which an operation is too long to be stepped through.
    fn longest(&self) -> usize {
        50_000
    }

    /// Prepares the resources that all runs share, once, in the explorer.
    fn prepare(&self) -> Result<Prepared> {
        Ok(Prepared::default())
    }

    fn kind(&self) -> TargetKind<'_>;
}

/// Kind of a mechanism, which selects the script of its trials.
#[derive(Clone, Copy)]
pub enum TargetKind<'a> {
    /// The mechanism carries messages.
    Queue(&'a dyn QueueSubject),
    /// The mechanism allocates blocks.
    Heap(&'a dyn HeapTarget),
}

/// Default timeout: many thousands of times the duration of an operation.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Meaning of a target's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Tontine's own target: a failure is a bug.
    Own,
    /// A failure is a finding.
    Peer,
    /// A failure shows that the explorer works.
    Control,
}

/// The result of [`CrashTarget::prepare`], removed when dropped.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The program of this target's worker, which replaces the explorer's own.
    pub program: Option<PathBuf>,
    /// The directory that contains the program.
    pub folder: Option<tempfile::TempDir>,
}

/// All targets, in the order of the report: queues of Tontine, the kernel and the C library;
/// Boost's queue and heaps; libraries; controls.
static ALL: LazyLock<Vec<&'static dyn CrashTarget>> = LazyLock::new(|| {
    let (mut own, mut kernel, mut libraries) = (Vec::new(), Vec::new(), Vec::new());
    for (mechanism, subject) in opened::registered() {
        let place = match subject.role() {
            Role::Own => &mut own,
            _ if mechanism.is_peer => &mut libraries,
            _ => &mut kernel,
        };
        place.push(subject);
    }
    let heaps: [&dyn CrashTarget; 3] =
        [&boost::MessageQueue, &shared_heap::SharedHeapSubject, &boost::ManagedMemory];
    let controls: [&dyn CrashTarget; 8] = [
        &controls::LockWord,
        &controls::PublishedFirst,
        &controls::Cleared,
        &broken_heaps::LOCK,
        &broken_heaps::TORN,
        &broken_heaps::LOST,
        &broken_heaps::PAIRS,
        &broken_heaps::SOUND,
    ];
    [own, kernel, heaps.to_vec(), libraries, controls.to_vec()].concat()
});

/// Returns all targets, in the order of the report.
pub fn all() -> &'static [&'static dyn CrashTarget] {
    &ALL
}

/// Converts an error of a mechanism. A skip becomes `Unsupported`: the machine lacks something.
fn refused(trouble: MeasureError) -> io::Error {
    match trouble {
        MeasureError::Skipped(why) => io::Error::new(io::ErrorKind::Unsupported, why),
        MeasureError::Failed(why) => io::Error::other(why),
    }
}

pub fn find(name: &str) -> Option<&'static dyn CrashTarget> {
    all().iter().copied().find(|subject| subject.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_unique_names_and_operations() {
        for (at, subject) in all().iter().enumerate() {
            assert!(all()[..at].iter().all(|other| other.name() != subject.name()));
            let facts = subject.facts();
            assert!(!facts.operations.is_empty());
            if let TargetKind::Queue(_) = subject.kind() {
                assert!((facts.capacity)() > 3);
            }
            assert!(!facts.summary.is_empty());
        }
    }

    /// The steps that kill at every instruction name their targets, so that each ends in time.
    #[test]
    fn nightly_steps_name_every_target() {
        let steps = include_str!("../../../../../.ci/all");
        let named: Vec<&str> =
            steps.lines().filter_map(|line| line.split("crash ").nth(1)).collect();
        let words: Vec<&str> = named.iter().flat_map(|line| line.split([' ', ';'])).collect();
        for subject in all().iter().filter(|subject| subject.role() != Role::Control) {
            assert!(words.contains(&subject.name()), "{} is not in .ci/all", subject.name());
        }
        let heap = all().iter().find(|subject| subject.name() == "heap").expect("the heap");
        let words: Vec<&str> = steps.split([' ', ';', '\n']).collect();
        for operation in heap.facts().operations {
            assert!(words.contains(&operation.name()), "{} is not in .ci/all", operation.name());
        }
    }
}
