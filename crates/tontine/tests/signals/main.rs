//! Signals that are taken, delivered and handled, and the restored state.
//!
//! Each test runs in a process of its own ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
#[path = "../child/mod.rs"]
mod child;
mod delivery;
mod handlers;
mod shared;
mod taken;
