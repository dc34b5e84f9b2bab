//! The parser of command lines: [`parse`], [`Pipeline`].
//!
//! A line consists of pipelines separated by `;` or `&`; a pipeline consists of commands separated
//! by `|`; a command consists of words, which may be quoted with `'` or `"`. Variables other than
//! `$?` and `$$`, and redirections to files, are not supported.

use std::mem::take;

/// Commands, each of which reads the output of the previous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub(super) commands: Vec<Vec<String>>,
    /// `true` if the pipeline ends with `&`.
    pub(super) background: bool,
    /// The text, as it was typed.
    pub(super) text: String,
}

/// Parses a line. `value` returns the value of the variable that a character names.
pub(super) fn parse(
    line: &str,
    value: &dyn Fn(char) -> Option<String>,
) -> Result<Vec<Pipeline>, String> {
    let mut pipelines = Vec::new();
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let (mut start, mut end) = (0, 0);
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        // The end of the line ends a pipeline, if one was started.
        let first = rest.chars().next().unwrap_or('\n');
        match first {
            '|' | '&' | ';' | '\n' if words.is_empty() => {
                if !commands.is_empty() {
                    return Err("expected a command after `|`".into());
                }
                if first != '\n' {
                    return Err(format!("expected a command before `{first}`"));
                }
            }
            '|' => commands.push(take(&mut words)),
            '&' | ';' | '\n' => {
                commands.push(take(&mut words));
                let text = line[start..end].to_owned();
                let background = first == '&';
                pipelines.push(Pipeline { commands: take(&mut commands), background, text });
            }
            '<' | '>' => {
                return Err(format!("`{first}`: the shell has no files to read from or write to"));
            }
            _ => {
                if words.is_empty() && commands.is_empty() {
                    start = line.len() - rest.len();
                }
                words.push(word(&mut rest, value)?);
                end = line.len() - rest.len();
                continue;
            }
        }
        match rest.get(1..) {
            Some(after) => rest = after,
            None => return Ok(pipelines),
        }
    }
}

/// Reads one word. Leaves the text after it in `rest`.
fn word(rest: &mut &str, value: &dyn Fn(char) -> Option<String>) -> Result<String, String> {
    let mut word = String::new();
    let mut quote = None;
    let mut chars = rest.chars();
    loop {
        *rest = chars.as_str();
        let Some(c) = chars.next() else {
            return quote.map_or(Ok(word), |quote| Err(format!("the quote {quote} is not closed")));
        };
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ' | '\t' | '\r' | '\n' | '|' | '&' | ';' | '<' | '>') => return Ok(word),
            (None | Some('"'), '$') => match chars.clone().next().and_then(value) {
                Some(value) => {
                    word += &value;
                    chars.next();
                }
                None => word.push(c),
            },
            _ => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<Pipeline>, String> {
        parse(text, &|c| "?$".contains(c).then(|| "7".into()))
    }

    /// Returns the structure as text, with `7` for every variable.
    fn shape(text: &str) -> String {
        let pipelines = match parsed(text) {
            Ok(pipelines) => pipelines,
            Err(error) => return error,
        };
        let command = |words: &Vec<String>| words.iter().map(|word| format!("<{word}>")).collect();
        let shape = |pipeline: &Pipeline| {
            let commands: Vec<String> = pipeline.commands.iter().map(command).collect();
            commands.join("|") + if pipeline.background { "&" } else { "" }
        };
        pipelines.iter().map(shape).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn line_parses_into_pipelines_of_commands_of_words() {
        for (text, expected) in [
            ("seq 3|cat | wc", "<seq><3>|<cat>|<wc>"),
            ("a; b & c", "<a> <b>& <c>"),
            ("a\nb\n\n", "<a> <b>"),
            ("a 'b | c' \"d;e\" ''", "<a><b | c><d;e><>"),
            (r#"'a'"b"c "it's""#, "<abc><it's>"),
            (r#"a$? "$$x" '$$' $HOME"#, "<a7><7x><$$><$HOME>"),
            ("'a", "the quote ' is not closed"),
            ("| a", "expected a command before `|`"),
            ("a | | b", "expected a command after `|`"),
            ("a |", "expected a command after `|`"),
            ("a ;; b", "expected a command before `;`"),
            ("a && b", "expected a command before `&`"),
            ("a > b", "`>`: the shell has no files to read from or write to"),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
        let texts = parsed(" a  'b' |  c & d;").unwrap().into_iter().map(|one| one.text);
        assert_eq!(texts.collect::<Vec<_>>(), ["a  'b' |  c", "d"]);
    }

    proptest! {
        #[test]
        fn parser_accepts_or_refuses_any_text(text in "[ -~\n\té]{0,60}") {
            for pipeline in parsed(&text).unwrap_or_default() {
                prop_assert!(pipeline.commands.iter().all(|words| !words.is_empty()));
                let again = parsed(&pipeline.text).unwrap();
                prop_assert_eq!(&again[0].commands, &pipeline.commands);
            }
        }
    }
}
