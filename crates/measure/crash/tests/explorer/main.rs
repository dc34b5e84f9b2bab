//! Tests of the explorer, on queues and on heaps.

mod common;
mod heaps;
mod queues;
