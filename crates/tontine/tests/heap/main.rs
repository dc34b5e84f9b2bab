//! The shared heap when it is misused or its file is broken.
//!
//! Each test runs in its own process ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
mod bad_days;
#[path = "../common/mod.rs"]
mod common;
mod rubbish;
