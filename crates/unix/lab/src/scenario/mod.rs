//! Scenarios as text: processes, their statements, and the expected observations.
//!
//! A [`Scenario`] is parsed from text, printed as text, and run by [`run`] or [`program`]. A
//! [`Statement`] is one line, for example a [`SystemCall`] and its [`Expected`] result.
//!
//! ```
//! use tontine_unix_lab::scenario::Scenario;
//!
//! let text = "\
//! process mother
//!   child = fork daughter
//!   wait -> child exited 3
//!   wait -> ECHILD
//!
//! process daughter
//!   exit 3
//!
//! expect mother exited 0
//! ";
//! let scenario: Scenario = text.parse()?;
//! assert_eq!(scenario.to_string(), text);
//! # Ok::<(), tontine_unix_lab::scenario::SyntaxError>(())
//! ```

mod ast;
mod call;
mod context;
mod contexts;
mod error;
mod expected;
mod flags;
mod log;
mod outcome;
mod parse;
mod perform;
mod print;
mod program;
mod run;
mod runner;
pub(crate) mod step_control;
mod term;
mod timeline;
mod token;
mod verdict;
pub(crate) mod wire;
mod word;

pub use ast::{
    BlockKind, CallStatement, Condition, Count, Expectation, Expression, HandlerStatement,
    NotePart, RunExpectation, Scenario, ScenarioBlock, SourceLine, Statement, StatementKind,
};
pub use call::{Argument, ArgumentKind, Bounds, CallName, ExecTarget, Spawning, SystemCall};
pub use error::SyntaxError;
pub use expected::{Expected, Pattern, StatusPattern, TakenPattern};
pub use log::{EventKind, Log, LogEvent, MemoryLog, Record, RelatedProcess};
pub(crate) use program::{conducted, conducted_program};
pub use program::{executed, program, root};
pub use run::{ScenarioRun, run};
pub(crate) use runner::ScenarioRunner;
pub use term::Term;
pub use timeline::{Columns, Timeline};
pub use verdict::{FailedExpectation, ScenarioVerdict};
pub use wire::{PipeLog, read_log};
pub use word::{
    ActionKind, BuiltinValue, LimitedResource, Relation, SignalCause, SignalField, TargetKind,
    TraceRequest,
};
