//! Hostile peers. The messages and descriptors that they send or withhold harm neither the other
//! end nor third parties.
//!
//! Each test runs in its own process ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
#[path = "../asleep/mod.rs"]
mod asleep;
#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod queues;
#[path = "../raw/mod.rs"]
mod raw;
mod receivers;
mod senders;
