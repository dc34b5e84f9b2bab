//! Tests of `tontine unix`.

mod check;
mod explore;
mod run;
mod scenarios;
mod shell;
