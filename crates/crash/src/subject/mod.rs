//! The mechanisms that come under the knife: [`Subject`], and the registry ([`all`], [`find`]).
//!
//! A subject is of a [`Kind`]: a [`Queue`] knows how to make and to open the two ends of one
//! mechanism, a [`HeapTarget`] how to make and to join it. Most queues are those of
//! `tontine-mechanisms` (`opened`). It knows nothing of tracing, scripts and verdicts
//! ([`crate::explore`]). Three roles: Tontine's own, whose failure is ours; *peers*, whose failure
//! is a finding; *controls*, broken on purpose, which show that the explorer finds what is there.
//! Controls run only if they are named.

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
use tontine_mechanisms::about::Need;

pub use self::heap::HeapTarget;
pub use self::queue::{Endpoint, Queue, Wait};
use tontine_host::trouble::{Result, Trouble};
pub use tontine_mechanisms::operation::{Operation, QueueEnd};

/// One mechanism.
pub trait Subject: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it is, in one line.
    fn summary(&self) -> &'static str;

    /// What its failure means.
    fn role(&self) -> Role {
        Role::Peer
    }

    /// What has to be known to read its row fairly: what it never promised. Empty where nothing.
    fn caveat(&self) -> &'static str {
        ""
    }

    /// What comes under the knife, in the order of the report.
    fn operations(&self) -> &'static [Operation];

    /// What the process that takes over from the victim of `operation` does first, and may die in.
    fn succession(&self, operation: Operation) -> Option<Operation> {
        let _ = operation;
        None
    }

    /// Whether killing the successor, too, in all its classes takes longer than everything else, so
    /// that it is left out unless `operation` is asked for by name.
    fn is_long_succession(&self, operation: Operation) -> bool {
        let _ = operation;
        false
    }

    /// How long a survivor may take for one answer: longer where the mechanism has time-outs of its
    /// own, after which it does get on.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// How long threads of its own may take to come to rest once nothing is asked of it any more.
    fn settles(&self) -> Duration {
        Duration::ZERO
    }

    /// Points after which an operation of its is too long to be stepped through.
    fn longest(&self) -> usize {
        50_000
    }

    /// Makes ready what all runs share, once, in the explorer.
    ///
    /// # Errors
    /// Skipped, where the machine lacks something.
    fn prepare(&self) -> Result<Prepared> {
        Ok(Prepared::default())
    }

    /// What is done with it.
    fn kind(&self) -> Kind<'_>;
}

/// What is done with a mechanism: the scripts that it comes under the knife in.
#[derive(Clone, Copy)]
pub enum Kind<'a> {
    /// Messages go through it.
    Queue(&'a dyn Queue),
    /// Blocks are allocated from it.
    Heap(&'a dyn HeapTarget),
}

/// Many thousand times what an operation takes.
const PATIENCE: Duration = Duration::from_millis(600);

/// What a subject's failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Tontine's own: it must not happen.
    Own,
    /// A finding.
    Peer,
    /// The explorer works.
    Control,
}

/// What [`Subject::prepare`] made; it goes when dropped.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The program that serves as this subject's actor, in place of the explorer's own.
    pub program: Option<PathBuf>,
    /// Where that program lies.
    pub folder: Option<tempfile::TempDir>,
}

/// All subjects, in the order of the report: our own queues and those of the kernel and the C
/// library; Boost's queue and heaps; libraries; controls.
static ALL: LazyLock<Vec<&'static dyn Subject>> = LazyLock::new(|| {
    let (mut own, mut kernel, mut libraries) = (Vec::new(), Vec::new(), Vec::new());
    for (mechanism, subject) in opened::registered() {
        let place = match subject.role() {
            Role::Own => &mut own,
            _ if mechanism.needs.iter().any(|need| matches!(need, Need::Feature { .. })) => {
                &mut libraries
            }
            _ => &mut kernel,
        };
        place.push(subject);
    }
    let heaps: [&dyn Subject; 3] = [&boost::MessageQueue, &shared_heap::Own, &boost::ManagedMemory];
    let controls: [&dyn Subject; 8] = [
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

/// All subjects, in the order of the report.
pub fn all() -> &'static [&'static dyn Subject] {
    &ALL
}

/// Converts an error of a mechanism. A skip becomes `Unsupported`: the machine lacks something.
fn refused(trouble: Trouble) -> io::Error {
    match trouble {
        Trouble::Skipped(why) => io::Error::new(io::ErrorKind::Unsupported, why),
        Trouble::Failed(why) => io::Error::other(why),
    }
}

/// The subject with this name.
pub fn find(name: &str) -> Option<&'static dyn Subject> {
    all().iter().copied().find(|subject| subject.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_subject_has_operations() {
        for (at, subject) in all().iter().enumerate() {
            assert!(all()[..at].iter().all(|other| other.name() != subject.name()));
            assert!(!subject.operations().is_empty());
            if let Kind::Queue(queue) = subject.kind() {
                assert!(queue.capacity() > 3);
            }
            assert!(!subject.summary().is_empty());
        }
    }
}
