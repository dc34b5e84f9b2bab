//! The smallest part of an expression: [`Term`].

use super::word::{Info, Own};

/// A number or a process.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// Itself.
    Number(i32),
    /// What was assigned last; 0 before.
    Variable(String),
    /// `self`, `parent`, `init`.
    Own(Own),
    /// `signal`, `sender`, …; in handlers.
    Info(Info),
}
