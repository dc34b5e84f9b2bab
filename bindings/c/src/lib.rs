//! Tontine for C: life, mailbox and sender behind plain functions. Thin, without logic of its own.
//!
//! - [`border`]: how every call answers: -1 or NULL with `errno` set and a text kept for
//!   `tontine_last_error`; no panic passes.
//! - [`life`], [`options`], [`mailbox`], [`sender`], [`classic`]: the functions, file by file in
//!   the order of the header.
//!
//! `include/tontine.h` is generated from this crate by `cargo xtask header`: the comments of public
//! items are the header's, and speak to programmers in C. What holds for all functions (who owns a
//! handle, which thread may use it) stands at the header's top, in `cbindgen.toml`. Neighbours: the
//! crate `tontine` does everything; `examples/hello.c` shows a program.
//!
//! Floors, from the bottom up: `border`; `options`, `life`, `classic`; `mailbox`; `sender`.

#![allow(non_camel_case_types, reason = "the names that C gives to types")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all, at the header's top")]

pub mod border;
pub mod classic;
pub mod life;
pub mod mailbox;
pub mod options;
pub mod sender;
