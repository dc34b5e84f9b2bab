//! Terminals: [`Terminal`], and in it the line discipline, between the typing user and the reading
//! process ([`LineDiscipline`](line::LineDiscipline)).
//!
//! A terminal has two ends. The controlling end, for typing and taking output, is used by a user,
//! by a program that acts as one, or by the console ([`attached`]). Processes read and write at the
//! other end.

mod attached;
mod calls;
mod device;
mod input;
mod line;
mod output;
mod own;

pub(in crate::kernel) use device::Terminal;
pub(in crate::kernel) use own::NO_TERMINAL;
