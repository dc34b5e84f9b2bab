//! Tests of scenarios, exploration and random scenarios on the virtual Unix, and of the documents
//! that describe them.

mod bed;
mod bounds;
mod conformance;
mod errors;
#[path = "../examples/mod.rs"]
mod examples;
mod explore;
#[path = "../../../sim/tests/extent/mod.rs"]
mod extent;
#[path = "../../../api/tests/keeper/mod.rs"]
mod keeper;
mod random;
mod scenario_errors;
mod scenario_round_trip;
mod scenario_virtual;
#[path = "../scenes/mod.rs"]
mod scenes;
mod supervisor;
