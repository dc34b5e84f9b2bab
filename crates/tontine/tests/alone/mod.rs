//! A test in a process of its own: [`alone!`].
//!
//! Tests change their process (limits, folders, handlers, users), count its resources, and fork it;
//! and a descriptor that a fork copies keeps the other end of another test's socket open.

use std::any::type_name_of_val;
use std::env;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};

/// Environment variable with the name of the test that this process was started for.
const NAME: &str = "TONTINE_TEST_ALONE";

/// The first statement of a test: runs the test in a process of its own, and then returns from it
/// here.
macro_rules! alone {
    () => {
        if crate::alone::ran_elsewhere(&|| {}) {
            return;
        }
    };
}

/// Runs the test that contains the closure `within` in a process of its own, unless this is that
/// process.
///
/// # Panics
/// If the test fails there.
pub(crate) fn ran_elsewhere<F: Fn()>(within: &F) -> bool {
    let path = type_name_of_val(within).trim_end_matches("::{{closure}}");
    let (_, name) = path.split_once("::").expect("a function of a crate");
    if env::var_os(NAME).is_some_and(|started_for| started_for == name) {
        return false;
    }
    // A file, because a process that the test leaves behind would keep a pipe open.
    let mut output = tempfile::tempfile().expect("a file");
    let to_output = || Stdio::from(output.try_clone().expect("within the limits"));
    let status = Command::new(env::current_exe().expect("the test has an executable"))
        .args([name, "--exact", "--include-ignored", "--show-output"])
        .env(NAME, name)
        .stdout(to_output())
        .stderr(to_output())
        .status()
        .expect("the test starts");
    let mut text = String::new();
    output.rewind().expect("the file can be rewound");
    output.read_to_string(&mut text).expect("text");
    println!("{text}");
    assert!(status.success() && text.contains("1 passed"), "{name}: {status}");
    true
}
