//! Tests of each command of `tontine-measure`, from a user's point of view.

mod action;
#[path = "../../../../command/tests/common/mod.rs"]
mod common;
mod compare;
mod containers;
mod crash;
mod help;
mod hosts;
mod measure;
mod own;
mod refused_call;
mod report;

/// Path of the command under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_tontine-measure");
