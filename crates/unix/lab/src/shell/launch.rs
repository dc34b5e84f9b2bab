//! The ways to run a program in its process: [`Launch`], [`execute`], [`call`].

use tontine_unix::{Errno, Sys};

use super::say::complain;

/// A function that runs a program in a child of the shell. Takes the program's name and arguments,
/// and returns its exit status.
pub type Launch = fn(&dyn Sys, &[String]) -> i32;

/// The directories that are searched for a program whose name is not a path.
const DIRECTORIES: [&str; 3] = ["", "/usr/bin/", "/bin/"];

/// Calls exec for the registered program of this name, or on Linux for the file.
pub fn execute(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let name = &arguments[0];
    let all: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let directories = if name.contains('/') { &DIRECTORIES[..1] } else { &DIRECTORIES };
    let mut error = Errno::ENOENT;
    for directory in directories {
        match sys.exec(&format!("{directory}{name}"), &all) {
            Err(Errno::ENOENT) => {}
            Err(other) => error = other,
        }
    }
    if error == Errno::ENOENT {
        return refuse(sys, name);
    }
    complain(sys, "tontine", format_args!("{name}: {error}"));
    126
}

/// Reports that there is no such program.
pub(super) fn refuse(sys: &dyn Sys, name: &str) -> i32 {
    complain(sys, "tontine", format_args!("no such program: {name}"));
    127
}
