//! What several experiments build their ends of: connections, queues, semaphores, heaps, the
//! sockets of libraries.
//!
//! Each file makes one mechanism ready and leaves to the experiments what is sent over it, how it
//! is timed and what is done when an end dies. [`peer`] asks whether the other end is still there;
//! `leftovers` knows what libraries keep in the file system. [`docker`] is an engine that runs
//! containers, [`image`] this program as the inside of one, [`owner`] whose they are. [`creation`]
//! has the ways to make a thread or a process that does nothing.
//!
//! It measures nothing, and starts nobody but those.

pub(crate) mod creation;
pub(crate) mod descriptor;
pub(crate) mod docker;
pub(crate) mod heap;
#[cfg(feature = "peers")]
pub(crate) mod iceoryx;
pub(crate) mod image;
pub(crate) mod leftovers;
pub(crate) mod mailbox;
pub(crate) mod monitor;
pub(crate) mod muster;
pub(crate) mod owner;
pub(crate) mod queue;
pub(crate) mod semaphore;
#[cfg(feature = "peers")]
pub(crate) mod zeromq;

/// Removes what killed processes left in the file system and in an engine.
pub(crate) fn sweep() {
    leftovers::sweep();
    docker::sweep();
}
