//! What came out, written down: [`write::write_all`] puts a run into a folder.
//!
//! [`csv`], [`markdown`], [`text`] and [`html`] each turn a [`Results`](crate::schema::Results)
//! into one form of output and touch no file; [`mod@write`] renders them all and puts them into
//! place so that a full disk leaves the previous report whole. [`verdict`] is what the run's own
//! figures say in words.
//!
//! Nothing here computes an interval: [`crate::stats`] did.

pub mod csv;
pub mod html;
pub mod markdown;
pub mod text;
pub mod verdict;
pub mod write;
