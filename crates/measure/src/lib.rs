//! What attention costs on this machine: experiments, samples, statistics, report.
//!
//! One run flows through the modules in this order:
//!
//! 1. [`experiment`] holds the registry: each [`experiment::Experiment`] names its variants and the
//!    [`experiment::Task`]s (variant × parameters) that this machine can be asked for.
//! 2. [`engine`] starts every task several times, each time in a fresh process (an *invocation*),
//!    in randomised blocks, with a deadline.
//! 3. Inside that process the experiment runs and yields [`observe::Observed`]: raw samples, in
//!    order.
//! 4. [`stats`] turns samples into a summary, and the summaries of the invocations into intervals.
//! 5. [`report`] writes what came out: `results.json` ([`report::schema`]), a page, tables.
//! 6. [`compare`] holds two such files against each other, and measures again where they differ.
//!
//! [`clock`] stamps time, [`os`] wraps the few system calls that the experiments share, `mechanism`
//! makes what they send over, [`machine`] finds out what spoils a measurement here, [`trace`] which
//! system calls something makes, [`heap_map`] keeps how a heap looked, [`as_published`] repeats the
//! seeds as they were.
//!
//! What it does not do: parse a command line or draw a progress bar (`tontine-cli` does), and
//! measure anything on systems other than Linux.

pub mod about;
pub mod as_published;
pub mod clock;
pub mod compare;
mod contention;
pub mod engine;
pub mod executable;
pub mod experiment;
#[doc(hidden)]
pub mod fixture;
pub mod format;
pub mod heap_map;
pub mod machine;
mod mechanism;
pub mod observe;
pub mod os;
pub mod peer;
pub mod plant;
pub mod published;
pub mod report;
pub mod schema;
pub mod size;
pub mod stats;
pub mod suite;
pub mod task;
pub mod trace;
pub mod trouble;
