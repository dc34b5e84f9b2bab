//! Renders a run as text, CSV, Markdown and HTML, and states a verdict.
//!
//! Floors, from the bottom up: `ci_figure`, `contention`, `core_pairs`, `text`; `tables`,
//! `verdict`; `bencher`, `csv`, `github`, `markdown`; `html`; `write`.
//!
//! [`write::write_all`] writes a run into a folder. [`csv`], [`markdown`], [`text`] and [`html`]
//! each turn [`Results`](tontine_bench::schema::Results) into one output format and touch no file;
//! [`mod@write`] renders all of them and renames them into place, so that a full disk leaves the
//! previous report intact. [`mod@bencher`] and [`mod@github`] list the figures for services that
//! follow benchmarks. [`verdict`] states in sentences what the figures of the run mean.
//!
//! The crate depends on the schema of `results.json`. It runs no experiment and computes no
//! interval; [`tontine_bench::stats`] computes intervals.

#![allow(missing_docs, reason = "only the commands of this repository use the crate")]

pub mod bencher;
pub mod ci_figure;
mod contention;
mod core_pairs;
pub mod csv;
pub mod github;
pub mod html;
pub mod markdown;
mod tables;
pub mod text;
pub mod verdict;
pub mod write;

#[cfg(test)]
#[path = "../../bench/tests/fixture/mod.rs"]
mod fixture;
