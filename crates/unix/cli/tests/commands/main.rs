//! Tests of each command of `tontine-unix`, from a user's point of view.

mod check;
#[path = "../../../../command/tests/common/mod.rs"]
mod common;
mod explore;
mod run;
mod scenarios;
mod shell;

/// Path of the command under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_tontine-unix");
