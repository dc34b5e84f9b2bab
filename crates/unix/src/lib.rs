//! Process and signal code on two backends: Linux, and OSF/1's parallel Unix in user space.
//!
//! [`Sys`] is the trait: fork, exec, wait, exit, signals, groups, sessions, job control, threads, a
//! terminal, limits, ptrace.
//!
//! A program is a function of `&dyn Sys`, and runs on both:
//!
//! ```
//! use tontine_unix::{Executor, Linux, Sys, Virtual};
//!
//! fn program(sys: &dyn Sys) -> i32 {
//!     let child = sys.fork(|_| 7).expect("there is room");
//!     let waited = sys.wait().expect("there is a child");
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
//! Source: D. Bolinger and S. Mangalat, *Parallelizing Signal Handling and Process Management in
//! OSF/1*; POSIX.1-2024; the manual pages of Linux. A number after § is a section of the first.

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("tontine-unix is for Linux on x86-64 and AArch64");

mod action;
pub mod check;
mod console;
mod costs;
mod errno;
mod executor;
pub mod explore;
mod kernel;
mod limit;
mod linux;
mod lock;
mod machine;
mod mode;
mod mutation;
mod process;
mod ptrace;
pub mod random;
mod rule;
pub mod scenario;
pub mod shell;
mod signal;
mod split_mix;
mod stopper;
mod sys;
mod system_v;
mod terminal;
mod wait;

pub use action::{ActionFlags, Code, Disposition, Handler, How, SigAction, SignalInfo};
pub use console::Console;
pub use costs::{Costs, CostsError, Step};
pub use errno::{Errno, Result};
pub use kernel::{Awaits, ProcessState, State, ThreadState};
pub use limit::{Limit, Resource};
pub use linux::Linux;
pub use lock::{LockRow, LockStatistics, lock_order_page};
pub use machine::{BuildError, Builder, Busy, Delivery, Ending, Executor, Masks, Report, Virtual};
pub use mode::Mode;
#[doc(hidden)]
pub use mutation::Mutation;
pub use process::{
    Body, FAULTS, Pid, Program, SigStack, SigVec, Spawn, SpawnGroup, Target, Tid, Whose,
};
pub use ptrace::Ptrace;
#[doc(hidden)]
pub use rule::{Hits, Rule};
pub use signal::{DefaultAction, NoSignal, SigSet, Signal};
pub use stopper::{Running, Stopper};
pub use sys::Sys;
pub use terminal::{Fd, Modes, Termios};
pub use wait::{Children, Status, Usage, WaitOptions, Waited};
