//! From samples to figures that hold when they are checked.
//!
//! The unit is an *invocation*: one fresh process. [`summary`] turns the samples of one invocation
//! into a handful of figures; everything else works on one figure an invocation:
//!
//! - [`order`]: median and quantiles, by exact binomial order statistics;
//! - [`mean`]: the mean, by Kalibera and Jones; [`plan`]: how many repetitions that asks for;
//! - [`ratio`]: paired ratios, and whether a limit is met;
//! - [`shift`]: two runs that were not paired, without any assumption on shape; [`bootstrap`]: the
//!   quotient of two machines; [`resolution`]: what a comparison could have found, and how many
//!   pairs it takes; [`many`]: many rows tested at once;
//! - [`outliers`]: Tukey's classes, trimming; [`diagnose`]: reasons to distrust a figure;
//! - [`naive`]: the interval of consecutive samples that seed 004 used, kept to be shown beside;
//! - [`simulate`]: processes with a known truth, against which all of these are checked.
//!
//! What it does not do: read files, run experiments, or choose which statistic a report prints.

pub mod bootstrap;
pub mod diagnose;
pub mod interval;
pub mod many;
pub mod mean;
pub mod naive;
pub mod order;
pub mod outliers;
pub mod plan;
pub mod ratio;
pub mod resolution;
pub mod shift;
pub mod simulate;
pub mod summary;
