//! A position in one line, [`Cursor`], and the names that a text defines, [`DefinedNames`].

use std::collections::BTreeSet;
use std::time::Duration;

use tontine_unix::{SigSet, Signal};

use crate::scenario::ast::BlockKind;
use crate::scenario::call::CallName;
use crate::scenario::error::{SyntaxError, hint};
use crate::scenario::expected::StatusPattern;
use crate::scenario::flags::WAIT_OPTIONS;
use crate::scenario::term::Term;
use crate::scenario::token::{ScenarioToken, TokenKind, TokenLine};
use crate::scenario::word::{ActionKind, BuiltinValue, SignalField};

/// Words that start a statement that is not a call.
pub(super) const STATEMENTS: &[&str] =
    &["on", "sigvec", "note", "check", "repeat", "while", "expect", "process"];

/// Words that neither start a statement nor denote a value, and that would be misread as variables.
const OTHERS: &[&str] = &[
    "any",
    "group",
    "own-group",
    "everyone",
    "anything",
    "ok",
    "nothing",
    "or",
    "soft",
    "hard",
    "modes",
    "all",
    "notes",
    "mask",
    "from",
];

/// The names that a text defines, at any place.
#[derive(Debug, Default)]
pub(super) struct DefinedNames {
    processes: BTreeSet<String>,
    threads: BTreeSet<String>,
    variables: BTreeSet<String>,
}

impl DefinedNames {
    /// Collects the names of all lines.
    pub(super) fn of(lines: &[TokenLine<'_>]) -> Self {
        let mut names = Self::default();
        for line in lines {
            let kinds: Vec<&TokenKind> = line.tokens.iter().map(|token| &token.kind).collect();
            if let (0, [TokenKind::Word(kind), TokenKind::Word(name), ..]) =
                (line.indent, &kinds[..])
            {
                match kind.as_str() {
                    "process" => names.processes.insert(name.clone()),
                    "thread" => names.threads.insert(name.clone()),
                    _ => false,
                };
            }
            for window in kinds.windows(2) {
                if let [TokenKind::Word(name), TokenKind::Symbol("=")] = window {
                    names.variables.insert(name.clone());
                }
            }
            for window in kinds.windows(3) {
                if let [TokenKind::Word(call), TokenKind::Word(first), TokenKind::Word(second)] =
                    window
                    && matches!(call.as_str(), "pipe" | "openpty")
                {
                    names.variables.extend([first.clone(), second.clone()]);
                }
            }
        }
        names
    }

    fn blocks(&self, kind: BlockKind) -> &BTreeSet<String> {
        match kind {
            BlockKind::Process => &self.processes,
            BlockKind::Thread => &self.threads,
        }
    }
}

/// A line, and the number of tokens already read.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    pub(super) line: &'a TokenLine<'a>,
    names: &'a DefinedNames,
    at: usize,
    /// `true` while the cursor reads a handler's body.
    pub(super) in_handler: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(line: &'a TokenLine<'a>, names: &'a DefinedNames, in_handler: bool) -> Self {
        Self { line, names, at: 0, in_handler }
    }

    /// Returns a cursor over the same line with no token left.
    pub(super) fn ended(&self) -> Self {
        Self { at: self.line.tokens.len(), ..*self }
    }

    /// Returns the next token.
    pub(super) fn peek(&self) -> Option<&'a TokenKind> {
        self.line.tokens.get(self.at).map(|token| &token.kind)
    }

    /// Returns the token after the next token.
    pub(super) fn peek_behind(&self) -> Option<&'a TokenKind> {
        self.line.tokens.get(self.at + 1).map(|token| &token.kind)
    }

    /// Returns the next token, if it is a word.
    pub(super) fn peek_word(&self) -> Option<&'a str> {
        match self.peek() {
            Some(TokenKind::Word(word)) => Some(word),
            _ => None,
        }
    }

    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.line.tokens.len()
    }

    /// Consumes this symbol, if it is next.
    pub(super) fn takes(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Some(TokenKind::Symbol(found)) if *found == symbol);
        self.at += usize::from(is_next);
        is_next
    }

    /// Consumes this word, if it is next.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.peek_word() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Consumes the next word, if the table contains it.
    pub(super) fn takes_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let word = self.peek_word()?;
        let (_, found) = table.iter().find(|(name, _)| *name == word)?;
        self.at += 1;
        Some(*found)
    }

    pub(super) fn needs_end(&self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(TokenKind::Number(number)) if *number < 0 => {
                Err(self.expected("the end of the line, or spaces around `-`"))
            }
            Some(_) => Err(self.expected("the end of the line")),
        }
    }

    pub(super) fn needs_word(&mut self, word: &str) -> Result<(), SyntaxError> {
        if self.takes_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    /// Parses a word that `of` accepts; `what` describes the accepted words.
    pub(super) fn one_of<T>(
        &mut self,
        what: &str,
        words: &[&str],
        of: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SyntaxError> {
        let Some(word) = self.peek_word() else {
            return Err(self.expected(&format!("{what}: {}", words.join(", "))));
        };
        let found = of(word).ok_or_else(|| {
            self.error(format!("unknown {what} `{word}`{}", hint(word, words.iter().copied())))
        })?;
        self.at += 1;
        Ok(found)
    }

    /// Parses the name of a process or thread that the text defines.
    pub(super) fn block(&mut self, kind: BlockKind) -> Result<String, SyntaxError> {
        let what = match kind {
            BlockKind::Process => "process",
            BlockKind::Thread => "thread",
        };
        let known = self.names.blocks(kind);
        let Some(word) = self.peek_word() else {
            return Err(self.expected(&format!("the name of a {what}, in lower case")));
        };
        if !known.contains(word) {
            let hint = hint(word, known.iter().map(String::as_str));
            return Err(self.error(format!("unknown {what} `{word}`{hint}")));
        }
        self.at += 1;
        Ok(word.to_owned())
    }

    /// Parses a variable to be set.
    pub(super) fn variable(&mut self) -> Result<String, SyntaxError> {
        let Some(word) = self.peek_word() else { return Err(self.expected("a variable")) };
        if is_reserved(word) {
            return Err(
                self.error(format!("`{word}` is a keyword; choose another name for the variable"))
            );
        }
        self.at += 1;
        Ok(word.to_owned())
    }

    /// Returns `true` if the next token can only be a value.
    pub(super) fn is_at_term(&self) -> bool {
        match self.peek() {
            Some(TokenKind::Number(_)) => true,
            Some(TokenKind::Word(word)) => {
                BuiltinValue::of(word).is_some()
                    || SignalField::of(word).is_some()
                    || self.names.variables.contains(word)
            }
            _ => false,
        }
    }

    /// Parses a number, a variable, `self` …
    pub(super) fn term(&mut self) -> Result<Term, SyntaxError> {
        let term = match self.peek() {
            Some(TokenKind::Number(_)) => return self.integer().map(Term::Number),
            Some(TokenKind::Word(word)) => self.named(word)?,
            _ => return Err(self.expected("a value: a number, a variable, self, parent or init")),
        };
        self.at += 1;
        Ok(term)
    }

    /// Returns the value that a word denotes. Does not move the cursor.
    pub(super) fn named(&self, word: &str) -> Result<Term, SyntaxError> {
        if let Some(own) = BuiltinValue::of(word) {
            return Ok(Term::Own(own));
        }
        if let Some(info) = SignalField::of(word) {
            return if self.in_handler {
                Ok(Term::Info(info))
            } else {
                Err(self.error(format!("`{word}` is available only in handlers")))
            };
        }
        if self.names.variables.contains(word) {
            return Ok(Term::Variable(word.to_owned()));
        }
        if self.names.processes.contains(word) {
            return Err(self.error(format!(
                "`{word}` is a process of the text, not a value: a call returns its number, as in \
                 `child = fork {word}`"
            )));
        }
        if word.split_once('-').is_some_and(|(left, _)| self.names.variables.contains(left)) {
            return Err(self.error(format!("no statement sets `{word}`; put spaces around `-`")));
        }
        let known = self
            .names
            .variables
            .iter()
            .map(String::as_str)
            .chain(BuiltinValue::WORDS.iter().copied());
        Err(self.error(format!("no statement sets a variable `{word}`{}", hint(word, known))))
    }

    /// Parses a 32-bit number.
    pub(super) fn integer(&mut self) -> Result<i32, SyntaxError> {
        let Some(TokenKind::Number(number)) = self.peek() else {
            return Err(self.expected("a number"));
        };
        let number =
            i32::try_from(*number).map_err(|_| self.error(format!("{number} exceeds 32 bits")))?;
        self.at += 1;
        Ok(number)
    }

    /// Checks that a number, if one is next, is a possible exit status.
    pub(super) fn check_status(&self) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(TokenKind::Number(number)) if !(0..=0xff).contains(number) => {
                Err(self.error(format!(
                    "expected an exit status from 0 to 255; found {number}, of which a parent \
                 receives {}: write that",
                    number & 0xff
                )))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a number, if one is next, is not negative.
    pub(super) fn check_times(&self) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(TokenKind::Number(number)) if *number < 0 => Err(self.error(format!(
                "expected a count of at least 0; found {number}: write 0, or remove what is \
                 never done"
            ))),
            _ => Ok(()),
        }
    }

    /// Parses a non-negative number.
    pub(super) fn count(&mut self) -> Result<u32, SyntaxError> {
        let Some(TokenKind::Number(number)) = self.peek() else {
            return Err(self.expected("a number"));
        };
        let number = u32::try_from(*number)
            .map_err(|_| self.error(format!("expected 0 to {}, found {number}", u32::MAX)))?;
        self.at += 1;
        Ok(number)
    }

    pub(super) fn duration(&mut self) -> Result<Duration, SyntaxError> {
        let Some(TokenKind::Duration(duration)) = self.peek() else {
            return Err(self.expected("a duration: 10ms, 2s, 500us"));
        };
        self.at += 1;
        Ok(*duration)
    }

    pub(super) fn text(&mut self) -> Result<String, SyntaxError> {
        let Some(TokenKind::Text(text)) = self.peek() else {
            return Err(self.expected("a text in quotes"));
        };
        self.at += 1;
        Ok(text.clone())
    }

    pub(super) fn signal(&mut self) -> Result<Signal, SyntaxError> {
        let Some(TokenKind::Name(name)) = self.peek() else {
            return Err(self.expected("a signal: USR1, RTMIN+2"));
        };
        let signal = name.parse().map_err(|_| {
            let known: Vec<String> = Signal::all().map(|signal| signal.to_string()).collect();
            let hint = hint(name, known.iter().map(|known| &known[3..]));
            self.error(format!("unknown signal `{name}`{hint}"))
        })?;
        self.at += 1;
        Ok(signal)
    }

    /// Parses a signal, or 0 for none.
    pub(super) fn signal_or_zero(&mut self) -> Result<Option<Signal>, SyntaxError> {
        if matches!(self.peek(), Some(TokenKind::Number(0))) {
            self.at += 1;
            return Ok(None);
        }
        self.signal().map(Some)
    }

    /// Parses `{INT USR1}`, `all` or `INT`.
    pub(super) fn set(&mut self) -> Result<SigSet, SyntaxError> {
        if self.takes_word("all") {
            return Ok(SigSet::ALL);
        }
        if !self.takes("{") {
            return if matches!(self.peek(), Some(TokenKind::Name(_))) {
                self.signal().map(|signal| SigSet::of(&[signal]))
            } else {
                Err(self.expected("a set of signals: USR1, {USR1 USR2}, {} or all"))
            };
        }
        let mut set = SigSet::EMPTY;
        while !self.takes("}") {
            if self.is_at_end() {
                return Err(self.expected("`}`"));
            }
            set = set.with(self.signal()?);
        }
        Ok(set)
    }

    /// Returns the error for a token other than the expected one.
    pub(super) fn expected(&self, what: &str) -> SyntaxError {
        let found = match self.line.tokens.get(self.at) {
            None => "the end of the line".to_owned(),
            Some(token) => format!("`{}`", self.shown(token)),
        };
        self.error(format!("expected {what}; found {found}"))
    }

    fn shown(&self, token: &ScenarioToken) -> String {
        self.line.text.chars().skip(token.column - 1).take(token.width).collect()
    }

    /// Returns an error about the next token.
    pub(super) fn error(&self, message: String) -> SyntaxError {
        let (column, width) = match self.line.tokens.get(self.at) {
            Some(token) => (token.column, token.width),
            None => self.line.tokens.last().map_or((1, 1), |last| (last.column + last.width, 1)),
        };
        let text = self.line.text.to_owned();
        SyntaxError { line: self.line.number, column, width, message, text }
    }
}

/// Returns `true` if a word cannot be a variable.
fn is_reserved(word: &str) -> bool {
    let families = [
        STATEMENTS,
        OTHERS,
        BuiltinValue::WORDS,
        SignalField::WORDS,
        ActionKind::WORDS,
        StatusPattern::WORDS,
    ];
    families.into_iter().flatten().any(|reserved| *reserved == word)
        || WAIT_OPTIONS.iter().any(|(option, _)| *option == word)
        || CallName::words().any(|call| call == word)
}
