//! The virtual Unix: what its calls do, which errors they return, what its executors promise.
//!
//! One program, because linking is most of what tests cost to build. A test that changes its
//! process does so in a child ([`keeper`]).

mod children;
mod errnos;
mod first_steps;
mod jobs;
#[path = "../../../unix/tests/keeper/mod.rs"]
mod keeper;
mod lock_order;
mod modelled;
mod races;
mod rules;
mod statistics;
mod suites;
mod systems;
