//! Rules on single lines.

use super::{Diagnostic, TextFile};

/// Maximum length of a line of a Rust file, in characters.
const MAX_WIDTH: usize = 100;

/// Checks the rules on lines for one file.
pub(super) fn check(file: &TextFile) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        let broken = [
            trailing_blank(file, line),
            foreign_path(line),
            file.is("rs").then(|| too_wide(line)).flatten(),
            file.is("rs").then(|| tab(line)).flatten(),
            file.is("rs").then(|| left_over(line)).flatten(),
        ];
        found.extend(broken.into_iter().flatten().map(|text| file.complain(number, text)));
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(file.complain(0, "the last line does not end with a newline; add one"));
    }
    found
}

fn too_wide(line: &str) -> Option<String> {
    let width = line.chars().count();
    let has_address = line.contains("http://") || line.contains("https://");
    (width > MAX_WIDTH && !has_address)
        .then(|| format!("expected at most {MAX_WIDTH} columns, found {width}; break the line"))
}

fn tab(line: &str) -> Option<String> {
    line.contains('\t').then(|| "found a tab; indent with spaces, write \\t in texts".to_owned())
}

/// Checks for spaces at the end of a line, except in snapshots, which contain output verbatim.
fn trailing_blank(file: &TextFile, line: &str) -> Option<String> {
    (line.trim_end() != line && !file.is("snap"))
        .then(|| "spaces at the end of the line; remove them".to_owned())
}

/// Checks for marks of unfinished work, and for ignored tests without a reason. The marks are
/// written in halves, so that the check does not find this file.
fn left_over(line: &str) -> Option<String> {
    let marks = [
        concat!("to", "do!"),
        concat!("un", "implemented!"),
        concat!("db", "g!"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("#[ig", "nore]"),
    ];
    let mark = marks.into_iter().find(|mark| line.contains(mark))?;
    Some(format!("`{mark}`: finish the work, or remove the mark"))
}

/// Checks for paths that exist on one machine only. The paths are written in halves for the same
/// reason.
fn foreign_path(line: &str) -> Option<String> {
    let roots = [concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let root = roots.into_iter().find(|root| {
        line.match_indices(root).any(|(at, _)| {
            // In the middle of a longer path, a directory with this name is allowed.
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "._-/}".contains(c))
        })
    })?;
    Some(format!("`{root}…` is a path of one machine; make it relative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_rules_on_lines_are_reported() {
        let wide = |count| format!("{}\n", "é".repeat(count));
        let address = format!("// https://a.b/{}\n", "c".repeat(100));
        let mut cases = vec![
            ("a.rs", wide(100), 0),
            ("a.rs", wide(101), 1),
            ("a.md", wide(101), 0),
            ("a.rs", address, 0),
        ];
        cases.extend(
            [
                ("a.md", "word \n", 1),
                ("a.snap", "word \n", 0),
                ("a.rs", "\tlet a;\n", 1),
                ("Makefile", "\tcc a.c\n", 0),
                ("a.toml", "a = 1", 1),
                ("a.toml", "", 0),
                ("a.rs", concat!("to", "do!()\n"), 1),
                ("a.rs", concat!("un", "implemented!(\"later\")\n"), 1),
                ("a.rs", concat!("db", "g!(x)\n"), 1),
                ("a.rs", concat!("// FIX", "ME\n"), 1),
                ("a.rs", concat!("// XX", "X\n"), 1),
                ("a.rs", concat!("#[ig", "nore]\n"), 1),
                ("a.rs", concat!("#[ig", "nore = \"a soak of 20 seconds\"]\n"), 0),
                ("a.rs", "fn done() {}\n", 0),
                ("a.md", concat!("see /ho", "me/me/file\n"), 1),
                ("a.rs", concat!("\"/wo", "rk/tree\"\n"), 1),
                ("a.rs", concat!("\"target/wo", "rk/tree\"\n"), 0),
            ]
            .map(|(path, text, count)| (path, text.to_owned(), count)),
        );
        for (path, text, count) in cases {
            assert_eq!(check(&TextFile::made_up(path, &text)).len(), count, "{path}: {text:?}");
        }
    }
}
