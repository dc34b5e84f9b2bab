//! Two hosts for the tests: programs ([`program`]), and gateways between them ([`gateways`]).

#![allow(dead_code, reason = "no test uses all of it")]
#![allow(unreachable_pub, reason = "a module of each test")]

pub mod gateways;
pub mod program;
pub mod resources;

use std::env;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A timeout that no successful operation reaches.
pub const AMPLE: Duration = Duration::from_secs(40);

/// Waits until `done` returns `true`.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + AMPLE;
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Environment variable with the number of the case for which this process was started. The
/// number of cases that contain the case is appended.
const CASE: &str = "TONTINE_TEST_CASE_";

/// Runs each case of a test that runs alone in a process of its own, all at the same time, because
/// cases mostly wait. A case may have cases of its own.
///
/// # Panics
/// Panics if a case fails.
pub fn in_processes<T>(cases: impl IntoIterator<Item = T>, run: impl FnOnce(T)) {
    static DEPTH: AtomicU32 = AtomicU32::new(0);
    let mut cases = cases.into_iter();
    let variable = format!("{CASE}{}", DEPTH.fetch_add(1, Ordering::Relaxed));
    if let Some(number) = env::var_os(&variable) {
        let number = number.to_str().and_then(|number| number.parse().ok()).expect("a number");
        return run(cases.nth(number).expect("a case"));
    }
    let test = env::var_os("TONTINE_TEST_ALONE").expect("the test runs alone");
    let start = |number: usize| {
        let output = tempfile::tempfile().expect("a file");
        let to_output = || Stdio::from(output.try_clone().expect("within the limits"));
        let mut command = Command::new(env::current_exe().expect("an executable"));
        command.arg(&test).args(["--exact", "--include-ignored", "--show-output"]);
        command.env(&variable, number.to_string()).stdout(to_output()).stderr(to_output());
        program::end_with_parent(&mut command);
        (command.spawn().expect("a process"), output)
    };
    let started: Vec<(Child, File)> = (0..cases.count()).map(start).collect();
    let mut failed = 0;
    for (mut child, mut output) in started {
        let status = child.wait().expect("a child");
        let mut text = String::new();
        output.rewind().expect("a file");
        output.read_to_string(&mut text).expect("text");
        println!("{text}");
        failed += u32::from(!status.success() || !text.contains("1 passed"));
    }
    assert_eq!(failed, 0, "cases failed");
}

/// A sequence of numbers that a seed determines (xorshift64).
pub struct SeededNumbers(pub u64);

impl SeededNumbers {
    /// Returns the next number, below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
