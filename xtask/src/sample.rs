//! `cargo xtask sample`: random lines of the tree's texts, for a reader who judges the language.
//!
//! [`run`] prints 60 comments, 50 lines of documentation, 40 names of tests and 50 lines of pages
//! and reports, each with its file and line. The same seed draws the same lines from the same tree.

use std::path::Path;
use std::process::Command;

use rand::SeedableRng;
use rand::seq::IteratorRandom;
use rand_chacha::ChaCha8Rng;

/// The kinds of lines, each with the number of lines drawn.
const KINDS: [(&str, usize, Kind); 4] = [
    ("comments", 60, Kind::Comment),
    ("documentation", 50, Kind::Doc),
    ("names of tests", 40, Kind::TestName),
    ("pages and reports", 50, Kind::Page),
];

/// Minimum number of words of a drawn line.
const MIN_WORDS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Comment,
    Doc,
    TestName,
    Page,
}

/// Draws the lines from the files that git tracks below `root`.
pub(crate) fn run(root: &Path, seed: u64) -> Result<bool, String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let lines = read(root)?;
    for (title, count, kind) in KINDS {
        println!("## {title}\n");
        let of_kind = lines.iter().filter(|line| line.kind == kind);
        let mut drawn = of_kind.sample(&mut random, count);
        drawn.sort_by_key(|line| (&line.path, line.number));
        for Line { path, number, text, .. } in drawn {
            println!("{path}:{number}: {text}");
        }
        println!();
    }
    Ok(true)
}

struct Line {
    path: String,
    number: usize,
    text: String,
    kind: Kind,
}

fn read(root: &Path) -> Result<Vec<Line>, String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "*.rs", "*.md", "*.snap"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git ls-files: {error}"))?;
    let mut lines = Vec::new();
    for path in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|it| !it.is_empty()) {
        let text =
            std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
        let mut is_test = false;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            let kind = if path.ends_with(".rs") { of_rust(line, is_test) } else { of_page(line) };
            is_test = line == "#[test]" || is_test && line.starts_with('#');
            if let Some(kind) = kind {
                let (path, text) = (path.to_owned(), line.to_owned());
                lines.push(Line { path, number, text, kind });
            }
        }
    }
    Ok(lines)
}

fn of_rust(line: &str, is_test: bool) -> Option<Kind> {
    if is_test && line.starts_with("fn ") {
        return Some(Kind::TestName);
    }
    let (comment, kind) = match line.strip_prefix("//")? {
        doc if doc.starts_with(['/', '!']) => (&doc[1..], Kind::Doc),
        comment => (comment, Kind::Comment),
    };
    has_words(comment).then_some(kind)
}

/// Returns [`Kind::Page`] unless the line is a heading of a table, code or blank.
fn of_page(line: &str) -> Option<Kind> {
    has_words(line).then_some(Kind::Page)
}

fn has_words(text: &str) -> bool {
    let is_word = |word: &&str| {
        let word = word.trim_end_matches(['.', ',', ';', ':']);
        !word.is_empty() && word.chars().all(char::is_alphabetic)
    };
    text.split_whitespace().filter(is_word).count() >= MIN_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_lines_are_classified_by_kind() {
        assert_eq!(of_rust("// The sender waits here.", false), Some(Kind::Comment));
        assert_eq!(of_rust("/// Sends a message.", false), Some(Kind::Doc));
        assert_eq!(of_rust("fn send_to_dead_receiver_fails() {", true), Some(Kind::TestName));
        assert_eq!(of_rust("fn helper() {", false), None);
        assert_eq!(of_rust("/// ```", false), None);
        assert_eq!(of_page("| --- | --- |"), None);
        assert_eq!(of_page("The sender waits here."), Some(Kind::Page));
    }
}
