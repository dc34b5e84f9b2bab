//! The rules of processes and signals by topic, from POSIX.1-2024, Linux's manual pages and the
//! paper (§3 to §7), if no scenario can express them: they vary over all signals, share memory,
//! configure the system, or check the time that a process is charged. Each rule is a test of the
//! same name. [`harness`] runs each rule in every mode on both executors, and also on Linux unless
//! the rule shares memory between processes.

#![allow(clippy::disallowed_types, reason = "some rules concern real time")]

mod accounts;
mod clock;
mod crowds;
mod delivery;
mod dispositions;
mod each_signal;
mod faults;
mod fork_exec_exit;
mod handlers;
pub(crate) mod harness;
mod kill;
mod masks;
mod sets;
mod suspension;
mod system_v;
mod users;
