//! Cases from gVisor's test suite and the Linux Test Project that the rules do not cover, by topic.
//! `crates/unix-lab/tests/lab/conformance` maps each case to its test. The harness of the rules
//! runs them in every mode, on both executors, and on Linux unless memory is shared between
//! processes.

#![allow(clippy::disallowed_types, reason = "some rules concern real time")]

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
