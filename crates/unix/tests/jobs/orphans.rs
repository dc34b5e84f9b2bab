//! orphans
