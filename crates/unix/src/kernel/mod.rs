//! The virtual Unix.

mod pipe;
mod terminal;
