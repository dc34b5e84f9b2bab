//! The text of a scenario: parsing what [`std::fmt::Display`] writes yields the same scenario.
//!
//! This file prints blocks and statements; `call.rs` prints calls, `expected.rs` their expected
//! results, `piece.rs` the parts of both. Bodies are always indented blocks; comments and layout
//! are not kept. Printing allocates nothing, because a handler may log a call.

mod call;
mod expected;
mod piece;

use std::fmt::{self, Display, Formatter, Write};

use call::action_flags;
pub(super) use piece::{Braced, SignalName};
use piece::{Set, escaped};

use super::ast::{
    BlockKind, CallStatement, Condition, Expression, HandlerStatement, NotePart, Scenario,
    ScenarioBlock, Statement, StatementKind,
};
use super::expected::Expected;
use super::term::Term;

impl Display for Scenario {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, block) in self.blocks.iter().enumerate() {
            if index > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{block}")?;
        }
        if !self.expectations.is_empty() {
            f.write_char('\n')?;
        }
        self.expectations.iter().try_for_each(|expectation| writeln!(f, "{expectation}"))
    }
}

impl Display for ScenarioBlock {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BlockKind::Process => "process",
            BlockKind::Thread => "thread",
        };
        writeln!(f, "{kind} {}", self.name)?;
        body(f, 1, &self.body)
    }
}

/// Writes statements, each on its own line.
fn body(f: &mut Formatter<'_>, depth: usize, statements: &[Statement]) -> fmt::Result {
    for Statement { kind, .. } in statements {
        writeln!(f, "{:1$}{kind}", "", depth * 2)?;
        match kind {
            StatementKind::Handler(HandlerStatement { body: inner, .. })
            | StatementKind::Repeat(_, inner)
            | StatementKind::While(_, inner) => body(f, depth + 1, inner)?,
            StatementKind::Call(_)
            | StatementKind::Note(_)
            | StatementKind::Set(..)
            | StatementKind::Check(_) => {}
        }
    }
    Ok(())
}

/// Displays a statement without its body.
impl Display for StatementKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(step) => {
                write!(f, "{step}")?;
                arrow(f, step.expected.as_ref())
            }
            Self::Handler(step) => {
                write!(f, "{step}")?;
                arrow(f, step.expected.as_ref())
            }
            Self::Note(parts) => {
                f.write_str("note \"")?;
                for part in parts {
                    match part {
                        NotePart::Text(text) => escaped(f, text, true)?,
                        NotePart::Value(term) => write!(f, "{{{term}}}")?,
                    }
                }
                f.write_char('"')
            }
            Self::Set(name, expression) => write!(f, "{name} = {expression}"),
            Self::Check(condition) => write!(f, "check {condition}"),
            Self::Repeat(times, _) => write!(f, "repeat {times}"),
            Self::While(condition, _) => write!(f, "while {condition}"),
        }
    }
}

/// Displays a call without its expected result.
impl Display for CallStatement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(into) = &self.into {
            write!(f, "{into} = ")?;
        }
        self.call.fmt(f)
    }
}

/// Displays a handler without its expected result and its body.
impl Display for HandlerStatement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.bsd { "sigvec" } else { "on" }, SignalName(self.signal))?;
        action_flags(f, self.flags)?;
        if self.mask.is_empty() { Ok(()) } else { write!(f, " mask {}", Set(self.mask)) }
    }
}

fn arrow(f: &mut Formatter<'_>, expected: Option<&Expected>) -> fmt::Result {
    expected.map_or(Ok(()), |expected| write!(f, " -> {expected}"))
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Variable(name) => f.write_str(name),
            Self::Own(own) => own.fmt(f),
            Self::Info(info) => info.fmt(f),
        }
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Term(term) => term.fmt(f),
            Self::Sum(left, right) => write!(f, "{left} + {right}"),
            Self::Difference(left, right) => write!(f, "{left} - {right}"),
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.relation, self.right)
    }
}
