//! Interfaces to the kernel: memory that one process writes and others read ([`region`]), its
//! release ([`release`]), detection of forks ([`fork`]), messages with descriptors ([`socket`]),
//! doorbells ([`doorbell`]), the end of another process ([`pidfd`]), fences for other processes
//! ([`membarrier`]), resource limits ([`limits`]), random bytes and names ([`random`]), threads
//! without signals ([`thread`]), threads with their own descriptor tables ([`quarantine`]), and
//! users that a namespace does not map ([`user`]).
//!
//! Nothing here uses lives, lanes or mailboxes. Every descriptor is made close-on-exec.

#[cfg(test)]
pub(crate) mod child;
pub(crate) mod doorbell;
pub(crate) mod fork;
pub(crate) mod limits;
pub(crate) mod membarrier;
pub(crate) mod pidfd;
pub(crate) mod quarantine;
pub(crate) mod random;
pub(crate) mod region;
pub(crate) mod release;
pub(crate) mod socket;
pub(crate) mod thread;
pub(crate) mod user;
