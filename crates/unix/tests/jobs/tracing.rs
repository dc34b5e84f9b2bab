//! tracing
