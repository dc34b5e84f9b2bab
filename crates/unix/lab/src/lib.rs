//! Scenarios for process and signal code, which can be run, compared with Linux, and explored under
//! all schedules.
//!
//! - [`scenario`]: a language for processes, the calls that they make, and the expected results.
//! - [`check`]: one scenario on Linux and on the virtual Unix, step by step.
//! - [`explore`]: a scenario, or a function of [`Sys`](tontine_unix::Sys), under all schedules up
//!   to a bound.
//! - [`random`]: random scenarios, each generated from a seed.
//! - [`shell`]: a shell with job control, as a program of either system.
//!
//! ```
//! use tontine_unix::Sys;
//! use tontine_unix_lab::explore::Exploration;
//!
//! let report = Exploration::new(|| |sys: &dyn Sys| {
//!     sys.fork(|_| 7).expect("below the limits");
//!     i32::from(sys.wait().expect("there is a child").status.exited() != Some(7))
//! })
//! .run();
//! assert_eq!(report.violation, None);
//! ```
//!
//! The system calls are in other crates: `tontine-unix` makes them on Linux, `tontine-unix-sim` in
//! a virtual Unix.
//!
//! Floors, from the bottom up: `scenario`, `shell`; `check`, `explore`; `random`.

#![allow(missing_docs, reason = "only our commands and tests use the crate")]

pub mod check;
pub mod explore;
pub mod random;
pub mod scenario;
pub mod shell;
