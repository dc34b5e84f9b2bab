//! Tests of scenarios on real processes, in comparison with the virtual Unix, and of the shell on
//! both.

#[path = "../examples/calls.rs"]
mod calls;
mod check;
mod check_executed;
#[path = "../examples/mod.rs"]
mod examples;
#[path = "../../../sim/tests/extent/mod.rs"]
mod extent;
mod found;
#[path = "../../../api/tests/keeper/mod.rs"]
mod keeper;
mod programs;
mod scenario_linux;
mod shell;
