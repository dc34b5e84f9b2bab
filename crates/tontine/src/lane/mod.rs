//! One sender's lane to one receiver: records in a chain of chunks.
//!
//! [`LaneWriter`] appends records to chunks that it alone may write; [`LaneReader`] reads them in
//! its read-only view of the same memory. [`record`] defines the header word, [`page`] the offsets
//! in control page and chunk, [`control`] the words that the receiver writes, and [`position`] the
//! most important of these words. `docs/internals/layout.md` describes all of it.
//!
//! Tests: `models` checks every interleaving and every value that the memory model allows;
//! `schedules` checks many random schedules of whole protocols, including deaths; `properties`
//! checks many sequences of calls.
//!
//! A lane does not wait or wake, does not make or pass memory, and knows no processes:
//! [`crate::mailbox`] does all that.

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
