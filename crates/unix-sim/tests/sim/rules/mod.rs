//! The rules of processes and signals, each a test named after it, by topic: what POSIX.1-2024,
//! Linux's manual pages and the paper (§3 to §7) say. [`harness`] runs each in every mode on both
//! executors, and, where no memory is shared between processes, on Linux.

#![allow(clippy::disallowed_types, reason = "some rules are about real time")]

mod accounts;
mod awaiting;
mod bsd;
mod clock;
mod delivery;
mod dispositions;
mod each_signal;
mod faults;
mod fork;
mod fork_exec_exit;
mod handlers;
pub(crate) mod harness;
mod kill;
mod limits;
mod masks;
mod pending;
mod priorities;
mod real_time;
mod sending;
mod sets;
mod suspension;
mod system_v;
mod threads;
mod users;
mod wait;
