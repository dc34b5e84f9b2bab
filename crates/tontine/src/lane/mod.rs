//! One sender's lane to one receiver: records in a chain of chunks.
//!
//! [`Writer`] appends records to chunks that it alone may write, [`Reader`] takes them out of its
//! read-only view of the same memory. [`record`] is the header word, [`page`] the offsets of what
//! surrounds the ring, [`control`] the receiver's half of the conversation, [`position`] its most
//! important word. All of it is laid out in `docs/layout.md`.
//!
//! How it is shown: `models` goes through all interleavings and all values that the memory model
//! allows, `schedules` through many of whole protocols with deaths in them, `properties` through
//! many sequences of calls.
//!
//! What it does not do: wait, wake, make or pass memory, or know what a process is. That is
//! [`crate::mailbox`].

#[cfg(not(loom))]
pub(crate) mod control;
#[cfg(not(loom))]
pub(crate) mod mapped;
#[cfg(all(test, loom))]
pub(crate) mod models;
pub(crate) mod page;
pub(crate) mod position;
#[cfg(all(test, not(loom)))]
mod properties;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod region;
#[cfg(all(test, not(loom)))]
mod schedules;
pub(crate) mod writer;

pub(crate) use reader::{Found, Reader};
pub(crate) use writer::{Room, Writer};
