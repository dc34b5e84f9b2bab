//! Each command of `tontine` as its users meet it.

mod common;
mod compare;
mod containers;
mod crash;
mod mail;
mod refused_call;
mod report;
mod unix;
