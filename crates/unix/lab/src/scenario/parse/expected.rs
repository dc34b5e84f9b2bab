//! Parses the expected results of calls, and the expectations of the whole run.

use tontine_unix::{Errno, Modes};

use super::call::{bounds, mode};
use super::cursor::Cursor;
use super::source;
use crate::scenario::ast::{BlockKind, Count, Expectation, RunExpectation};
use crate::scenario::error::{SyntaxError, hint};
use crate::scenario::expected::{Expected, Pattern, StatusPattern, TakenPattern};
use crate::scenario::flags::MODES;
use crate::scenario::token::TokenKind;
use crate::scenario::word::{ActionKind, SignalCause};

/// The highest number of an error on Linux.
const LAST_ERRNO: i32 = 133;

/// Parses `-> A or B`, if it is next.
pub(super) fn behind_arrow(cursor: &mut Cursor<'_>) -> Result<Option<Expected>, SyntaxError> {
    if !cursor.takes("->") {
        return Ok(None);
    }
    alternatives(cursor, pattern).map(|patterns| Some(Expected(patterns)))
}

fn alternatives<T>(
    cursor: &mut Cursor<'_>,
    one: fn(&mut Cursor<'_>) -> Result<T, SyntaxError>,
) -> Result<Vec<T>, SyntaxError> {
    let mut all = vec![one(cursor)?];
    while cursor.takes_word("or") {
        all.push(one(cursor)?);
    }
    Ok(all)
}

fn pattern(cursor: &mut Cursor<'_>) -> Result<Pattern, SyntaxError> {
    let simple =
        [("anything", Pattern::Anything), ("ok", Pattern::Ok), ("nothing", Pattern::Nothing)];
    for (word, pattern) in simple {
        if cursor.takes_word(word) {
            return Ok(pattern);
        }
    }
    match cursor.peek() {
        Some(TokenKind::Text(_)) => cursor.text().map(Pattern::Text),
        Some(TokenKind::Symbol("{")) => cursor.set().map(Pattern::Set),
        Some(TokenKind::Name(name)) if name.starts_with('E') => errno(cursor, name),
        Some(TokenKind::Name(_)) => taken(cursor).map(Pattern::Taken),
        Some(TokenKind::Word(word)) => match word.as_str() {
            "all" => cursor.set().map(Pattern::Set),
            "soft" => bounds(cursor).map(Pattern::Limit),
            "modes" => modes(cursor),
            word if StatusPattern::WORDS.contains(&word) => {
                Ok(Pattern::Status(None, status(cursor)?))
            }
            word => match ActionKind::of(word) {
                Some(done) => {
                    cursor.skip();
                    Ok(Pattern::Done(done))
                }
                None if cursor.is_at_term() => value(cursor),
                None => Err(unknown(cursor, word)),
            },
        },
        Some(TokenKind::Number(_)) => value(cursor),
        _ => Err(cursor.expected("the expected result of the call")),
    }
}

fn unknown(cursor: &Cursor<'_>, word: &str) -> SyntaxError {
    let fixed = ["anything", "ok", "nothing", "soft", "modes", "all"];
    let known = fixed.iter().chain(StatusPattern::WORDS).chain(ActionKind::WORDS).copied();
    cursor.error(format!("neither a variable nor a result: `{word}`{}", hint(word, known)))
}

/// Parses a value, or a child and its status.
fn value(cursor: &mut Cursor<'_>) -> Result<Pattern, SyntaxError> {
    let term = cursor.term()?;
    match cursor.peek_word() {
        Some(word) if StatusPattern::WORDS.contains(&word) => {
            Ok(Pattern::Status(Some(term), status(cursor)?))
        }
        _ => Ok(Pattern::Value(term)),
    }
}

fn errno(cursor: &mut Cursor<'_>, name: &str) -> Result<Pattern, SyntaxError> {
    let all = (1..=LAST_ERRNO).map(Errno::from_raw);
    let found = all.clone().find(|errno| errno.name() == Some(name));
    let errno = found.ok_or_else(|| {
        let hint = hint(name, all.filter_map(Errno::name));
        cursor.error(format!("unknown error `{name}`{hint}"))
    })?;
    cursor.skip();
    Ok(Pattern::Errno(errno))
}

fn taken(cursor: &mut Cursor<'_>) -> Result<TakenPattern, SyntaxError> {
    let signal = cursor.signal()?;
    let from = if cursor.takes_word("from") { Some(cursor.term()?) } else { None };
    let value = if cursor.takes_word("value") { Some(cursor.term()?) } else { None };
    let code = if cursor.takes_word("code") {
        Some(cursor.one_of("code", SignalCause::WORDS, SignalCause::of)?)
    } else {
        None
    };
    Ok(TakenPattern { signal, from, value, code })
}

fn modes(cursor: &mut Cursor<'_>) -> Result<Pattern, SyntaxError> {
    cursor.skip();
    let mut modes = Modes::empty();
    while cursor.peek_word().is_some_and(|word| MODES.iter().any(|(name, _)| *name == word)) {
        modes |= mode(cursor)?;
    }
    Ok(Pattern::Modes(modes))
}

fn status(cursor: &mut Cursor<'_>) -> Result<StatusPattern, SyntaxError> {
    let of = |word: &str| StatusPattern::WORDS.iter().copied().find(|known| *known == word);
    Ok(match cursor.one_of("status", StatusPattern::WORDS, of)? {
        "exited" => {
            cursor.check_status()?;
            let number = matches!(cursor.peek(), Some(TokenKind::Number(_)));
            StatusPattern::Exited(if number { Some(cursor.integer()?) } else { None })
        }
        "killed" => StatusPattern::Killed(cursor.signal()?, cursor.takes_word("core")),
        "stopped" => StatusPattern::Stopped(cursor.signal()?),
        "trapped" => StatusPattern::Trapped(cursor.signal()?),
        _ => StatusPattern::Continued,
    })
}

/// Parses the rest of an `expect` line.
pub(super) fn expectation(cursor: &mut Cursor<'_>) -> Result<Expectation, SyntaxError> {
    let source = source(cursor);
    let what = match cursor.peek() {
        Some(TokenKind::Text(_)) => {
            let first = cursor.text()?;
            cursor.needs_word("before")?;
            RunExpectation::Before(first, cursor.text()?)
        }
        Some(TokenKind::Word(word)) if word == "note" => {
            cursor.skip();
            let text = cursor.text()?;
            let of = of(cursor)?;
            let count = if cursor.is_at_end() { Count::ONE } else { times(cursor)? };
            RunExpectation::Note { text, of, count }
        }
        Some(TokenKind::Word(word)) if word == "notes" => {
            cursor.skip();
            notes(cursor)?
        }
        Some(TokenKind::Number(_)) => {
            let count = count(cursor)?;
            cursor.needs_word("of")?;
            ended(cursor, Some(count))?
        }
        _ => ended(cursor, None)?,
    };
    Ok(Expectation { source, what })
}

fn ended(cursor: &mut Cursor<'_>, count: Option<Count>) -> Result<RunExpectation, SyntaxError> {
    let name = cursor.block(BlockKind::Process)?;
    Ok(RunExpectation::Ended { count, name, ways: alternatives(cursor, status)? })
}

fn of(cursor: &mut Cursor<'_>) -> Result<Option<String>, SyntaxError> {
    if cursor.takes_word("of") { cursor.block(BlockKind::Process).map(Some) } else { Ok(None) }
}

fn times(cursor: &mut Cursor<'_>) -> Result<Count, SyntaxError> {
    let count = count(cursor)?;
    cursor.needs_word("times")?;
    Ok(count)
}

fn count(cursor: &mut Cursor<'_>) -> Result<Count, SyntaxError> {
    let least = cursor.count()?;
    if !cursor.takes("..") {
        return Ok(Count { min: least, max: least });
    }
    match cursor.peek() {
        Some(TokenKind::Number(most)) if *most < i64::from(least) => {
            Err(cursor.error(format!("the range {least}..{most} is empty")))
        }
        _ => Ok(Count { min: least, max: cursor.count()? }),
    }
}

fn notes(cursor: &mut Cursor<'_>) -> Result<RunExpectation, SyntaxError> {
    let of = of(cursor)?;
    let ordered = !cursor.takes_word("in");
    if !ordered {
        cursor.needs_word("any")?;
        cursor.needs_word("order")?;
    }
    Ok(RunExpectation::Notes { of, ordered, sequences: alternatives(cursor, sequence)? })
}

fn sequence(cursor: &mut Cursor<'_>) -> Result<Vec<String>, SyntaxError> {
    if cursor.takes_word("none") {
        return Ok(Vec::new());
    }
    let mut texts = vec![cursor.text()?];
    while cursor.takes(",") {
        texts.push(cursor.text()?);
    }
    Ok(texts)
}
