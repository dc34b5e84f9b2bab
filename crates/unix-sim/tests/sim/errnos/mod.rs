//! Every system call with every wrong argument, and the errno that Linux returns.
//!
//! Each file in this directory is the table of one area. A row ([`row::Row`]) consists of a rule's
//! name, a program and the expected errno. [`place`] runs the program on the real kernel and, in
//! every mode, on the virtual kernel. [`complete`] reads the trait and fails if an argument has
//! neither a row nor a reason for lacking one.
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
