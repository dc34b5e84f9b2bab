//! A sender's lane to one receiver: records in a chain of chunks.
//!
//! [`LaneWriter`] appends records to chunks that it alone may write; [`LaneReader`] reads them in
//! its read-only view of the same memory, and pauses when it has caught up ([`catch_up`]).
//! [`store_choice`] decides whether large messages are stored past the cache.
//! [`record`] defines the header word. [`page`] defines the offsets in control pages and chunks.
//! [`control`] defines the words that the receiver writes, and [`position`] defines the most
//! important of these words. `docs/internals/layout.md` describes the whole layout.
//!
//! Tests: `models` checks every interleaving, including deaths, and every value that the memory
//! model allows; `properties` checks many sequences of calls.
//!
//! This module does not block or wake threads, create or pass memory, or track processes.
//! [`crate::mailbox`] does all of this.

mod catch_up;
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
mod store_choice;
pub(crate) mod writer;

pub(crate) use reader::{LaneReader, Peeked};
pub(crate) use writer::{FreeSpace, LaneWriter};
