//! What came out, written down: [`write::write_all`] puts a run into a folder.
//!
//! [`schema`] is the shape that all others read. [`csv`], [`markdown`], [`text`] and [`html`] each
//! turn a [`schema::Results`] into one form of output and touch no file; [`mod@write`] renders them
//! all and puts them into place so that a full disk leaves the previous report whole.
//! [`mod@format`] is how a number looks in any of them, and [`verdict`] is what the run's own
//! figures say in words.
//!
//! Nothing here computes an interval: [`crate::stats`] did.

pub mod csv;
pub mod format;
pub mod html;
pub mod markdown;
pub mod schema;
pub mod text;
pub mod verdict;
pub mod write;

#[cfg(test)]
pub(crate) mod fixture;
