//! The rules of processes and signals by topic, from POSIX.1-2024, Linux's manual pages and the
//! paper (§3 to §7). Each rule is a test of the same name. [`harness`] runs each rule in every mode
//! on both executors, and also on Linux unless the rule shares memory between processes.

#![allow(clippy::disallowed_types, reason = "some rules concern real time")]

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
