//! Tests of each command of `tontine`, from a user's point of view.

mod common;
mod compare;
mod containers;
mod crash;
mod mail;
mod refused_call;
mod report;
mod unix;
