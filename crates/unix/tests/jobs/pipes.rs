//! pipes
