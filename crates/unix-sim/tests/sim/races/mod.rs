//! What lies between two steps of a system call: docs/races.md, as tests.
//!
//! Each race runs over many seeds of the simulated executor, in every mode: its invariant holds.
//! With the protection taken out ([`Mutation`](tontine_unix_sim::Mutation)) a seed is found at
//! which it does not, in each mode in which the race can happen, and that seed finds it again.

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
mod systems;
mod terminals;
mod tracing;
mod users;
mod waits;
mod watchdog;
