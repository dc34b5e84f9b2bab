//! Runs a test in its own process: [`alone!`].
//!
//! Tests change their process (limits, folders, handlers, users), count its resources, and fork it.
//! In a shared process, a descriptor that a fork copies would keep another test's connection open.

use std::any::type_name_of_val;
use std::env;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};

/// Environment variable that names the test for which this process was started.
const NAME: &str = "TONTINE_TEST_ALONE";

/// Runs the calling test in its own process, and returns from the test in the calling process. Must
/// be the first statement of the test.
macro_rules! alone {
    () => {
        if crate::alone::ran_elsewhere(&|| {}) {
            return;
        }
    };
}

/// Runs the test that contains the closure `within` in its own process and returns `true`. In that
/// process, returns `false`.
///
/// # Panics
/// Panics if the test fails in that process.
pub(crate) fn ran_elsewhere<F: Fn()>(within: &F) -> bool {
    let path = type_name_of_val(within).trim_end_matches("::{{closure}}");
    let (_, name) = path.split_once("::").expect("a function of a crate");
    if env::var_os(NAME).is_some_and(|started_for| started_for == name) {
        return false;
    }
    // The output is a file, because a process that the test leaves behind would keep a pipe open.
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
