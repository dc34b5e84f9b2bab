//! Tests of each command of `tontine`, from a user's point of view.

mod action;
mod bridge;
mod common;
mod compare;
mod containers;
mod crash;
mod help;
mod hosts;
mod mail;
mod measure;
mod own;
mod refused_call;
mod report;
mod unix;
