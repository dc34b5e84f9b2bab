//! The system calls of a Unix process as a trait, [`Sys`], and their implementation for Linux.
//!
//! [`Sys`] declares fork, exec, wait, exit, signals, groups, sessions, job control, threads, a
//! terminal, limits and ptrace. [`Linux`] implements it with real processes. A program is a
//! function of `&dyn Sys`:
//!
//! ```
//! use tontine_unix::{Linux, Sys};
//!
//! fn program(sys: &dyn Sys) -> i32 {
//!     let child = sys.fork(|_| 7).expect("below the limits");
//!     let waited = sys.wait().expect("there is a child");
//!     assert_eq!(waited.pid, child);
//!     waited.status.exited().unwrap_or(1)
//! }
//!
//! assert_eq!(program(&Linux::new()?), 7);
//! # Ok::<(), tontine_unix::Errno>(())
//! ```
//!
//! The same program runs on the virtual Unix of `tontine-unix-sim`, where a seed determines the
//! order of events, and under all schedules in `tontine-unix-lab`. This crate contains neither.
//!
//! Floors, from the bottom up: `errno`, `signal`, `terminal`, `limit`; `process`; `ptrace`, `wait`;
//! `sys`; `system_v`, `linux`; `internal`.
//!
//! Source: POSIX.1-2024; the manual pages of Linux; for the calls of System V and BSD, D. Bolinger
//! and S. Mangalat, *Parallelizing Signal Handling and Process Management in OSF/1*.

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "tontine-unix needs Linux on x86-64 or AArch64 with 64-bit pointers: it starts processes with \
     machine code of those processors"
);

mod errno;
#[doc(hidden)]
pub mod internal;
mod limit;
mod linux;
mod process;
mod ptrace;
mod signal;
mod sys;
mod system_v;
mod terminal;
mod wait;

pub use errno::{Errno, Result};
pub use limit::{Resource, Rlimit};
pub use linux::Linux;
pub use process::{
    FAULTS, Pid, PriorityScope, SigStack, SignalTarget, SpawnGroup, SpawnRequest, Tid,
};
pub use ptrace::Ptrace;
pub use signal::{DefaultAction, ParseSignalError, SigSet, Signal};
pub use sys::{
    ActionFlags, Disposition, Handler, Program, SigAction, SigCode, SigInfo, SigVec, SigmaskHow,
    Sys, ThreadBody,
};
pub use terminal::{Fd, Modes, Termios};
pub use wait::{Children, Usage, WaitOptions, WaitStatus, WaitedChild};
