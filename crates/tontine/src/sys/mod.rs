//! What is asked of the kernel, in one place: memory that one process writes and others read
//! ([`region`]), when nothing refers to it any more ([`release`]), who was forked ([`fork`]),
//! datagrams with descriptors ([`socket`]), doorbells ([`bell`]), the end of another process
//! ([`pidfd`]), a fence for others ([`membarrier`]), a thread without signals ([`thread`]), and one
//! with a descriptor table of its own ([`quarantine`]).
//!
//! Nothing here knows of lives, lanes or mailboxes. Every descriptor is made close-on-exec.

pub(crate) mod bell;
#[cfg(test)]
pub(crate) mod child;
pub(crate) mod fork;
pub(crate) mod limits;
pub(crate) mod membarrier;
pub(crate) mod pidfd;
pub(crate) mod quarantine;
pub(crate) mod region;
pub(crate) mod release;
pub(crate) mod socket;
pub(crate) mod thread;
