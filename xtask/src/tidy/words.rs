//! The words that STYLE.md asks writers not to use, and the lengths of names and subjects.
//!
//! Each [`BannedPattern`] is searched in the Rust, Markdown, C header, scenario and TOML files of
//! the tree. A pattern may have as many matches as [`RATCHET`] lists for it. A pattern that is not
//! listed there may have none.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

use super::{Diagnostic, TextFile, output};

/// The number of matches that are still in the tree, by the name of their pattern. Counts only
/// fall.
const RATCHET: &[(&str, usize)] = &[];

/// Maximum length of a function's name, tests included.
const MAX_NAME: usize = 60;

/// Maximum length of a commit's subject.
const MAX_SUBJECT: usize = 72;

/// Number of commits whose subjects are checked, from the last one backwards.
const CHECKED_COMMITS: &str = "20";

/// Files that must name the words that they forbid.
const EXEMPT: [&str; 3] = ["STYLE.md", "crates/cli/src/args/tests.rs", "xtask/src/tidy/words.rs"];

/// A pattern that the tree's texts do not contain.
struct BannedPattern {
    /// The name in diagnostics and in [`RATCHET`].
    name: &'static str,
    /// What to write instead.
    instead: &'static str,
    find: &'static str,
    /// A match is allowed if the text before it matches this pattern.
    unless_before: &'static str,
    /// A match is allowed if the text after it matches this pattern.
    unless_after: &'static str,
    /// Only the first line of a block of comments is searched.
    first_line: bool,
}

impl BannedPattern {
    const fn new(name: &'static str, find: &'static str, instead: &'static str) -> Self {
        Self { name, instead, find, unless_before: "", unless_after: "", first_line: false }
    }

    const fn unless_before(self, unless_before: &'static str) -> Self {
        Self { unless_before, ..self }
    }

    const fn unless_after(self, unless_after: &'static str) -> Self {
        Self { unless_after, ..self }
    }

    const fn in_first_line(self) -> Self {
        Self { first_line: true, ..self }
    }
}

const PATTERNS: &[BannedPattern] = &[
    BannedPattern::new("whoever", r"(?i)\bwhom?ever\b", "the process that …"),
    // Allows the user of that name, and the rules of the virtual Unix.
    BannedPattern::new(
        "nobody",
        r"\b([Ss]ome|[Nn]o|[Ee]very|[Aa]ny)body\b",
        "name the actor; no process",
    )
    .unless_before(r#"[-"`*]$"#)
    .unless_after(r#"^["`*-]"#),
    BannedPattern::new("for ever", r"\bfor ever\b", "indefinitely; permanently"),
    BannedPattern::new("so many", r"\bso (many|much|long|often)\b", "N; up to N; this long")
        .unless_after(r"^ (as|that)\b"),
    BannedPattern::new("under way", r"\bunder way\b", "in progress; in flight"),
    BannedPattern::new(
        "knife",
        r"\b(knife|diar(y|ies)|doomed|aftermath|knock(s|ers?|ed|ing)?)\b",
        "tracer; log; victim; pending",
    ),
    BannedPattern::new("that is none", r"\b(that|which) (is|are) none\b", "invalid …"),
    BannedPattern::new("is no", r"\bis no [a-z]", "is not a …")
        .unless_before(r"here $")
        .unless_after(r"^(onger|ore)\b"),
    BannedPattern::new("anew", r"\banew\b", "again; from scratch"),
    BannedPattern::new("for want of", r"\b(for want of|in the place of|of whom)\b", "for lack of"),
    BannedPattern::new("is had", r"\b(is|are|was|were|be) (to be )?had\b", "is held; is available"),
    BannedPattern::new("dice", r"\b[Dd]ice\b", "random; sampled"),
    BannedPattern::new("look after", r"\blook(s|ed|ing)? after\b", "recover; monitor"),
    BannedPattern::new("the dead", r"\bthe dead\b", "dead members; dead processes")
        .unless_after(r"^ \w"),
    BannedPattern::new("see to", r"\bsee[sn]? to\b", "handle; process").unless_after(r"^ it\b"),
    // Allows the name of a parameter, and the beginning of a ratio's name.
    BannedPattern::new("beside", r"\bbeside\b", "next to; besides; while")
        .unless_before(r#"["`]$"#)
        .unless_after(r"^ itself\b"),
    BannedPattern::new("tell of", r"\b(tells?|told|telling) of\b", "report; notify"),
    BannedPattern::new("become of", r"\b(came|comes?|became|becomes?) of\b", "result; outcome"),
    BannedPattern::new("newcomer", r"\bnewcomers?\b", "connecting sender"),
    BannedPattern::new("he", r"\b(he|him|his|himself)\b", "it; the process"),
    BannedPattern::new(
        "//! What",
        r"//[/!] (What|Who|Where|When|Which|How|Why|Whose)\b",
        "a verb or a noun phrase",
    )
    .in_first_line(),
    BannedPattern::new("/// It", r"/// (It|They|That|Those|These|Its|Their)\b", "name the subject")
        .in_first_line(),
    BannedPattern::new("/// As", r"/// (As \[|The same\b)", "Like [`x`], but …").in_first_line(),
    BannedPattern::new(
        "Of the",
        r"(?:^|[.:;] |//[/!]? )Of (the|an?|two|several|these|those)\b",
        "the subject first",
    ),
    BannedPattern::new("says EPERM", r"\b(says?|said|answers?) `?E[A-Z]{3,}", "returns E…"),
    BannedPattern::new("die over", r"\bd(ies|ied|ie) over\b", "dies during"),
    BannedPattern::new("go on", r"\b(go(es)?|gets?) on\b", "continue; make progress")
        .unless_after(r"^ (the|an?|with)\b"),
    BannedPattern::new(
        "fn who_",
        r"\bfn (who|whoever|what|where)_\w+\(",
        "subject_condition_outcome",
    ),
];

/// A pattern, compiled.
struct Compiled {
    pattern: &'static BannedPattern,
    find: Regex,
    unless_before: Option<Regex>,
    unless_after: Option<Regex>,
}

static COMPILED: LazyLock<Vec<Compiled>> = LazyLock::new(|| {
    let regex = |text: &str| RegexBuilder::new(text).build().expect("a pattern of this file");
    let optional = |text: &str| (!text.is_empty()).then(|| regex(text));
    let compile = |pattern: &'static BannedPattern| Compiled {
        pattern,
        find: regex(pattern.find),
        unless_before: optional(pattern.unless_before),
        unless_after: optional(pattern.unless_after),
    };
    PATTERNS.iter().map(compile).collect()
});

impl Compiled {
    fn matches(&self, line: &str) -> bool {
        let allowed = |exception: &Option<Regex>, text: &str| {
            exception.as_ref().is_some_and(|exception| exception.is_match(text))
        };
        self.find.find_iter(line).any(|found| {
            !allowed(&self.unless_before, &line[..found.start()])
                && !allowed(&self.unless_after, &line[found.end()..])
        })
    }
}

/// Checks the words of all files and the names of all functions.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let files: Vec<&TextFile> = files.iter().filter(|file| is_checked(file)).collect();
    let mut found: Vec<Diagnostic> = files.iter().flat_map(|file| long_names(file)).collect();
    for compiled in COMPILED.iter() {
        let name = compiled.pattern.name;
        let listed = RATCHET.iter().find(|(listed, _)| *listed == name);
        found.extend(judge(compiled, &files, listed.map_or(0, |(_, count)| *count)));
    }
    found
}

/// Compares the matches of one pattern with the allowed number.
fn judge(compiled: &Compiled, files: &[&TextFile], allowed: usize) -> Vec<Diagnostic> {
    let BannedPattern { name, instead, .. } = compiled.pattern;
    let matches: Vec<(&TextFile, usize)> =
        files.iter().flat_map(|file| lines_with(compiled, file)).collect();
    if matches.len() > allowed {
        let text = if allowed == 0 {
            format!("\"{name}\": write \"{instead}\" (STYLE.md, \"Words\")")
        } else {
            let count = matches.len();
            format!("\"{name}\" on {count} lines, at most {allowed}: write \"{instead}\"")
        };
        return matches.iter().map(|(file, line)| file.complain(*line, text.as_str())).collect();
    }
    let path = PathBuf::from("xtask/src/tidy/words.rs");
    let text = format!("\"{name}\" on {} lines, not {allowed}: lower RATCHET", matches.len());
    (matches.len() < allowed).then_some(Diagnostic { path, line: 0, text }).into_iter().collect()
}

fn lines_with<'f>(compiled: &Compiled, file: &'f TextFile) -> Vec<(&'f TextFile, usize)> {
    let mut before = "";
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        let continues = is_doc(line) && is_doc(before);
        before = line;
        if !(compiled.pattern.first_line && continues) && compiled.matches(line) {
            found.push((file, number));
        }
    }
    found
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
    ["rs", "md", "h", "unix", "toml"].iter().any(|extension| file.is(extension))
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
        for compiled in COMPILED.iter() {
            let line = match compiled.pattern.name {
                "is no" => "it is no process",
                "so many" => "so many of them",
                "/// As" => "/// As [`x`]",
                "fn who_" => "fn who_waits(",
                name => name,
            };
            assert!(compiled.matches(line), "{line}");
        }
    }

    #[test]
    fn listed_exceptions_are_allowed() {
        let allowed = [
            "there is no process",
            "is no longer",
            "so long as it lives",
            "by the user `nobody`",
            "`nobody-to-signal`",
            "the dead member",
            "sees to it that",
            "goes on the list",
        ];
        for line in allowed {
            assert_eq!(texts("docs/a.md", line), [""; 0], "{line}");
        }
    }

    #[test]
    fn only_the_first_line_of_a_comment_is_searched_for_its_first_word() {
        let found = texts("a.rs", "/// Where it is.\n/// Where it was.\nfn a() {}\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(texts("a.rs", "/// A place.\n/// Where it was.\nfn a() {}\n"), [""; 0]);
    }

    #[test]
    fn other_kinds_of_files_and_the_style_guide_are_exempt() {
        assert_eq!(texts("a.txt", "whoever"), [""; 0]);
        assert_eq!(texts("STYLE.md", "whoever"), [""; 0]);
        assert_eq!(texts("a.unix", "whoever").len(), 1);
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
