//! [`SyntaxError`], the error in a text: line, column, and the line itself with a marker.

use std::error::Error;
use std::fmt::{self, Display, Formatter};

/// An error in a text that is not a scenario, with the line, the column and the text of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    pub line: usize,
    /// The column, in characters, from 1.
    pub column: usize,
    /// The number of characters that the error concerns.
    pub width: usize,
    /// The expected text, the actual text, and a suggestion, if any.
    pub message: String,
    /// The line's text.
    pub text: String,
}

/// Maximum number of displayed characters of a line, and of a message.
const SHOWN: usize = 100;
const MESSAGE: usize = 400;

impl Error for SyntaxError {}

impl Display for SyntaxError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { line, column, width, message, text } = self;
        write!(f, "{line}:{column}: {}", Printable(&cut(message, MESSAGE)))?;
        if text.is_empty() {
            return Ok(());
        }
        // A long line is cut to the part around the column.
        let start = column.saturating_sub(SHOWN / 2 + 1);
        let start = if *column + *width < SHOWN { 0 } else { start };
        let shown: String = text.chars().skip(start).take(SHOWN).collect();
        let at = column - 1 - start;
        let before: String = shown.chars().take(at).collect();
        let meant: String = shown.chars().skip(at).take(*width).collect();
        let before = Printable(&before).to_string().chars().count();
        let meant = Printable(&meant).to_string().chars().count().max(1);
        let shown = Printable(&shown);
        write!(f, "\n  | {shown}\n  | {:before$}{}", "", "^".repeat(meant))
    }
}

/// Returns the text, cut to `most` characters.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Displays a text without characters that would move a terminal's cursor or otherwise affect the
/// terminal.
pub(super) struct Printable<'t>(pub(super) &'t str);

impl Display for Printable<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\n' | '\r' | '\t' => write!(f, "{}", c.escape_default()),
            _ if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c)),
            _ if c.is_control() => write!(f, "{}", c.escape_unicode()),
            _ => write!(f, "{c}"),
        })
    }
}

/// Returns ``; did you mean `fork`?`` if one of `known` resembles the word, else an empty string.
pub(super) fn hint<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    // A longer word resembles no known word, and its edit distance takes long to compute.
    let known = known.into_iter().filter(|_| word.len() <= SHOWN);
    let near = known
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance);
    match near {
        Some((distance, candidate)) if distance <= 1 + word.chars().count() / 4 => {
            format!("; did you mean `{candidate}`?")
        }
        _ => String::new(),
    }
}
