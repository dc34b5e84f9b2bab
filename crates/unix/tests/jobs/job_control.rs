//! job_control
