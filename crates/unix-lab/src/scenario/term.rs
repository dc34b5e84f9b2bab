//! The smallest part of an expression: [`Term`].

use super::word::{BuiltinValue, Info};

/// A number or a process.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// Itself.
    Number(i32),
    /// What was assigned last; 0 before.
    Variable(String),
    /// `self`, `parent`, `init`.
    Own(BuiltinValue),
    /// `signal`, `sender`, …; in handlers.
    Info(Info),
}
