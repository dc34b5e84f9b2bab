//! The parser of command lines: [`parse`], [`ListItem`], [`Pipeline`], [`ShellWord`].
//!
//! A line consists of pipelines separated by `;`, `&`, `&&` or `||`; a pipeline consists of
//! commands separated by `|`; a command consists of words. Quotes and the backslash have the same
//! meaning as in sh(1). `$?`, `$!` and `$$` are replaced; other variables, and redirections to
//! files, are not supported. The parser does not interpret commands.

use std::ops::Range;

/// A pipeline, and the condition on which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListItem {
    pub(super) when: When,
    pub(super) pipeline: Pipeline,
}

/// The status of the previous pipeline that a pipeline requires to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// `&&`
    Success,
    /// `||`
    Failure,
}

/// Commands, each of which reads the output of the previous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub(super) commands: Vec<Vec<ShellWord>>,
    /// `true` if the pipeline ends with `&`.
    pub(super) background: bool,
    /// The text, as it was typed.
    pub(super) text: String,
}

/// A word, with the variables that have not been replaced yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ShellWord(Vec<WordPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum WordPart {
    Text(String),
    Value(Variable),
}

/// A variable, written after `$`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variable {
    /// `$?`: the last status.
    Status,
    /// `$!`: the last process that was started in the background.
    Background,
    /// `$$`: the shell.
    Shell,
}

/// An error in a text that is not a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseError {
    #[error("the quote {0} is not closed")]
    Quote(char),
    #[error("expected a command before `{0}`")]
    Before(&'static str),
    #[error("expected a command after `{0}`")]
    After(&'static str),
    #[error("`{0}`: the shell has no files to read from or write to")]
    File(char),
    #[error("`&` sends one pipeline into the background, not several joined by `&&` or `||`")]
    BackgroundList,
}

impl ShellWord {
    /// Returns the word with the values of its variables.
    pub(super) fn expand(&self, value: impl Fn(Variable) -> String) -> String {
        let parts = self.0.iter().map(|part| match part {
            WordPart::Text(text) => text.clone(),
            WordPart::Value(variable) => value(*variable),
        });
        parts.collect()
    }

    fn push(&mut self, c: char) {
        match self.0.last_mut() {
            Some(WordPart::Text(text)) => text.push(c),
            _ => self.0.push(WordPart::Text(c.into())),
        }
    }
}

/// Parses a line. Returns no step for an empty line or a comment.
///
/// # Errors
/// If the text is not a command line.
pub(super) fn parse(text: &str) -> Result<Vec<ListItem>, ParseError> {
    let mut steps = Vec::new();
    let mut open = Open::default();
    for (token, place) in tokens(text)? {
        match token {
            ShellToken::Word(word) => open.word(word, place),
            ShellToken::Operator("|") => open.pipe()?,
            // The end of a line ends a pipeline, if one was started.
            ShellToken::Operator("\n") if open.is_empty() => open.need("\n")?,
            ShellToken::Operator(operator) => {
                let step = open.close(operator, text)?;
                steps.push(step);
            }
        }
    }
    Ok(steps)
}

/// The pipeline that is being read.
#[derive(Debug, Default)]
struct Open {
    commands: Vec<Vec<ShellWord>>,
    command: Vec<ShellWord>,
    place: Option<Range<usize>>,
    /// The operator before the next command, if the operator requires a command after it.
    after: Option<&'static str>,
    /// The `&&` or `||` before the pipeline.
    joined: Option<&'static str>,
}

impl Open {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.command.is_empty()
    }

    fn word(&mut self, word: ShellWord, place: Range<usize>) {
        let start = self.place.as_ref().map_or(place.start, |before| before.start);
        self.place = Some(start..place.end);
        self.command.push(word);
        self.after = None;
    }

    /// Checks that a command precedes `operator`.
    fn need(&self, operator: &'static str) -> Result<(), ParseError> {
        match self.after {
            Some(before) if self.command.is_empty() => Err(ParseError::After(before)),
            None if self.command.is_empty() && operator != "\n" => {
                Err(ParseError::Before(operator))
            }
            _ => Ok(()),
        }
    }

    fn pipe(&mut self) -> Result<(), ParseError> {
        self.need("|")?;
        self.commands.push(std::mem::take(&mut self.command));
        self.after = Some("|");
        Ok(())
    }

    fn close(&mut self, operator: &'static str, text: &str) -> Result<ListItem, ParseError> {
        self.need(operator)?;
        let background = operator == "&";
        if background && self.joined.is_some() {
            return Err(ParseError::BackgroundList);
        }
        let mut open = std::mem::take(self);
        open.commands.push(open.command);
        if matches!(operator, "&&" | "||") {
            self.after = Some(operator);
            self.joined = Some(operator);
        }
        let when = match open.joined {
            Some("&&") => When::Success,
            Some(_) => When::Failure,
            None => When::Always,
        };
        let text = open.place.map_or("", |place| &text[place]).to_owned();
        Ok(ListItem { when, pipeline: Pipeline { commands: open.commands, background, text } })
    }
}

#[derive(Debug)]
enum ShellToken {
    Word(ShellWord),
    Operator(&'static str),
}

/// All operators, longer ones first.
const OPERATORS: [&str; 6] = ["&&", "||", "|", "&", ";", "\n"];

/// Splits a text into words and operators, with their positions. The last operator is a newline.
fn tokens(text: &str) -> Result<Vec<(ShellToken, Range<usize>)>, ParseError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        if rest.starts_with('#') {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        }
        let start = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push((ShellToken::Operator("\n"), start..start));
            return Ok(tokens);
        };
        let token = if let Some(operator) = OPERATORS.iter().find(|&&o| rest.starts_with(o)) {
            rest = &rest[operator.len()..];
            ShellToken::Operator(operator)
        } else if matches!(first, '<' | '>') {
            return Err(ParseError::File(first));
        } else {
            ShellToken::Word(word(&mut rest)?)
        };
        tokens.push((token, start..text.len() - rest.len()));
    }
}

/// Reads one word. Leaves the text after it in `rest`.
fn word(rest: &mut &str) -> Result<ShellWord, ParseError> {
    let mut word = ShellWord::default();
    let mut quote = None;
    let mut chars = rest.chars();
    loop {
        let before = chars.as_str();
        let Some(c) = chars.next() else {
            *rest = before;
            return quote.map_or(Ok(word), |quote| Err(ParseError::Quote(quote)));
        };
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some('\''), _) => word.push(c),
            (_, '$') => match variable(chars.as_str()) {
                Some(variable) => {
                    chars.next();
                    word.0.push(WordPart::Value(variable));
                }
                None => word.push(c),
            },
            (None, '\\') => word.push(chars.next().unwrap_or(c)),
            (Some(_), '\\') if chars.as_str().starts_with(['"', '\\', '$']) => {
                chars.by_ref().take(1).for_each(|c| word.push(c));
            }
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ' | '\t' | '\r' | '\n' | '|' | '&' | ';' | '<' | '>') => {
                *rest = before;
                return Ok(word);
            }
            (None, _) => word.push(c),
        }
    }
}

fn variable(behind: &str) -> Option<Variable> {
    match behind.chars().next()? {
        '?' => Some(Variable::Status),
        '!' => Some(Variable::Background),
        '$' => Some(Variable::Shell),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the structure as text, with `7` for every variable and pipelines in `[]`.
    fn shape(text: &str) -> String {
        let steps = match parse(text) {
            Ok(steps) => steps,
            Err(error) => return error.to_string(),
        };
        let command = |words: &Vec<ShellWord>| -> String {
            words.iter().map(|word| format!("<{}>", word.expand(|_| "7".into()))).collect()
        };
        let step = |step: &ListItem| {
            let commands: Vec<_> = step.pipeline.commands.iter().map(command).collect();
            let background = if step.pipeline.background { "&" } else { "" };
            format!("{:?}[{}]{background}", step.when, commands.join("|"))
        };
        steps.iter().map(step).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn line_parses_into_pipelines_of_commands_of_words() {
        assert_eq!(shape("seq 3|cat | wc"), "Always[<seq><3>|<cat>|<wc>]");
        assert_eq!(shape("a; b & c"), "Always[<a>] Always[<b>]& Always[<c>]");
        assert_eq!(shape("a && b || c"), "Always[<a>] Success[<b>] Failure[<c>]");
        assert_eq!(shape("a\nb\n\n"), "Always[<a>] Always[<b>]");
        assert_eq!(shape("  # nothing"), "");
        assert_eq!(shape("a #b\nc#d"), "Always[<a>] Always[<c#d>]");
    }

    #[test]
    fn quotes_group_text_into_one_word() {
        assert_eq!(shape("a 'b | c' \"d;e\" f\\ g ''"), "Always[<a><b | c><d;e><f g><>]");
        assert_eq!(shape(r#"'a'"b"c "q\"\\\n""#), r#"Always[<abc><q"\\n>]"#);
    }

    #[test]
    fn variables_expand_except_in_single_quotes() {
        assert_eq!(shape(r#"a$? "$!x" '$$' $HOME \$?"#), "Always[<a7><7x><$$><$HOME><$?>]");
    }

    #[test]
    fn pipeline_text_is_preserved_as_typed() {
        let steps = parse(" a  'b' |  c & d;").unwrap();
        let texts: Vec<_> = steps.iter().map(|step| step.pipeline.text.as_str()).collect();
        assert_eq!(texts, ["a  'b' |  c", "d"]);
    }

    #[test]
    fn syntax_errors_name_missing_part() {
        for (text, expected) in [
            ("'a", "the quote ' is not closed"),
            ("a \"b", "the quote \" is not closed"),
            ("| a", "expected a command before `|`"),
            ("a | | b", "expected a command after `|`"),
            ("a |", "expected a command after `|`"),
            ("a &&", "expected a command after `&&`"),
            ("a && ; b", "expected a command after `&&`"),
            ("a ;; b", "expected a command before `;`"),
            ("& a", "expected a command before `&`"),
            ("a > b", "`>`: the shell has no files to read from or write to"),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
        assert_eq!(parse("a && b &"), Err(ParseError::BackgroundList));
        assert!(parse("a && b; c &").is_ok());
    }

    proptest! {
        #[test]
        fn parser_accepts_or_refuses_any_text(text in "[ -~\n\té]{0,60}") {
            if let Ok(steps) = parse(&text) {
                for step in steps {
                    prop_assert!(step.pipeline.commands.iter().all(|words| !words.is_empty()));
                    prop_assert!(text.contains(&step.pipeline.text));
                }
            }
        }

        #[test]
        fn single_quoted_words_round_trip(
            words in prop::collection::vec("[ -&(-~\n]{0,10}", 1..6),
        ) {
            let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
            let steps = parse(&quoted.join(" ")).unwrap();
            let command = &steps[0].pipeline.commands[0];
            let back: Vec<_> = command.iter().map(|word| word.expand(|_| "7".into())).collect();
            prop_assert_eq!(back, words);
        }

        #[test]
        fn pipeline_text_parses_to_same_commands(text in "[ab |;&'\"\\\\$?]{0,30}") {
            for step in parse(&text).unwrap_or_default() {
                let again = parse(&step.pipeline.text).unwrap();
                prop_assert_eq!(&again[0].pipeline.commands, &step.pipeline.commands);
            }
        }
    }
}
