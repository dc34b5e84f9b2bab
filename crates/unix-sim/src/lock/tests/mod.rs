//! The locks' rules, each as a test. Threads of the operating system stand for fibers.

#![allow(unsafe_code, reason = "tests of modes that leave locks out")]

mod absence;
mod blocking;
#[cfg(debug_assertions)]
mod checks;
mod counting;
mod order;
mod page;
mod priority;
mod simple;

use super::{Locks, Options};
use crate::LockingMode;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// All locks of mode parallel.
fn parallel() -> Locks {
    locks(LockingMode::Parallel, Options::default())
}

fn locks(mode: LockingMode, options: Options) -> Locks {
    // SAFETY: every test uses its locks with one `Locks`, and takes those that its mode leaves out
    // from a single thread.
    unsafe { Locks::new(mode, options) }
}

/// What `body` panics with.
fn panic_of(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it should have panicked");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a panic with a text")).to_owned(),
    }
}
