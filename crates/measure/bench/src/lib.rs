//! The engine that runs experiments in fresh processes, and computes intervals and comparisons from
//! their samples.
//!
//! Floors, from the bottom up: `error`, `sequence`; `os`; `clock`, `leftovers`; `peer`; `about`,
//! `executable`, `heap_map`, `machine`, `size`; `task`; `observe`; `stats`; `schema`; `format`,
//! `suite`; `engine`; `compare`, `own`.
//!
//! A caller passes a [`suite::Suite`] of experiments. [`engine`] starts each
//! [`task::InvocationTask`] several times, each time in a fresh process (an *invocation*), in
//! randomised blocks and with a deadline. In that process the experiment returns raw samples
//! ([`observe::Observed`]), which [`stats`] summarises. The summaries of all invocations become the
//! rows of [`schema::Results`], the content of `results.json`. [`compare`] compares two such files
//! and measures again the rows that may differ. [`own`] measures commands of the user. [`machine`]
//! detects properties of this machine that spoil a measurement.
//!
//! Experiments and mechanisms share the access to the machine: [`os`] wraps system calls behind
//! safe interfaces, [`clock`] returns time stamps, [`peer`] checks whether the other end of a
//! mechanism is alive, [`leftovers`] removes the
//! files that killed processes left, and [`error`] defines the reasons why a figure is missing.
//!
//! The crate refers to no experiment by name, renders comparisons but not runs (`tontine-report`
//! does), does not parse the command line (`tontine-measure` does), and runs only on Linux.

#![allow(missing_docs, reason = "only the commands of this repository use the crate")]

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "the `tontine` command and its crates need Linux on x86-64 or AArch64 with 64-bit pointers: \
     they know the system calls and the counters of those processors"
);

// The fixture of several packages names this one.
#[cfg(test)]
extern crate self as tontine_bench;

pub mod about;
pub mod clock;
pub mod compare;
pub mod engine;
pub mod error;
pub mod executable;
#[cfg(test)]
#[path = "../tests/fixture/mod.rs"]
mod fixture;
pub mod format;
pub mod heap_map;
pub mod leftovers;
pub mod machine;
pub mod observe;
pub mod os;
pub mod own;
pub mod peer;
pub mod schema;
pub mod sequence;
pub mod size;
pub mod stats;
pub mod suite;
pub mod task;
