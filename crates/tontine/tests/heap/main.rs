//! The shared heap under wrong use and with broken files.
//!
//! Each test runs in a process of its own ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
mod bad_days;
#[path = "../common/mod.rs"]
mod common;
mod rubbish;
