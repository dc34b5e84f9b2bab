//! Signals that are taken, delivered and handled, and the state that is restored.
//!
//! Each test runs in its own process ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
#[path = "../asleep/mod.rs"]
mod asleep;
#[path = "../child/mod.rs"]
mod child;
#[macro_use]
mod shared;
mod delivery;
mod handlers;
mod taken;
