//! The virtual Unix: the effects of its calls, the errors they return, and the guarantees of its
//! executors.
//!
//! All tests are in one program, because linking dominates the time to build tests. A test that
//! changes its process runs in a child ([`keeper`]).

mod children;
mod errors;
#[path = "../extent/mod.rs"]
mod extent;
mod jobs;
#[path = "../../../api/tests/keeper/mod.rs"]
mod keeper;
mod lock_order;
mod modelled;
mod races;
mod rules;
mod systems;
