//! What lies between the programs: [`Route`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tontine_remote::memory::Faults;

use crate::hosts::gateways::{Host, MemoryGateways, TcpGateways};

/// The promises that differ across machines: promise, local, across machines.
pub(crate) const DIFFERENCES: [(&str, &str, &str); 5] = [
    ("P2", "a death is reported at the next call", "a trip later; a silent host is not dead"),
    ("P4", "none twice while both ends live", "nor twice while the owner's gateway lives, too"),
    ("P5", "a hostile peer harms its own lane", "a lying host harms the lanes to and from it"),
    ("P7", "at most the first unread message is in doubt", "all that left the host are in doubt"),
    ("P9", "containers that share a folder or a descriptor", "hosts, each with a gateway"),
];

/// A temporary interruption between the programs, which is no death.
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
    /// Maximum time until an end is reported, on a busy machine.
    const SETTLE: Duration;

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

    /// Begins or ends an interruption. Returns `false` if the route knows no such interruption.
    fn interrupt(&mut self, what: Interruption, begins: bool) -> bool;
}

/// Both programs on one host.
pub(crate) struct LocalRoute;

impl Route for LocalRoute {
    const NAME: &str = "local";
    const SETTLE: Duration = Duration::from_secs(5);

    fn start(_: &Path) -> Self {
        Self
    }

    fn sender_at(folder: &Path) -> PathBuf {
        Self::owner_at(folder)
    }

    fn is_remote() -> bool {
        false
    }

    fn interrupt(&mut self, _: Interruption, _: bool) -> bool {
        false
    }
}

impl Route for MemoryGateways {
    const NAME: &str = "memory";
    const SETTLE: Duration = Duration::from_secs(10);

    fn start(folder: &Path) -> Self {
        Self::start(folder, Faults::default())
    }

    fn interrupt(&mut self, what: Interruption, begins: bool) -> bool {
        match what {
            Interruption::StoppedGateway(Host::A) => self.a.pause(begins),
            Interruption::StoppedGateway(Host::B) => self.b.pause(begins),
            Interruption::CutLink(cut) => self.switch.cut(cut.map(|cut| cut && begins)),
        }
        true
    }
}

impl Route for TcpGateways {
    const NAME: &str = "tcp";
    const SETTLE: Duration = Duration::from_secs(10);

    fn start(folder: &Path) -> Self {
        Self::start(folder)
    }

    fn interrupt(&mut self, what: Interruption, begins: bool) -> bool {
        let Interruption::StoppedGateway(host) = what else { return false };
        self.signal(host, if begins { Signal::STOP } else { Signal::CONT });
        true
    }
}
