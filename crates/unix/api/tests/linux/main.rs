//! Tests of `Linux` with real processes that they start themselves.
//!
//! A test that waits for any child, changes a disposition of the whole process, or inspects the
//! process's descriptors runs in its own process: [`scene::run`].

#![cfg(target_os = "linux")]

mod children;
mod dispositions;
mod groups;
mod handlers;
#[path = "../keeper/mod.rs"]
mod keeper;
mod scene;
mod spawning;
mod threads;
