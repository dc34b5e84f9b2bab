//! The ways to run a program in its process: [`Launch`], [`execute`], [`call`].

use std::sync::Arc;

use tontine_unix::{Disposition, Errno, SigAction, Signal, Sys};

use super::programs::Main;
use super::say::complain;

/// A function that runs a program in a child of the shell. Takes the program's name and arguments,
/// and returns its exit status.
pub type Launch = Arc<dyn Fn(&dyn Sys, &[String]) -> i32 + Send + Sync>;

/// The directories that are searched for a program whose name is not a path.
const DIRECTORIES: [&str; 3] = ["", "/usr/bin/", "/bin/"];

/// Returns a launch that calls exec for the registered program of this name, or on Linux for the
/// file.
pub fn execute() -> Launch {
    Arc::new(|sys, arguments| {
        let name = &arguments[0];
        let rest: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let directories = if name.contains('/') { &DIRECTORIES[..1] } else { &DIRECTORIES };
        let mut error = Errno::ENOENT;
        for directory in directories {
            match sys.exec(&format!("{directory}{name}"), &rest) {
                Err(Errno::ENOENT) => {}
                Err(other) => error = other,
            }
        }
        refuse(sys, name, error)
    })
}

/// Returns a launch that resets handlers, like exec, and calls one of `programs`. Used for programs
/// that are not files.
pub fn call(programs: Vec<(&'static str, Main)>) -> Launch {
    Arc::new(move |sys, arguments| {
        let name = &arguments[0];
        let Some((_, main)) = programs.iter().find(|(known, _)| known == name) else {
            return refuse(sys, name, Errno::ENOENT);
        };
        for signal in Signal::all() {
            let caught = sys.sigaction(signal, None);
            if caught.is_ok_and(|action| matches!(action.disposition, Disposition::Handler(_))) {
                sys.sigaction(signal, Some(SigAction::DEFAULT)).expect("what was caught may be");
            }
        }
        main(sys, arguments)
    })
}

/// Reports why the program does not run. Returns 127 if the program does not exist, else 126.
fn refuse(sys: &dyn Sys, name: &str, error: Errno) -> i32 {
    if error == Errno::ENOENT {
        complain(sys, "tontine", format_args!("no such program: {name}"));
        127
    } else {
        complain(sys, "tontine", format_args!("{name}: {error}"));
        126
    }
}
