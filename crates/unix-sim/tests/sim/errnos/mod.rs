//! Every system call with every wrong argument: the errno that Linux gives.
//!
//! Each file here is a table of one area. A row ([`row::Row`]) names a rule, plays it as a program
//! and says the errno; [`place`] plays it on the real kernel and on the virtual one, in every mode.
//! [`complete`] reads the trait and fails for an argument that has no row and no reason to have
//! none.
//!
//! Calls that a signal interrupts, and what calls do that succeed, stand with the rules.

mod complete;
mod descriptors;
mod exec_fork;
mod groups_sessions;
mod limits_priorities;
mod place;
mod ptrace;
mod row;
mod scene;
mod signals;
mod terminals;
mod threads;
mod timers;
mod waits;
