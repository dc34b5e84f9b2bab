//! What several experiments share of the mechanisms that they measure: connections, queues,
//! semaphores, heaps, containers, and the sockets of libraries.
//!
//! Floors, from the bottom up: `creation`, `descriptor`, `heap`, `iceoryx`, `image`, `monitor`,
//! `muster`, `owner`, `queue`, `semaphore`, `zeromq`; `docker`, `mailbox`.
//!
//! Each file makes one mechanism ready, or one library's version of it, and leaves to the caller
//! what is sent over it, how that is timed, and what is done when an end dies. [`docker`] is an
//! engine that runs containers, [`image`] packs this program as a container image, [`owner`]
//! records which process started a container. [`creation`] has the ways to make a thread or a
//! process that does nothing.
//!
//! It times nothing, and knows no experiment.

pub mod creation;
pub mod descriptor;
pub mod docker;
pub mod heap;
#[cfg(feature = "peers")]
pub mod iceoryx;
pub mod image;
pub mod mailbox;
pub mod monitor;
pub mod muster;
pub mod owner;
pub mod queue;
pub mod semaphore;
#[cfg(feature = "peers")]
pub mod zeromq;

use std::collections::BTreeMap;

/// Returns the versions of the libraries that are measured besides the kernel's mechanisms.
pub fn libraries() -> BTreeMap<String, String> {
    #[cfg(feature = "peers")]
    let libraries = {
        let (major, minor, patch) = zmq::version();
        [("libzmq".to_owned(), format!("{major}.{minor}.{patch}"))]
    };
    #[cfg(not(feature = "peers"))]
    let libraries = [];
    BTreeMap::from(libraries)
}

/// Removes what killed processes left in the file system and in an engine.
pub fn sweep() {
    tontine_host::leftovers::sweep();
    docker::sweep();
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(feature = "peers")]
    fn version_of_libzmq_has_three_numbers() {
        let libzmq = &super::libraries()["libzmq"];
        assert_eq!(libzmq.split('.').count(), 3, "{libzmq}");
    }
}
