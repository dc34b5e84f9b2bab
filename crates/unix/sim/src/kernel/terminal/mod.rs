//! Terminals ([`Terminal`](super::session::Terminal)), each with the line discipline between the
//! typing user and the reading process ([`LineDiscipline`](super::line::LineDiscipline)).
//!
//! A terminal has two ends. A user, a program that acts as one, or the console ([`attached`]) uses
//! the controlling end, to type and to take output. Processes read and write at the other end.

mod attached;
mod calls;
mod device;
mod own;
