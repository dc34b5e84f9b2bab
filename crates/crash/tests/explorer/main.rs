//! The explorer at work, on queues and on heaps.

mod common;
mod heaps;
mod queues;
