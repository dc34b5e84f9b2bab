//! What other suites of tests ask of a Unix and the rules do not show yet, by topic: the cases of
//! gVisor and of the Linux Test Project. `crates/unix-lab/tests/lab/conformance` says which test
//! shows which.
//! Where and how a test runs is the rules' harness's business: every mode, both executors, and
//! Linux where no memory is shared between processes.

#![allow(clippy::disallowed_types, reason = "some rules are about real time")]

mod alarms;
mod crowds;
mod limits;
mod programs;
mod seconds;
mod sending;
mod signals;
mod taking;
mod tracing;
mod usage;
mod waiting;
