//! The virtual Unix: the effects of its calls, the errors they return, the guarantees of its
//! executors.
//!
//! All tests form one program, because linking dominates the time to build tests. A test that
//! changes its process does so in a child ([`keeper`]).

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
