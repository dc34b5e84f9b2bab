//! Terminals: [`Line`], what lies between who types and who reads.
//!
//! A terminal has two ends. At the controlling end sits a user, or a program that plays one: it
//! types with [`Line::input`] and sees with [`Line::take_output`]. At the other end are processes,
//! with [`Line::read`] and [`Line::output`].

mod attached;
mod device;
mod input;
mod line;
mod output;

pub(in crate::kernel) use device::Terminal;
