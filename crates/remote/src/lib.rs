//! Carries the lanes of Tontine's mailboxes between hosts.
#![allow(missing_docs)]
pub mod config;
pub mod frame;
pub mod link;
pub mod incoming;
pub mod outgoing;
