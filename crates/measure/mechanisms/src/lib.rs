//! The mechanisms by which threads and processes pass messages. Each is defined once, by its
//! properties and a way to open its ends. The crate also contains code that several experiments
//! share for heaps, containers and the creation of processes.
//!
//! Floors, from the bottom up: `boost`, `classic`, `creation`, `heap`, `image`, `location`,
//! `monitor`, `start_barrier`, `operation`, `owner`, `threads`, `workers`; `about`, `docker`,
//! `end`, `region`, `slot`; `driver`; `descriptor`, `ring`; `robust_ring`; `boost_queue`,
//! `cloudtoid`, `condvar`, `crossbeam`, `elsewhere`, `eventfd`, `futex`, `iceoryx`, `mailbox`,
//! `pipe`, `posix_mq`, `robust_monitored`, `rtrb`, `semaphore`, `semaphore_ring`, `signal`,
//! `socket`, `spinlock`, `zeromq`; `registry`.
//!
//! A mechanism is a value, [`about::Mechanism`], and an entry in [`registry`], which names the
//! types that open its ends as pairs, as streams, or by name ([`driver`]). Its ends are an
//! [`end::Outlet`] and an [`end::Inlet`], or one type that implements both. Round trip,
//! throughput, survival and the crash explorer use these three shapes and do not name any
//! mechanism's library. They define the messages, the timing, and the reaction to the death of an
//! end.
//!
//! [`docker`] runs containers with an engine, [`image`] packs this program as a container image,
//! and [`owner`] records which process started a container. [`creation`] contains the ways to
//! create a thread or process that does nothing. [`workers`] runs the ends of a mechanism in pinned
//! processes or threads.
//!
//! The crate does not time anything, and refers to experiments only by the names of their rows.

#![allow(missing_docs, reason = "only the commands of this repository use the crate")]

pub mod about;
pub mod boost;
pub mod boost_queue;
pub mod classic;
pub mod cloudtoid;
pub mod condvar;
pub mod creation;
pub mod crossbeam;
pub mod descriptor;
pub mod docker;
pub mod driver;
pub mod elsewhere;
pub mod end;
pub mod eventfd;
pub mod futex;
pub mod heap;
pub mod iceoryx;
pub mod image;
pub mod location;
pub mod mailbox;
pub mod monitor;
pub mod operation;
pub mod owner;
pub mod pipe;
pub mod posix_mq;
pub mod region;
pub mod registry;
pub mod ring;
pub mod robust_monitored;
pub mod robust_ring;
pub mod rtrb;
pub mod semaphore;
pub mod semaphore_ring;
pub mod signal;
pub mod slot;
pub mod socket;
pub mod spinlock;
pub mod start_barrier;
pub mod threads;
pub mod workers;
pub mod zeromq;

use std::collections::BTreeMap;

/// Returns the versions of the libraries that are measured in addition to the mechanisms of the
/// kernel.
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

/// Removes the resources that killed processes left in the file system and in an engine.
pub fn sweep() {
    tontine_bench::leftovers::sweep();
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
