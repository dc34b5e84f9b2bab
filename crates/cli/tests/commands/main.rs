//! Tests of each command of `tontine`, from a user's point of view.

mod activation;
mod bridge;
#[path = "../../../command/tests/common/mod.rs"]
mod common;
mod dispatch;
mod framing;
mod help;
mod mail;

/// Path of the command under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_tontine");
