//! The lexer of scenarios: [`TokenLine`]s of [`ScenarioToken`]s.
//!
//! Empty lines and lines with only a comment are dropped. `parse/` interprets the tokens.

use std::time::Duration;

use super::error::SyntaxError;

/// A line that contains tokens.
#[derive(Debug)]
pub(super) struct TokenLine<'t> {
    /// The number of the line, from 1.
    pub(super) number: usize,
    /// The number of spaces before the first token.
    pub(super) indent: usize,
    /// The tokens, at least one.
    pub(super) tokens: Vec<ScenarioToken>,
    /// The text of the line.
    pub(super) text: &'t str,
}

/// A token, with its position and width in characters; columns count from 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScenarioToken {
    pub(super) kind: TokenKind,
    pub(super) column: usize,
    pub(super) width: usize,
}

/// The kind of a token, with its content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    /// `fork`, `own-group`: letters in lower case, digits, hyphens.
    Word(String),
    /// `USR1`, `RTMIN+2`, `ECHILD`: the name of a signal or an error.
    Name(String),
    /// `3`, `-1`.
    Number(i64),
    /// `10ms`.
    Duration(Duration),
    /// `"text"`, without its quotes and escapes.
    Text(String),
    /// `->`, `=`, `{`, …
    Symbol(&'static str),
}

/// All symbols, longer ones first.
const SYMBOLS: &[&str] =
    &["->", "==", "!=", "<=", ">=", "..", "=", "<", ">", "+", "-", "{", "}", ":", ";", ","];

/// The units of durations, in nanoseconds.
pub(super) const UNITS: &[(&str, u64)] =
    &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Splits a text into lines of tokens.
pub(super) fn lines(text: &str) -> Result<Vec<TokenLine<'_>>, SyntaxError> {
    let mut lines = Vec::new();
    // Some editors put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, text) in text.lines().enumerate() {
        let number = index + 1;
        let indent = text.chars().take_while(|c| *c == ' ').count();
        let tokens = LineReader { characters: text.chars().collect(), at: indent, number, text };
        let tokens = tokens.tokens()?;
        if !tokens.is_empty() {
            lines.push(TokenLine { number, indent, tokens, text });
        }
    }
    Ok(lines)
}

/// The lexer of one line.
struct LineReader<'t> {
    characters: Vec<char>,
    at: usize,
    number: usize,
    text: &'t str,
}

impl LineReader<'_> {
    fn tokens(mut self) -> Result<Vec<ScenarioToken>, SyntaxError> {
        let mut tokens = Vec::new();
        loop {
            while self.peek().is_some_and(|c| c == ' ') {
                self.at += 1;
            }
            let from = self.at;
            match self.peek() {
                None | Some('#') => return Ok(tokens),
                Some(_) => {
                    let kind = self.token()?;
                    tokens.push(ScenarioToken { kind, column: from + 1, width: self.at - from });
                }
            }
        }
    }

    fn token(&mut self) -> Result<TokenKind, SyntaxError> {
        let first = self.characters[self.at];
        let behind = self.characters.get(self.at + 1).copied();
        match first {
            '"' => self.text(),
            'a'..='z' => {
                Ok(TokenKind::Word(self.taken(|c| {
                    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_'
                })))
            }
            'A'..='Z' => Ok(TokenKind::Name(self.name())),
            '0'..='9' => self.number(),
            '-' if behind.is_some_and(|c| c.is_ascii_digit()) => self.number(),
            _ => {
                let rest = &self.characters[self.at..];
                let symbol = SYMBOLS.iter().find(|symbol| {
                    symbol.len() <= rest.len() && symbol.chars().zip(rest).all(|(a, b)| a == *b)
                });
                let symbol = symbol.ok_or_else(|| match first {
                    '\t' => self.error(self.at, 1, "found a tab; use spaces".into()),
                    _ if first.is_alphanumeric() || first.is_ascii_graphic() => {
                        self.error(self.at, 1, format!("unexpected character `{first}`"))
                    }
                    _ => self.error(
                        self.at,
                        1,
                        format!("unexpected character U+{:04X}", u32::from(first)),
                    ),
                })?;
                self.at += symbol.len();
                Ok(TokenKind::Symbol(symbol))
            }
        }
    }

    fn taken(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let from = self.at;
        while self.peek().is_some_and(&is_part) {
            self.at += 1;
        }
        self.characters[from..self.at].iter().collect()
    }

    /// Reads a name. `RTMIN+2` is one name, `RTMIN + 2` is not.
    fn name(&mut self) -> String {
        let mut name = self.taken(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let behind = self.characters.get(self.at + 1);
        if self.peek() == Some('+') && behind.is_some_and(char::is_ascii_digit) {
            self.at += 1;
            name.push('+');
            name.push_str(&self.taken(|c| c.is_ascii_digit()));
        }
        name
    }

    fn number(&mut self) -> Result<TokenKind, SyntaxError> {
        let from = self.at;
        self.at += 1;
        self.taken(|c| c.is_ascii_digit());
        let digits: String = self.characters[from..self.at].iter().collect();
        let behind = self.characters.get(self.at + 1);
        if self.peek() == Some('.') && behind.is_some_and(char::is_ascii_digit) {
            self.at += 1;
            self.taken(|c| c.is_ascii_alphanumeric());
            let message = "expected a whole number of a smaller unit: 1500ms, not 1.5s";
            return Err(self.error(from, self.at - from, message.into()));
        }
        let unit = self.taken(|c| c.is_ascii_alphanumeric());
        let width = self.at - from;
        let wrong = |message: &str| self.error(from, width, message.into());
        let number: i64 = digits.parse().map_err(|_| wrong("the number exceeds 64 bits"))?;
        if unit.is_empty() {
            return Ok(TokenKind::Number(number));
        }
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, nanoseconds) =
            unit.ok_or_else(|| wrong("expected a number or a duration: 10ms, 2s, 500us"))?;
        let total = u64::try_from(number).ok().and_then(|n| n.checked_mul(*nanoseconds));
        let total = total.ok_or_else(|| wrong("the duration is negative or exceeds 500 years"))?;
        Ok(TokenKind::Duration(Duration::from_nanos(total)))
    }

    fn text(&mut self) -> Result<TokenKind, SyntaxError> {
        let from = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let c = self.peek();
            self.at += 1;
            match c {
                None => return Err(self.error(from, 1, "the text has no closing `\"`".into())),
                Some('"') => return Ok(TokenKind::Text(text)),
                Some('\\') => text.push(self.escaped()?),
                Some(c) => text.push(c),
            }
        }
    }

    /// Reads the character after a backslash.
    fn escaped(&mut self) -> Result<char, SyntaxError> {
        let from = self.at - 1;
        let c = self.peek();
        self.at += 1;
        match c {
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('\\') => Ok('\\'),
            Some('"') => Ok('"'),
            Some('x') => {
                let digits: String = self.characters[self.at..].iter().take(2).collect();
                self.at += 2;
                match u8::from_str_radix(&digits, 16) {
                    Ok(byte @ 0..=0x7f) if digits.len() == 2 => Ok(byte.into()),
                    _ => Err(self.error(from, 4, "expected \\x00 to \\x7f".into())),
                }
            }
            _ => Err(self.error(from, 2, "expected \\n, \\r, \\t, \\\\, \\\" or \\x03".into())),
        }
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn error(&self, at: usize, width: usize, message: String) -> SyntaxError {
        let text = self.text.to_owned();
        SyntaxError { line: self.number, column: at + 1, width, message, text }
    }
}
