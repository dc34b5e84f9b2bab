//! The job-control shell at your own terminal, with real processes and its own programs.
//!
//! ```console
//! $ cargo run -p tontine-unix-lab --example shell
//! tontine$ help
//! ```

use std::process::ExitCode;

use tontine_unix::{Errno, Linux, SigAction, Signal, Sys};
use tontine_unix_lab::shell::{call, shell};

fn main() -> Result<ExitCode, Errno> {
    let linux = Linux::new()?;
    // Rust's runtime ignores SIGPIPE, but a pipeline relies on SIGPIPE to end its writers.
    linux.sigaction(Signal::PIPE, Some(SigAction::DEFAULT))?;
    let arguments: Vec<String> = std::env::args().collect();
    Ok(ExitCode::from(shell(&linux, &arguments, call) as u8))
}
