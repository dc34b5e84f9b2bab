//! Carries the lanes of Tontine's mailboxes between hosts.
#![allow(missing_docs)]
pub mod config;
pub mod detector;
pub mod frame;
pub mod gateway;
pub mod incoming;
pub mod link;
pub mod memory;
pub mod outgoing;
pub mod service;
pub mod status;
pub mod tcp;
