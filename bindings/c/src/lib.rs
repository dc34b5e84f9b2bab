//! Tontine for C: life, mailbox and sender as plain functions. The crate `tontine`
//! does the work.
//!
//! - [`border`]: the result of each call. If a call fails, it returns -1 or NULL, sets `errno`, and
//!   keeps a text for `tontine_last_error`. No panic leaves a call.
//! - [`life`], [`options`], [`mailbox`], [`sender`]: the functions, file by file in
//!   the order of the header.
//!
//! `cargo xtask header` generates `include/tontine.h` from this crate: the comments of public items
//! become the header's, so they are written for programmers in C. The rules for all functions, such
//! as which process and which thread may use a handle, are at the top of the header, which is in
//! `cbindgen.toml`. `examples/hello.c` is a program to start from.
//!
//! Floors, from the bottom up: `border`; `options`, `life`; `mailbox`; `sender`.

#![allow(non_camel_case_types, reason = "the names that C gives to types")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all, at the top of the header")]

pub mod border;
pub mod life;
pub mod mailbox;
pub mod options;
pub mod sender;
