//! Access to the machine for measurements: child processes, processors, clocks, system calls.
//!
//! Floors, from the bottom up: `error`; `os`; `clock`, `leftovers`; `peer`; `trace`.
//!
//! [`os`] wraps the few system calls that experiments share, each behind a safe interface.
//! [`clock`] returns time stamps. [`peer`] checks whether the other end of a mechanism is alive.
//! [`trace`] records the system calls of a function by `ptrace`. [`leftovers`] removes the files
//! that killed processes left behind. [`error`] defines the reasons why a figure is missing.
//!
//! The crate depends on neither mechanisms nor experiments, and computes no statistics.

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "the `tontine` command and its crates need Linux on x86-64 or AArch64 with 64-bit pointers: \
     they know the system calls and the counters of those processors"
);

pub mod clock;
pub mod error;
pub mod leftovers;
pub mod os;
pub mod peer;
pub mod trace;
