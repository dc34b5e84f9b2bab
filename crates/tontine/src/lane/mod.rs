//! One sender's lane to one receiver: records in a chain of chunks.
//!
//! [`LaneWriter`] appends records to chunks that it alone may write, [`LaneReader`] reads them in
//! its read-only view of the same memory. [`record`] is the header word, [`page`] the offsets in
//! control page and chunk, [`control`] the words that the receiver writes, [`position`] the most
//! important one of them. `docs/internals/layout.md` describes all of it.
//!
//! Tests: `models` checks every interleaving and every value that the memory model allows,
//! `schedules` many random schedules of whole protocols with deaths, `properties` many sequences of
//! calls.
//!
//! A lane does not wait, wake, make or pass memory, and knows no processes: that is
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

pub(crate) use reader::{LaneReader, Peeked};
pub(crate) use writer::{FreeSpace, LaneWriter};
