//! `tontine unix` as its users meet it.

mod check;
mod explore;
mod run;
mod scenarios;
mod shell;
