//! The path between the programs: [`Route`].

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;
use tontine_gateway::memory::Faults;

use crate::hosts::gateways::{Host, MemoryGateways, TcpGateways};
use crate::hosts::program::{OwnerTask, SenderReport, SenderTask, empty_log, read_log};
use crate::hosts::until;

/// A route with the folder of its addresses and of the owner's log.
pub(crate) struct Fixture<R> {
    pub(crate) route: R,
    folder: TempDir,
}

impl<R: Route> Fixture<R> {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        empty_log(folder.path());
        Self { route: R::start(folder.path()), folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn owner(&self) -> OwnerTask {
        OwnerTask::new(&R::owner_at(self.path()), &self.path().join("received"))
    }

    pub(crate) fn sender(&self, id: u64, count: u64) -> SenderTask {
        SenderTask::new(&R::sender_at(self.path()), id, count)
    }

    pub(crate) fn received(&self, sender: u64) -> Vec<u64> {
        read_log(&self.path().join("received"), sender)
    }

    pub(crate) fn wait_until_received(&self, sender: u64) {
        until("a message arrives", || !self.received(sender).is_empty());
    }

    /// Checks that the sender 1 has ended without an error, and that all of its messages were
    /// received, in order.
    #[track_caller]
    pub(crate) fn check_all_received(&self, report: &SenderReport) {
        report.check_all_received(&self.received(1));
    }
}

/// The promises that differ across machines: promise, local, across machines. The last text is the
/// one of `docs/guides/across-machines.md`.
pub(crate) const DIFFERENCES: [(&str, &str, &str); 6] = [
    (
        "P2",
        "The death of a receiver is reported at the next call.",
        "The sender learns it one trip late; messages sent in between stay in the lane.",
    ),
    ("P2", "A process dies, or lives.", "Silence alone is never reported as death."),
    (
        "P4",
        "None arrives twice while both ends live.",
        "None arrives twice while the sender, the receiver and the receiver's gateway live",
    ),
    (
        "P5",
        "A hostile peer harms its own lane alone.",
        "A host that lies harms its own lanes alone; it can take up to `max_lanes` lanes",
    ),
    (
        "P7",
        "At most the first unread message is in doubt.",
        "*in doubt*, which were passed to the other host, from those that never left",
    ),
    (
        "P9",
        "Containers that share a folder or a descriptor.",
        "Containers that share the folder of an import use it like any mailbox.",
    ),
];

/// A temporary interruption between the programs, which is not a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    StoppedGateway(Host),
    CutLink([bool; 2]),
}

impl Interruption {
    pub(crate) const ALL: [Self; 5] = [
        Self::StoppedGateway(Host::A),
        Self::StoppedGateway(Host::B),
        Self::CutLink([true, true]),
        Self::CutLink([true, false]),
        Self::CutLink([false, true]),
    ];

    /// Returns `true` if the sender's gateway notices the silence.
    pub(crate) fn is_noticed(self) -> bool {
        self != Self::StoppedGateway(Host::A)
    }
}

/// A way from a sender to a receiver.
pub(crate) trait Route: Sized {
    const NAME: &str;
    /// Prepares the way from [`Route::sender_at`] to `jobs`, both in `folder`.
    fn start(folder: &Path) -> Self;

    /// Returns the address for the owner.
    fn owner_at(folder: &Path) -> PathBuf {
        folder.join("jobs")
    }

    /// Returns the address for senders.
    fn sender_at(folder: &Path) -> PathBuf {
        folder.join("B-jobs")
    }

    /// Returns `true` if the programs are on two hosts.
    fn is_remote() -> bool {
        true
    }

    /// Returns `true` if the route knows this interruption.
    fn knows(what: Interruption) -> bool;

    /// Begins or ends an interruption that the route knows.
    fn interrupt(&mut self, what: Interruption, begins: bool);
}

/// Both programs on one host.
pub(crate) struct LocalRoute;

impl Route for LocalRoute {
    const NAME: &str = "local";

    fn start(_: &Path) -> Self {
        Self
    }

    fn sender_at(folder: &Path) -> PathBuf {
        Self::owner_at(folder)
    }

    fn is_remote() -> bool {
        false
    }

    fn knows(_: Interruption) -> bool {
        false
    }

    fn interrupt(&mut self, what: Interruption, _: bool) {
        panic!("unknown: {what:?}");
    }
}

impl Route for MemoryGateways {
    const NAME: &str = "memory";

    fn start(folder: &Path) -> Self {
        Self::start(folder, Faults::default())
    }

    fn knows(_: Interruption) -> bool {
        true
    }

    fn interrupt(&mut self, what: Interruption, begins: bool) {
        match what {
            Interruption::StoppedGateway(Host::A) => self.a.pause(begins),
            Interruption::StoppedGateway(Host::B) => self.b.pause(begins),
            Interruption::CutLink(cut) => self.switch.cut(cut.map(|cut| cut && begins)),
        }
    }
}

impl Route for TcpGateways {
    const NAME: &str = "tcp";

    fn start(folder: &Path) -> Self {
        Self::start(folder)
    }

    fn knows(what: Interruption) -> bool {
        matches!(what, Interruption::StoppedGateway(_))
    }

    fn interrupt(&mut self, what: Interruption, begins: bool) {
        let Interruption::StoppedGateway(host) = what else { panic!("unknown: {what:?}") };
        self.signal(host, if begins { Signal::STOP } else { Signal::CONT });
    }
}
