//! The words that STYLE.md asks writers not to use, and the lengths of names and subjects.
//!
//! Each [`BannedPattern`] is a list of phrases, which are searched word by word in the Rust,
//! Markdown, C, Python, scenario and TOML files of the tree. No regular expressions: their
//! compilation would take longer than everything else that this program does.

use std::collections::HashMap;
use std::path::Path;

use super::{Diagnostic, TextFile, output};

/// Maximum length of a function's name, tests included.
const MAX_NAME: usize = 60;

/// Maximum length of a commit's subject.
const MAX_SUBJECT: usize = 72;

/// Number of commits whose subjects are checked, from the last one backwards.
const CHECKED_COMMITS: &str = "20";

/// Files that must name the words that they forbid.
const EXEMPT: [&str; 3] = ["STYLE.md", "crates/command/src/help.rs", "xtask/src/tidy/words.rs"];

/// Phrases that the tree's texts do not contain.
struct BannedPattern {
    /// The name in diagnostics.
    name: &'static str,
    /// What to write instead.
    instead: &'static str,
    /// The phrases. A space separates words, `|` the alternatives for a word. `x*` is any word
    /// that begins with `x`, [`LOWER`] and [`ERRNO`] are kinds of words. The first word of a phrase
    /// is written out.
    phrases: &'static [&'static str],
    /// The text before the match ends with one of these; `^` is the beginning of the line. Empty
    /// for any text.
    after: &'static [&'static str],
    /// A match is allowed if the text before it ends with one of these.
    unless_after: &'static [&'static str],
    /// A match is allowed if one of these follows, as whole words; [`WORD`] is any word.
    unless_before: &'static [&'static str],
    /// Only the first line of a block of comments is searched.
    first_line: bool,
}

/// A word that begins with a small letter.
const LOWER: &str = "<lower>";
/// The name of an error number, with or without a quotation mark before it.
const ERRNO: &str = "<errno>";
/// A space and any word.
const WORD: &str = "<word>";

impl BannedPattern {
    const fn new(
        name: &'static str,
        phrases: &'static [&'static str],
        instead: &'static str,
    ) -> Self {
        let (after, unless_after, unless_before): (&[_], &[_], &[_]) = (&[], &[], &[]);
        Self { name, instead, phrases, after, unless_after, unless_before, first_line: false }
    }

    const fn after(self, after: &'static [&'static str]) -> Self {
        Self { after, ..self }
    }

    const fn unless_after(self, unless_after: &'static [&'static str]) -> Self {
        Self { unless_after, ..self }
    }

    const fn unless_before(self, unless_before: &'static [&'static str]) -> Self {
        Self { unless_before, ..self }
    }

    const fn in_first_line(self) -> Self {
        Self { first_line: true, ..self }
    }
}

const PATTERNS: &[BannedPattern] = &[
    BannedPattern::new("whoever", &["whoever|Whoever|whomever|Whomever"], "the process that …"),
    // Allows the user of that name, and the rules of the virtual Unix.
    BannedPattern::new(
        "nobody",
        &["somebody|nobody|everybody|anybody", "Somebody|Nobody|Everybody|Anybody"],
        "name the actor; no process",
    )
    .unless_after(&["-", "\"", "`", "*"])
    .unless_before(&["-", "\"", "`", "*"]),
    BannedPattern::new("for ever", &["for ever"], "indefinitely; permanently"),
    BannedPattern::new("so many", &["so many|much|long|often"], "N; up to N; this long")
        .unless_before(&[" as", " that"]),
    BannedPattern::new("under way", &["under way"], "in progress; in flight"),
    BannedPattern::new(
        "knife",
        &["knife|diary|diaries|doomed|aftermath|knock|knocks|knocker|knockers|knocked|knocking"],
        "tracer; log; victim; pending",
    ),
    BannedPattern::new("that is none", &["that|which is|are none"], "invalid …"),
    BannedPattern::new("is no", &["is no <lower>"], "is not a …")
        .unless_after(&["here "])
        .unless_before(&[" longer", " more"]),
    BannedPattern::new("anew", &["anew"], "again; from scratch"),
    BannedPattern::new(
        "for want of",
        &["for want of", "in the place of", "of whom"],
        "for lack of",
    ),
    BannedPattern::new(
        "is had",
        &["is|are|was|were|be had", "is|are|was|were|be to be had"],
        "is held; is available",
    ),
    BannedPattern::new("dice", &["dice|Dice"], "random; sampled"),
    BannedPattern::new("look after", &["look|looks|looked|looking after"], "recover; monitor"),
    BannedPattern::new("the dead", &["the dead"], "dead members; dead processes")
        .unless_before(&[WORD]),
    BannedPattern::new("see to", &["see|sees|seen to"], "handle; process").unless_before(&[" it"]),
    // Allows the name of a parameter, and the beginning of a ratio's name.
    BannedPattern::new("beside", &["beside"], "next to; besides; while")
        .unless_after(&["\"", "`"])
        .unless_before(&[" itself"]),
    BannedPattern::new("tell of", &["tell|tells|told|telling of"], "report; notify"),
    BannedPattern::new(
        "become of",
        &["came|come|comes|became|become|becomes of"],
        "result; outcome",
    ),
    BannedPattern::new("newcomer", &["newcomer|newcomers"], "connecting sender"),
    BannedPattern::new("he", &["he|him|his|himself"], "it; the process"),
    BannedPattern::new(
        "//! What",
        &["What|Who|Where|When|Which|How|Why|Whose"],
        "a verb or a noun phrase",
    )
    .after(&["/// ", "//! "])
    .in_first_line(),
    BannedPattern::new("/// It", &["It|They|That|Those|These|Its|Their"], "name the subject")
        .after(&["/// ", "//! "])
        .in_first_line(),
    BannedPattern::new("/// The same", &["The same"], "Like [`x`], but …")
        .after(&["/// "])
        .in_first_line(),
    BannedPattern::new("/// As", &["As ["], "Like [`x`], but …").after(&["/// "]).in_first_line(),
    BannedPattern::new("/// One", &["One"], "an article, as in \"A row\"")
        .after(&["/// ", "//! "])
        .unless_before(&[" of"])
        .in_first_line(),
    BannedPattern::new("Of the", &["Of the|a|an|two|several|these|those"], "the subject first")
        .after(&["^", ". ", ": ", "; ", "// ", "/// ", "//! "]),
    BannedPattern::new("says EPERM", &["say|says|said|answer|answers <errno>"], "returns E…"),
    BannedPattern::new("die over", &["dies|died|die over"], "dies during"),
    BannedPattern::new("go on", &["go|goes|get|gets on"], "continue; make progress")
        .unless_before(&[" the", " a", " an", " with"]),
    BannedPattern::new(
        "fn who_",
        &["fn who_*|whoever_*|what_*|where_*"],
        "subject_condition_outcome",
    ),
];

/// A line that breaks a rule.
struct Matched<'f> {
    pattern: &'static BannedPattern,
    file: &'f TextFile,
    line: usize,
}

/// The phrases of all patterns, by their first word.
type Index = HashMap<&'static str, Vec<(&'static BannedPattern, Vec<&'static str>)>>;

fn index() -> Index {
    let mut index = Index::new();
    for pattern in PATTERNS {
        for phrase in pattern.phrases {
            let (first, rest) = phrase.split_once(' ').unwrap_or((phrase, ""));
            let rest: Vec<&str> = rest.split(' ').filter(|word| !word.is_empty()).collect();
            for word in first.split('|') {
                index.entry(word).or_default().push((pattern, rest.clone()));
            }
        }
    }
    index
}

/// Checks the words of all files and the names of all functions.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let files: Vec<&TextFile> = files.iter().filter(|file| is_checked(file)).collect();
    let index = index();
    let complain = |Matched { pattern: BannedPattern { name, instead, .. }, file, line }| {
        file.complain(line, format!("\"{name}\": write \"{instead}\" (STYLE.md, \"Words\")"))
    };
    let words = files.iter().flat_map(|file| matched_lines(file, &index)).map(complain);
    words.chain(files.iter().flat_map(|file| long_names(file))).collect()
}

/// Returns the patterns that the lines of a file match.
fn matched_lines<'f>(file: &'f TextFile, index: &Index) -> Vec<Matched<'f>> {
    let mut before = "";
    let mut found: Vec<Matched<'f>> = Vec::new();
    for (line, text) in file.lines() {
        let continues = is_doc(text) && is_doc(before);
        before = text;
        for (start, word) in words(text) {
            for (pattern, rest) in index.get(word).into_iter().flatten() {
                let mut of_line = found.iter().rev().take_while(|known| known.line == line);
                let is_known = of_line.any(|known| std::ptr::eq(known.pattern, *pattern));
                let is_skipped = is_known || (pattern.first_line && continues);
                if !is_skipped && pattern.matches(&text[..start], &text[start + word.len()..], rest)
                {
                    found.push(Matched { pattern, file, line });
                }
            }
        }
    }
    found
}

impl BannedPattern {
    /// Returns `true` if a phrase ends with the words `rest` in `text`, which follows its first
    /// word, and no exception applies. `before` precedes the phrase.
    fn matches(&self, before: &str, text: &str, rest: &[&str]) -> bool {
        let ends = |end: &&str| if *end == "^" { before.is_empty() } else { before.ends_with(end) };
        let mut text = text;
        // Exceptions of a phrase that ends with a kind of word concern that word.
        let mut last = text;
        for word in rest {
            last = text;
            let Some(remaining) = after_word(text, word) else { return false };
            text = remaining;
        }
        let follows = if rest.last() == Some(&LOWER) { last } else { text };
        (self.after.is_empty() || self.after.iter().any(ends))
            && !self.unless_after.iter().any(ends)
            && !self.unless_before.iter().any(|exception| begins(follows, exception))
    }
}

/// Returns the text after a space and one of the alternatives for a word, if it begins with them.
fn after_word<'t>(text: &'t str, alternatives: &str) -> Option<&'t str> {
    let text = text.strip_prefix(' ')?;
    let unquoted = text.strip_prefix('`').filter(|_| alternatives == ERRNO).unwrap_or(text);
    let word = &unquoted[..word_length(unquoted)];
    let is_one = alternatives.split('|').any(|one| match one.strip_suffix('*') {
        Some(prefix) => word.starts_with(prefix),
        None => match one {
            LOWER => word.starts_with(|c: char| c.is_ascii_lowercase()),
            ERRNO => {
                let capitals = word.bytes().take_while(u8::is_ascii_uppercase).count();
                word.starts_with('E') && capitals > 3
            }
            "[" => unquoted.starts_with('['),
            _ => word == one,
        },
    });
    is_one.then(|| &unquoted[word.len()..])
}

/// Returns `true` if a text begins with an exception, as a whole word.
fn begins(text: &str, exception: &str) -> bool {
    if exception == WORD {
        return text.strip_prefix(' ').is_some_and(|text| word_length(text) > 0);
    }
    let Some(rest) = text.strip_prefix(exception) else { return false };
    !exception.ends_with(is_of_word) || word_length(rest) == 0
}

fn is_of_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word_length(text: &str) -> usize {
    text.find(|c| !is_of_word(c)).unwrap_or(text.len())
}

/// Returns the words of a line, each with its position.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let words = line.split(|c| !is_of_word(c)).filter(|word| !word.is_empty());
    words.map(|word| (word.as_ptr().addr() - line.as_ptr().addr(), word))
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

fn long_names(file: &TextFile) -> Vec<Diagnostic> {
    let name = |line: &str| {
        let (_, rest) = line.split_once("fn ")?;
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        (length > MAX_NAME).then_some(length)
    };
    let complain = |(number, line)| {
        let length = name(line)?;
        let text = format!("a name of {length} characters, at most {MAX_NAME}: shorten it");
        Some(file.complain(number, text))
    };
    if file.is("rs") { file.lines().filter_map(complain).collect() } else { Vec::new() }
}

fn is_checked(file: &TextFile) -> bool {
    ["rs", "md", "h", "c", "cpp", "py", "pyi", "unix", "toml"]
        .iter()
        .any(|extension| file.is(extension))
        && !EXEMPT.iter().any(|exempt| file.path == Path::new(exempt))
}

/// Checks the subjects of the last commits.
pub(super) fn check_subjects(root: &Path) -> Vec<Diagnostic> {
    let arguments = ["log", "--no-merges", "-n", CHECKED_COMMITS, "--format=%h %s"];
    let complain = |text: String| Diagnostic { path: root.to_path_buf(), line: 0, text };
    match output(root, "git", &arguments) {
        Err(why) => vec![complain(why)],
        Ok(log) => log.lines().filter_map(long_subject).map(complain).collect(),
    }
}

fn long_subject(line: &str) -> Option<String> {
    let (commit, subject) = line.split_once(' ')?;
    let length = subject.chars().count();
    (length > MAX_SUBJECT).then(|| {
        format!("commit {commit}: a subject of {length} characters, at most {MAX_SUBJECT}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        check(&[TextFile::made_up(path, text)]).into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn each_pattern_finds_its_own_name() {
        for BannedPattern { name, .. } in PATTERNS {
            let line = match *name {
                "is no" => "it is no process",
                "so many" => "so many of them",
                "/// As" => "/// As [`x`]",
                "fn who_" => "fn who_waits(",
                name => name,
            };
            let found = texts("a.rs", line);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].starts_with(&format!("\"{name}\"")), "{found:?}");
        }
    }

    #[test]
    fn phrases_are_found_but_for_exceptions() {
        for (path, text, count) in [
            ("a.md", "Then nobody waits.", 1),
            ("a.md", "It lasts so long, and", 1),
            ("a.md", "the dead, and", 1),
            ("a.md", "The end. Of two senders, one", 1),
            ("a.md", "Of the senders, one", 1),
            ("a.md", "it says `EAGAIN`", 1),
            ("a.md", "it answers EINTR", 1),
            ("a.md", "it is to be had", 1),
            ("a.md", "he goes", 1),
            ("a.unix", "whoever", 1),
            ("a.rs", "    /// The same as", 1),
            ("a.rs", "    fn where_it_is() {}", 1),
            ("a.rs", "/// One of the two.", 0),
            ("a.md", "there is no process", 0),
            ("a.md", "is no longer", 0),
            ("a.md", "so long as it lives", 0),
            ("a.md", "by the user `nobody`", 0),
            ("a.md", "`nobody-to-signal`", 0),
            ("a.md", "the dead member", 0),
            ("a.md", "sees to it that", 0),
            ("a.md", "goes on the list", 0),
            ("a.md", "the whole of the list", 0),
            ("a.md", "it says E and ECHO", 0),
            ("a.md", "a function `who_waits`", 0),
            ("a.md", "As [`x`]", 0),
            // Only the first line of a comment is searched for its first word.
            ("a.rs", "/// Where it is.\n/// Where it was.\nfn a() {}\n", 1),
            ("a.rs", "/// A place.\n/// Where it was.\nfn a() {}\n", 0),
            // Other kinds of files and the style guide are exempt.
            ("a.txt", "whoever", 0),
            ("STYLE.md", "whoever", 0),
        ] {
            let found = texts(path, text);
            assert_eq!(found.len(), count, "{text}: {found:?}");
        }
    }

    #[test]
    fn long_names_and_subjects_are_refused() {
        let name = "a".repeat(MAX_NAME);
        assert_eq!(texts("a.rs", &format!("fn {name}() {{}}\n")), [""; 0]);
        assert_eq!(texts("a.rs", &format!("fn {name}b() {{}}\n")).len(), 1);
        let subject = "b".repeat(MAX_SUBJECT);
        assert_eq!(long_subject(&format!("1234567 {subject}")), None);
        assert!(long_subject(&format!("1234567 {subject}c")).is_some());
    }
}
