//! Misuse of the shared heap, and broken heap files.
//!
//! Each test runs in its own process ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
mod bad_days;
#[path = "../common/mod.rs"]
mod common;
#[path = "../raw/fuse.rs"]
mod fuse;
mod rubbish;
