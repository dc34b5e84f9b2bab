//! Tests of the locking rules. OS threads stand in for fibers.

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

use super::{LockOptions, Locks};
use crate::LockingMode;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Creates the locks of mode `Parallel`.
fn parallel() -> Locks {
    locks(LockingMode::Parallel, LockOptions::default())
}

fn locks(mode: LockingMode, options: LockOptions) -> Locks {
    // SAFETY: every test uses its locks with one `Locks`, and takes those that its mode omits from
    // a single thread.
    unsafe { Locks::new(mode, options) }
}

/// Returns the message with which `body` panics.
fn panic_of(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("a panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a panic with a text")).to_owned(),
    }
}
