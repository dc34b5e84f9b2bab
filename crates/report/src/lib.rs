//! Turns a run into text, CSV, Markdown, a page and a verdict.
//!
//! Floors, from the bottom up: `text`, `verdict`; `csv`, `markdown`; `html`; `write`.
//!
//! [`write::write_all`] puts a run into a folder. [`csv`], [`markdown`], [`text`] and [`html`] each
//! turn [`Results`](tontine_bench::schema::Results) into one form of output and touch no file;
//! [`mod@write`] renders them all and puts them into place so that a full disk leaves the previous
//! report whole. [`verdict`] says in sentences what the figures of the run mean.
//!
//! It knows the schema of `results.json`, runs nothing, and computes no interval:
//! [`tontine_bench::stats`] does.

pub mod csv;
pub mod html;
pub mod markdown;
pub mod text;
pub mod verdict;
pub mod write;
