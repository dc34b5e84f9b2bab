//! Terminals: [`Terminal`], and in it the line discipline, what lies between who types and who
//! reads ([`Line`](line::Line)).
//!
//! A terminal has two ends. At the controlling end sits a user, or a program that plays one, or the
//! console ([`attached`]): there is typed, and seen what is shown. At the other end are processes,
//! which read and write.

mod attached;
mod calls;
mod device;
mod input;
mod line;
mod output;
mod own;

pub(in crate::kernel) use device::Terminal;
pub(in crate::kernel) use own::NO_TERMINAL;
