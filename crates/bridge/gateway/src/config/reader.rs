//! A TOML text with the position of each key and value: [`Reader`], which collects mistakes.

use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigMistake;

/// Collects the mistakes of one text.
#[derive(Debug)]
pub(super) struct Reader<'t> {
    text: &'t str,
    mistakes: Vec<ConfigMistake>,
}

/// A key of the text and its value.
#[derive(Debug, Clone)]
pub(super) struct KeyValue<'a, 't> {
    /// The key alone.
    pub(super) name: &'a str,
    /// The key with the names of its tables.
    pub(super) key: String,
    /// Offset of the key.
    pub(super) at: usize,
    value: &'a Spanned<DeValue<'t>>,
}

/// Parses the text.
///
/// # Errors
/// Returns every mistake of syntax, among them keys that appear twice.
pub(super) fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Vec<ConfigMistake>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(table);
    }
    let mut reader = Reader::new(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        reader.complain(at, "", format!("expected TOML, found an error of syntax: {message}"));
    }
    Err(reader.into_mistakes())
}

/// Returns the line and the column of an offset, both from 1.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary_of(at)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// `str::floor_char_boundary`, which the oldest supported Rust lacks.
trait FloorCharBoundary {
    fn floor_char_boundary_of(&self, at: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_of(&self, at: usize) -> usize {
        let at = at.min(self.len());
        (0..=at).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// Returns the candidate that is most similar to `word`, if one is similar.
pub(super) fn nearest<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns the key as it is written in TOML.
pub(super) fn quoted(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_owned() } else { format!("{key:?}") }
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, mistakes: Vec::new() }
    }

    /// Returns all mistakes, in the order of the text.
    pub(super) fn into_mistakes(mut self) -> Vec<ConfigMistake> {
        self.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        self.mistakes
    }

    pub(super) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// Records a mistake at an offset.
    pub(super) fn complain(&mut self, at: usize, key: &str, text: impl Into<String>) {
        let (line, column) = position(self.text, at);
        self.mistakes.push(ConfigMistake { line, column, key: key.to_owned(), text: text.into() });
    }

    /// Records that a key's value is invalid.
    pub(super) fn invalid(&mut self, entry: &KeyValue<'_, '_>, text: impl Into<String>) {
        self.complain(entry.value.span().start, &entry.key, text);
    }

    /// Records that a key is unknown, with the nearest of the known keys.
    pub(super) fn unknown(&mut self, entry: &KeyValue<'_, '_>, known: &[&str]) {
        let found = quoted(entry.name);
        let fix = match nearest(entry.name, known.iter().copied()) {
            Some(near) => format!("write {near}"),
            None => "remove it".into(),
        };
        let known = known.join(", ");
        let text = format!("expected one of {known}; found the unknown key {found}; {fix}");
        self.complain(entry.at, &entry.key, text);
    }

    /// Returns the keys of the whole text, in its order.
    pub(super) fn root<'a>(table: &'a Spanned<DeTable<'t>>) -> Vec<KeyValue<'a, 't>> {
        entries("", table.get_ref())
    }

    /// Returns the keys of a table, in the order of the text. A value of another type is a mistake,
    /// and has no keys.
    pub(super) fn table<'a>(&mut self, entry: &KeyValue<'a, 't>) -> Vec<KeyValue<'a, 't>> {
        match entry.value.get_ref() {
            DeValue::Table(table) => entries(&entry.key, table),
            other => {
                let (key, found) = (&entry.key, describe(other));
                let text = format!("expected a table, found {found}; write [{key}] above its keys");
                self.invalid(entry, text);
                Vec::new()
            }
        }
    }

    /// Returns the keys of a table. A value of another type has no keys, and is not reported here.
    pub(super) fn keys<'a>(entry: &KeyValue<'a, 't>) -> Vec<KeyValue<'a, 't>> {
        match entry.value.get_ref() {
            DeValue::Table(table) => entries(&entry.key, table),
            _ => Vec::new(),
        }
    }

    /// Returns a text. `like` is an example for the error.
    pub(super) fn string<'a>(&mut self, entry: &KeyValue<'a, 't>, like: &str) -> Option<&'a str> {
        match entry.value.get_ref() {
            DeValue::String(text) => Some(text),
            other => {
                let found = describe(other);
                let text = format!("expected a string, found {found}; write it like {like:?}");
                self.invalid(entry, text);
                None
            }
        }
    }

    /// Returns an integer from `min` to `max`.
    pub(super) fn integer(&mut self, entry: &KeyValue<'_, 't>, min: u64, max: u64) -> Option<u64> {
        let found = match entry.value.get_ref() {
            DeValue::Integer(integer) => {
                match u64::from_str_radix(integer.as_str(), integer.radix()) {
                    Ok(value) if (min..=max).contains(&value) => return Some(value),
                    _ => integer.to_string(),
                }
            }
            other => describe(other),
        };
        let text = format!("expected an integer from {min} to {max}, found {found}; change it");
        self.invalid(entry, text);
        None
    }

    /// Returns the elements of an array, each with the key of the array. If `or_one`, a single
    /// value is an array of one.
    pub(super) fn array<'a>(
        &mut self,
        entry: &KeyValue<'a, 't>,
        or_one: bool,
    ) -> Vec<KeyValue<'a, 't>> {
        match entry.value.get_ref() {
            DeValue::Array(values) => {
                values.iter().map(|value| KeyValue { value, ..entry.clone() }).collect()
            }
            _ if or_one => vec![entry.clone()],
            other => {
                let text = format!("expected a list, found {}; write it in [ ]", describe(other));
                self.invalid(entry, text);
                Vec::new()
            }
        }
    }

    /// Returns `true` if the value is a text.
    pub(super) fn is_string(entry: &KeyValue<'_, 't>) -> bool {
        entry.value.get_ref().is_str()
    }

    /// Returns a text, converted. `expected` describes valid texts, and `like` is one of them.
    pub(super) fn parsed<T: FromStr>(
        &mut self,
        entry: &KeyValue<'_, 't>,
        expected: &str,
        like: &str,
    ) -> Option<T> {
        let text = self.string(entry, like)?;
        let value = text.parse().ok();
        if value.is_none() {
            let text = format!("expected {expected}, found {text:?}; write it like {like:?}");
            self.invalid(entry, text);
        }
        value
    }
}

fn entries<'a, 't>(prefix: &str, table: &'a DeTable<'t>) -> Vec<KeyValue<'a, 't>> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(name, value)| {
            let quoted = quoted(name.get_ref());
            let key = if prefix.is_empty() { quoted } else { format!("{prefix}.{quoted}") };
            KeyValue { name: name.get_ref(), key, at: name.span().start, value }
        })
        .collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(integer) => format!("the integer {integer}"),
        DeValue::Float(float) => format!("the number {float}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}
