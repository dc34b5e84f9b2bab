//! Processes that are killed at random, and a member without memory. The tests that take many
//! seconds are ignored by default.
//!
//! Each test runs in its own process ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
#[path = "../common/mod.rs"]
mod common;
mod heap;
#[path = "../heap_members/mod.rs"]
mod heap_members;
mod out_of_memory;
