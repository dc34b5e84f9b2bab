//! Two hosts for the tests: programs ([`program`]), and gateways between them ([`gateways`]).

#![allow(dead_code, reason = "no test uses all of it")]
#![allow(unreachable_pub, reason = "a module of each test")]

pub mod gateways;
pub mod program;
pub mod resources;

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
