//! Statistics: figures with intervals that have the promised coverage.
//!
//! The unit is an *invocation*, which is one fresh process. [`summary`] reduces the samples of one
//! invocation to a few figures. All other modules work on one figure per invocation:
//!
//! - [`order`]: the median and quantiles, by exact binomial order statistics;
//! - [`mean`]: the mean, by Kalibera and Jones; [`plan`]: the number of repetitions that it needs;
//! - [`ratio`]: paired ratios;
//! - [`shift`]: two runs that were not paired, without any assumption on shape; [`bootstrap`]: the
//!   quotient of two machines; [`resolution`]: the difference that a comparison could have found,
//!   and the number of pairs needed to find it; [`many`]: tests of many rows at once;
//! - [`outliers`]: Tukey's classes, and trimming; [`diagnose`]: reasons to distrust a figure;
//! - [`naive`]: the interval of consecutive samples that source 004 used, kept for comparison.
//!
//! The tests check all methods against random processes with a known truth.
//!
//! The module does not read files, run experiments or choose the statistic that a report prints.

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
pub mod share;
pub mod shift;
#[cfg(test)]
#[path = "../../tests/coverage/simulate.rs"]
mod simulate;
pub mod summary;
