//! Interleavings between the steps of a system call: the races of docs/internals/races.md, as
//! tests.
//!
//! Each race runs with many seeds of the simulated executor, in every mode, and its invariant must
//! hold. `cargo xtask mutants` removes the protection from a copy of the kernel and runs the same
//! test in each mode in which the race can happen. A seed must then violate the invariant,
//! reproducibly.

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
