//! Tests of `Linux` with real processes that they start themselves.
//!
//! A test that waits for any child, changes a disposition of the whole process, or inspects the
//! process's descriptors runs in its own process: [`scene::play`].

#![cfg(target_os = "linux")]

mod children;
mod dispositions;
mod groups;
mod handlers;
#[path = "../keeper/mod.rs"]
mod keeper;
mod limits;
mod masks;
mod scene;
mod spawning;
mod terminals;
mod threads;
mod tracing;
