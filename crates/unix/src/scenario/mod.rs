//! Scenarios as text.
