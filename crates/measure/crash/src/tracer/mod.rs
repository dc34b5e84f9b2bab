//! The tracer: a [`TracedVictim`] under `ptrace` executes a marked operation, step by step or
//! straight to one point.
//!
//! [`trace`] holds the system calls, [`registers`] the processor-dependent parts, and [`visible`]
//! the state of the victim that others can see. [`stores`] decides when that state may have
//! changed. [`recording`] is the result of a stepped run, and [`log`] creates it. Only the thread
//! that called [`TracedVictim::seize`] may use it; the victim's other threads run untraced.
//!
//! The tracer does not judge and has no knowledge of targets; [`crate::explore`] does both.

mod log;
pub(crate) mod recording;
mod registers;
mod stores;
mod trace;
mod victim;
mod visible;

pub(crate) use victim::{Approach, Granularity, ReachResult, TracedVictim};
