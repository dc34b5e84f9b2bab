//! What lies between two steps of a system call: docs/races.md, as tests.
//!
//! Each race runs over many seeds of the simulated executor, in every mode: its invariant holds.
//! `cargo xtask mutants` takes the protection out of a copy of the kernel and runs the same test in
//! each mode in which the race can happen: a seed violates the invariant, and does so again.

mod deaths;
mod determinism;
mod exits;
mod explore;
mod groups;
mod master;
mod numbers;
mod queue;
mod signals;
mod stalls;
mod statistics;
mod strangers;
mod terminals;
mod tracing;
mod users;
mod waits;
mod watchdog;
