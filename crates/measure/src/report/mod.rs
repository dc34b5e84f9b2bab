//! What came out, written down.

pub mod schema;
