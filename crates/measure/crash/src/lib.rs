//! Kills a process at every instruction of an operation, and judges the state in which the kill
//! leaves the other processes.
//!
//! An exploration passes through the modules in this order:
//!
//! 1. [`subject`] holds the registry of targets. Each [`subject::CrashTarget`] is one mechanism (a
//!    heap, or a queue that carries numbered messages ([`message`]) from a sender to a receiver)
//!    and names the operations under test.
//! 2. [`worker_launcher`] starts *workers*, fresh processes without address randomisation, each
//!    with one end of the mechanism; [`actor`] is the program that they run, and `fair_timeout`
//!    measures how long they may take.
//! 3. `tracer` traces the victim: it records one stepped run of the operation, and later brings
//!    fresh victims to a point of that recording, where they are killed.
//! 4. [`explore`] does this for one point per class, for pairs or for all points, and then lets the
//!    survivors continue; it compares what they receive with what was acknowledged ([`verdict`]).
//! 5. [`report`] holds the results and prints them.
//!
//! The crate does not kill at random (`tontine-measure` does), explore thread schedules, or trace
//! the helper threads that a library starts: these run alongside the victim's own thread.
//!
//! Floors, from the bottom up: `message`, `mode`; `verdict`, `fair_timeout`, `run_dir`;
//! `subject`; `actor`; `worker_launcher`; `tracer`; `report`; `explore`.
//!
//! Requires x86-64 Linux that allows `ptrace` and `personality`. Otherwise each target is
//! *skipped*, with the reason.

#![allow(missing_docs, reason = "only the commands of this repository use the crate")]

pub mod actor;
pub mod explore;
mod fair_timeout;
pub mod message;
mod mode;
pub mod report;
pub mod run_dir;
pub mod subject;
mod tracer;
pub mod verdict;
pub mod worker_launcher;

pub use explore::{ExploreRequest, run};
pub use mode::KillMode;
