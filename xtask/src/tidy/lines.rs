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

    fn complaints(path: &str, text: &str) -> usize {
        check(&TextFile::made_up(path, text)).len()
    }

    #[test]
    fn width_counts_characters_and_exempts_urls() {
        assert_eq!(complaints("a.rs", &format!("{}\n", "é".repeat(100))), 0);
        assert_eq!(complaints("a.rs", &format!("{}\n", "é".repeat(101))), 1);
        assert_eq!(complaints("a.rs", &format!("// https://a.b/{}\n", "c".repeat(100))), 0);
        assert_eq!(complaints("a.md", &format!("{}\n", "é".repeat(101))), 0);
    }

    #[test]
    fn trailing_spaces_tabs_and_missing_newline_are_reported() {
        assert_eq!(complaints("a.md", "word \n"), 1);
        assert_eq!(complaints("a.snap", "word \n"), 0);
        assert_eq!(complaints("a.rs", "\tlet a;\n"), 1);
        assert_eq!(complaints("Makefile", "\tcc a.c\n"), 0);
        assert_eq!(complaints("a.toml", "a = 1"), 1);
        assert_eq!(complaints("a.toml", ""), 0);
    }

    #[test]
    fn marks_of_unfinished_work_are_reported() {
        for mark in [
            concat!("to", "do!()"),
            concat!("un", "implemented!(\"later\")"),
            concat!("db", "g!(x)"),
            concat!("// FIX", "ME"),
            concat!("// XX", "X"),
            concat!("#[ig", "nore]"),
        ] {
            assert_eq!(complaints("a.rs", &format!("{mark}\n")), 1, "{mark}");
        }
        for fine in ["fn done() {}", concat!("#[ig", "nore = \"a soak of 20 seconds\"]")] {
            assert_eq!(complaints("a.rs", &format!("{fine}\n")), 0, "{fine}");
        }
    }

    #[test]
    fn machine_paths_are_reported() {
        assert_eq!(complaints("a.md", concat!("see /ho", "me/me/file\n")), 1);
        assert_eq!(complaints("a.rs", concat!("\"/wo", "rk/tree\"\n")), 1);
        assert_eq!(complaints("a.rs", concat!("\"target/wo", "rk/tree\"\n")), 0);
    }
}
