//! What is wrong with a text: [`SyntaxError`], with line, column, and the line itself under it.

/// Why a text is no scenario.
///
/// ```
/// use tontine_unix::scenario::Scenario;
///
/// let error = "process a\n  frok a\n".parse::<Scenario>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "2:3: unknown word `frok`; did you mean `fork`?\n  |   frok a\n  |   ^^^^"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}\n  | {text}\n  | {:indent$}{}", "", "^".repeat(*.width),
    indent = .column - 1)]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters, from 1.
    pub column: usize,
    /// How many characters are meant.
    pub width: usize,
    /// What was expected, and what was found.
    pub message: String,
    /// The line's text.
    pub text: String,
}

/// ``; did you mean `fork`?``, if one of `known` is near enough to be meant.
pub(super) fn hint<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let near = known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance);
    match near {
        Some((distance, candidate)) if distance <= 1 + word.chars().count() / 4 => {
            format!("; did you mean `{candidate}`?")
        }
        _ => String::new(),
    }
}
