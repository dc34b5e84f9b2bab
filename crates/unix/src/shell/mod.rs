//! A job-control shell.
