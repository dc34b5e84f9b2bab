//! A worker as its own program, for this package's tests; `tontine` itself also serves as a worker.

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let served = match &arguments[..] {
        [subject, folder] => tontine_crash::actor::serve(subject, folder),
        _ => Err(io::Error::other(
            "expected a target and a directory; only `tontine-measure crash` starts \
                                   this program",
        )),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tontine-crash-actor: {error}");
            ExitCode::FAILURE
        }
    }
}
