//! The engine that runs experiments in fresh processes, and computes intervals and comparisons from
//! their samples.
//!
//! Floors, from the bottom up: `about`, `contention`, `executable`, `heap_map`, `machine`,
//! `size`; `task`; `observe`; `stats`; `schema`; `format`, `suite`; `engine`,
//! `fixture`; `compare`, `own`.
//!
//! A caller passes a [`suite::Suite`] of experiments. [`engine`] starts each
//! [`task::InvocationTask`] several times, each time in a fresh process (an *invocation*), in
//! randomised blocks and with a deadline. In that process the experiment returns raw samples
//! ([`observe::Observed`]), which [`stats`] summarises. The summaries of all invocations become the
//! rows of [`schema::Results`], the content of `results.json`. [`compare`] compares two such files
//! and measures again the rows that may differ. [`own`] measures commands of the user. [`machine`]
//! detects properties of this machine that spoil a measurement.
//!
//! The crate refers to no experiment by name, renders comparisons but not runs (`tontine-report`
//! does), does not parse the command line (`tontine-cli` does), and runs only on Linux.

pub mod about;
pub mod compare;
pub mod contention;
pub mod engine;
pub mod executable;
#[doc(hidden)]
pub mod fixture;
pub mod format;
pub mod heap_map;
pub mod machine;
pub mod observe;
pub mod own;
pub mod schema;
pub mod size;
pub mod stats;
pub mod suite;
pub mod task;
