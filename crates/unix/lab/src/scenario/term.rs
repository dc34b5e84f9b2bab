//! The smallest part of an expression, [`Term`].

use super::word::{BuiltinValue, SignalField};

/// A number or a process.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Number(i32),
    /// The value of a variable; 0 before it is set.
    Variable(String),
    /// `self`, `parent`, `init`.
    Own(BuiltinValue),
    /// `signal`, `sender`, …, in handlers.
    Info(SignalField),
}
