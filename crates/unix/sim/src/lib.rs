//! The virtual Unix: OSF/1's parallel process and signal management in user space.
//!
//! A [`Virtual`] system runs a program that is written for [`tontine_unix::Sys`]. Its processes are
//! closures on stackful coroutines, and a seed decides the order of events:
//!
//! ```
//! use tontine_unix::{Linux, Sys};
//! use tontine_unix_sim::{Executor, Virtual};
//!
//! fn program(sys: &dyn Sys) -> i32 {
//!     let child = sys.fork(|_| 7).expect("fork succeeds");
//!     let waited = sys.wait().expect("a child exists");
//!     assert_eq!(waited.pid, child);
//!     waited.status.exited().unwrap_or(1)
//! }
//!
//! let unix = Virtual::builder().executor(Executor::Simulated { seed: 1 }).build()?;
//! assert_eq!(unix.run(program).status.and_then(|status| status.exited()), Some(7));
//! assert_eq!(program(&Linux::new()?), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `tontine-unix-lab` decides which schedules to run. No process of this system is a process of the
//! operating system.
//!
//! Floors, from the bottom up: `split_mix`, `label`, `mode`, `costs`, `held`; `executor`; `lock`,
//! `console`, `stopper`; `config`; `kernel`; `machine`; `calibration`, `internal`.
//!
//! Source: D. Bolinger and S. Mangalat, *Parallelizing Signal Handling and Process Management in
//! OSF/1*; POSIX.1-2024; the manual pages of Linux. A number after § is a section of the first
//! source.

mod calibration;
mod config;
mod console;
mod costs;
mod executor;
mod held;
#[doc(hidden)]
pub mod internal;
mod kernel;
mod label;
mod lock;
mod machine;
mod mode;
mod split_mix;
mod stopper;

pub use config::{BusyThread, Delivery, Executor, Masks};
pub use console::{Console, TerminalController};
pub use costs::{CostKind, CostModel, ParseCostsError};
pub use kernel::{Awaits, ProcessState, SystemState, ThreadState};
pub use lock::{LockRow, LockStatistics, lock_order_page};
pub use machine::{BuildError, Builder, EndReason, RunReport, Virtual};
pub use mode::LockingMode;
pub use stopper::{RunningThread, Stopper};
