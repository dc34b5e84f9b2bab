//! The parser of scenarios: [`Scenario`]'s [`FromStr`].
//!
//! `token.rs` splits the text into lines of tokens. This file forms blocks and statements by
//! indentation; `cursor.rs` parses within a line, `call.rs` parses calls, `expected.rs` their
//! expected results.

mod call;
mod cursor;
mod expected;

use std::str::FromStr;

use cursor::{Cursor, DefinedNames, STATEMENTS};
use tontine_unix::SigSet;

use super::ast::{
    BlockKind, CallStatement, Condition, Expression, HandlerStatement, NotePart, Scenario,
    ScenarioBlock, SourceLine, Statement, StatementKind,
};
use super::call::CallName;
use super::error::{SyntaxError, hint};
use super::flags::ACTION_FLAGS;
use super::token::{TokenKind, TokenLine, lines};
use super::word::Relation;

/// Maximum depth of nested blocks.
const DEEPEST: usize = 16;

impl FromStr for Scenario {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let lines = lines(text)?;
        let names = DefinedNames::of(&lines);
        Parser { lines: &lines, names: &names, next: 0 }.scenario()
    }
}

/// The parser: all lines, and the index of the next one.
struct Parser<'a> {
    lines: &'a [TokenLine<'a>],
    names: &'a DefinedNames,
    next: usize,
}

impl<'a> Parser<'a> {
    fn scenario(mut self) -> Result<Scenario, SyntaxError> {
        let mut scenario = Scenario::default();
        while let Some(mut cursor) = self.cursor(false) {
            if cursor.line.indent > 0 {
                return Err(cursor.error("expected no indentation here".into()));
            }
            self.next += 1;
            match cursor.peek_word() {
                Some("process") => {
                    scenario.blocks.push(self.block(cursor, BlockKind::Process, &scenario)?);
                }
                Some("thread") => {
                    scenario.blocks.push(self.block(cursor, BlockKind::Thread, &scenario)?);
                }
                Some("expect") => {
                    cursor.skip();
                    scenario.expectations.push(expected::expectation(&mut cursor)?);
                    cursor.needs_end()?;
                }
                Some(word) => {
                    let hint = hint(word, ["process", "thread", "expect"]);
                    let message = "expected `process`, `thread` or `expect`";
                    return Err(cursor.error(format!("{message}; found `{word}`{hint}")));
                }
                None => return Err(cursor.expected("`process`, `thread` or `expect`")),
            }
        }
        match scenario.first() {
            Some(_) => Ok(scenario),
            None => Err(SyntaxError {
                line: 1,
                column: 1,
                width: 1,
                message: "expected at least one process".into(),
                text: String::new(),
            }),
        }
    }

    /// Returns a cursor over the next line.
    fn cursor(&self, in_handler: bool) -> Option<Cursor<'a>> {
        self.lines.get(self.next).map(|line| Cursor::new(line, self.names, in_handler))
    }

    /// Parses `process NAME` or `thread NAME`, and the body.
    fn block(
        &mut self,
        mut cursor: Cursor<'a>,
        kind: BlockKind,
        before: &Scenario,
    ) -> Result<ScenarioBlock, SyntaxError> {
        let source = source(&cursor);
        cursor.skip();
        let wrong = match cursor.peek_word() {
            Some(name) if before.block(name).is_some() => Some("is defined above"),
            // After `expect` these names would be read as keywords.
            Some("note" | "notes") => Some("is a keyword"),
            _ => None,
        };
        if let (Some(wrong), Some(name)) = (wrong, cursor.peek_word()) {
            return Err(cursor.error(format!("`{name}` {wrong}")));
        }
        let name = cursor.block(kind)?;
        let body = self.body(&mut cursor, 0)?;
        cursor.needs_end()?;
        Ok(ScenarioBlock { source, kind, name, body })
    }

    /// Parses the lines below `above` that are indented more.
    fn indented(
        &mut self,
        above: &TokenLine<'_>,
        depth: usize,
        in_handler: bool,
    ) -> Result<Vec<Statement>, SyntaxError> {
        let mut body = Vec::new();
        let own = self.lines.get(self.next).map_or(0, |line| line.indent);
        while let Some(cursor) = self.cursor(in_handler) {
            let indent = cursor.line.indent;
            if indent <= above.indent {
                break;
            }
            if depth > DEEPEST {
                return Err(cursor.error(format!("blocks are nested more than {DEEPEST} deep")));
            }
            if indent != own {
                return Err(cursor.error(format!("expected {own} spaces before it, or fewer")));
            }
            self.next += 1;
            self.sequence(cursor, depth, &mut body)?;
        }
        Ok(body)
    }

    /// Parses `STATEMENT; STATEMENT` to the end of the line, and the indented body of the last one.
    fn sequence(
        &mut self,
        mut cursor: Cursor<'a>,
        depth: usize,
        body: &mut Vec<Statement>,
    ) -> Result<(), SyntaxError> {
        loop {
            let source = source(&cursor);
            let kind = match cursor.peek_word() {
                Some("on" | "sigvec") => self.handler(&mut cursor, depth)?,
                Some("repeat") => {
                    cursor.skip();
                    cursor.check_times()?;
                    let times = cursor.term()?;
                    StatementKind::Repeat(times, self.body(&mut cursor, depth)?)
                }
                Some("while") => {
                    cursor.skip();
                    let condition = condition(&mut cursor)?;
                    StatementKind::While(condition, self.body(&mut cursor, depth)?)
                }
                _ => simple(&mut cursor)?,
            };
            body.push(Statement { source, kind });
            if !cursor.takes(";") {
                return cursor.needs_end();
            }
        }
    }

    /// Parses `: STATEMENT; STATEMENT`, or the indented lines below.
    fn body(
        &mut self,
        cursor: &mut Cursor<'a>,
        depth: usize,
    ) -> Result<Vec<Statement>, SyntaxError> {
        if depth > DEEPEST {
            return Err(cursor.error(format!("blocks are nested more than {DEEPEST} deep")));
        }
        if cursor.takes(":") && !cursor.is_at_end() {
            let mut body = Vec::new();
            // The rest of the line belongs to the body, and has its own cursor.
            let rest = std::mem::replace(cursor, cursor.ended());
            self.sequence(rest, depth + 1, &mut body)?;
            return Ok(body);
        }
        cursor.needs_end()?;
        self.indented(cursor.line, depth + 1, cursor.in_handler)
    }

    /// Parses `on SIGNAL [FLAGS] [mask SET] [-> EXPECTED]`, and the body.
    fn handler(
        &mut self,
        cursor: &mut Cursor<'a>,
        depth: usize,
    ) -> Result<StatementKind, SyntaxError> {
        if cursor.in_handler {
            return Err(cursor.error("a handler cannot install a handler".into()));
        }
        let bsd = cursor.peek_word() == Some("sigvec");
        cursor.skip();
        let signal = cursor.signal()?;
        let flags = call::action_flags(cursor);
        let mask = if cursor.takes_word("mask") { cursor.set()? } else { SigSet::EMPTY };
        if let Some(word) = cursor.peek_word() {
            let known = ACTION_FLAGS.iter().map(|(word, _)| *word).chain(["mask"]);
            return Err(cursor.error(format!("unknown flag `{word}`{}", hint(word, known))));
        }
        let expected = expected::behind_arrow(cursor)?;
        cursor.in_handler = true;
        let body = self.body(cursor, depth)?;
        cursor.in_handler = false;
        Ok(StatementKind::Handler(HandlerStatement { bsd, signal, flags, mask, expected, body }))
    }
}

fn source(cursor: &Cursor<'_>) -> SourceLine {
    SourceLine { line: u32::try_from(cursor.line.number).unwrap_or(u32::MAX) }
}

/// Parses a statement without a body.
fn simple(cursor: &mut Cursor<'_>) -> Result<StatementKind, SyntaxError> {
    if let (Some(TokenKind::Word(_)), Some(TokenKind::Symbol("="))) =
        (cursor.peek(), cursor.peek_behind())
    {
        let name = cursor.variable()?;
        cursor.skip();
        return match cursor.peek_word() {
            Some(word) if CallName::words().any(|known| known == word) => {
                call_step(cursor, Some(name))
            }
            _ => Ok(StatementKind::Set(name, expression(cursor)?)),
        };
    }
    match cursor.peek_word() {
        Some("note") => {
            cursor.skip();
            note(cursor).map(StatementKind::Note)
        }
        Some("check") => {
            cursor.skip();
            condition(cursor).map(StatementKind::Check)
        }
        Some(word) if CallName::words().any(|known| known == word) => call_step(cursor, None),
        Some(word @ ("expect" | "process")) => {
            Err(cursor.error(format!("`{word}` starts a line: expected no indentation here")))
        }
        Some(word) => {
            let known = CallName::words().chain(STATEMENTS.iter().copied());
            Err(cursor.error(format!("unknown word `{word}`{}", hint(word, known))))
        }
        None => Err(cursor.expected("a statement")),
    }
}

fn call_step(cursor: &mut Cursor<'_>, into: Option<String>) -> Result<StatementKind, SyntaxError> {
    let call = call::call(cursor)?;
    let expected = expected::behind_arrow(cursor)?;
    Ok(StatementKind::Call(CallStatement { into, call, expected }))
}

fn expression(cursor: &mut Cursor<'_>) -> Result<Expression, SyntaxError> {
    let left = cursor.term()?;
    if cursor.takes("+") {
        return Ok(Expression::Sum(left, cursor.term()?));
    }
    if cursor.takes("-") {
        return Ok(Expression::Difference(left, cursor.term()?));
    }
    Ok(Expression::Term(left))
}

fn condition(cursor: &mut Cursor<'_>) -> Result<Condition, SyntaxError> {
    let left = expression(cursor)?;
    let relation = match cursor.peek() {
        Some(TokenKind::Symbol(symbol)) => Relation::of(symbol),
        _ => None,
    };
    let relation = relation.ok_or_else(|| cursor.expected("`==`, `!=`, `<`, `<=`, `>` or `>=`"))?;
    cursor.skip();
    Ok(Condition { left, relation, right: expression(cursor)? })
}

/// Parses the text of a note: `{VALUE}` is filled in, `{{` is a brace.
fn note(cursor: &mut Cursor<'_>) -> Result<Vec<NotePart>, SyntaxError> {
    let Some(TokenKind::Text(text)) = cursor.peek() else {
        return Err(cursor.expected("a text in quotes"));
    };
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '{' | '}' if rest.next_if_eq(&c).is_some() => literal.push(c),
            '}' => return Err(cursor.error("`}` without `{`; write `}}` for a brace".into())),
            '{' => {
                let word: String = std::iter::from_fn(|| rest.next_if(|c| *c != '}')).collect();
                if rest.next().is_none() {
                    let message = "`{` without `}`; write `{{` for a brace";
                    return Err(cursor.error(message.into()));
                }
                let value = match word.parse() {
                    Ok(number) => super::term::Term::Number(number),
                    Err(_) => cursor.named(&word)?,
                };
                if !literal.is_empty() {
                    parts.push(NotePart::Text(std::mem::take(&mut literal)));
                }
                parts.push(NotePart::Value(value));
            }
            c => literal.push(c),
        }
    }
    if !literal.is_empty() {
        parts.push(NotePart::Text(literal));
    }
    cursor.skip();
    Ok(parts)
}
