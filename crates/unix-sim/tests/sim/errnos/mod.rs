//! Every system call with every wrong argument, and the errno that Linux returns.
//!
//! Each file here is a table of one area. A row ([`row::Row`]) names a rule, runs it as a program
//! and states the errno; [`place`] runs it on the real kernel and, in every mode, on the virtual
//! one. [`complete`] reads the trait and fails for an argument that has neither a row nor a reason
//! for lacking one.
//!
//! Calls that a signal interrupts, and the effects of successful calls, are tested with the rules.

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
