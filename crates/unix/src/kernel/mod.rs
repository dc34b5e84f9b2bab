//! The virtual Unix.
