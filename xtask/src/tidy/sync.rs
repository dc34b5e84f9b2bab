//! Names of memory orderings. Both partners of a pair have the same name, so each name occurs at
//! least twice.

use std::collections::BTreeMap;

use super::{Diagnostic, TextFile};

/// Checks that every name occurs at least twice in the tree.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut seen: BTreeMap<&str, Vec<(&TextFile, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        for (number, line) in file.lines() {
            for name in names(line) {
                seen.entry(name).or_default().push((file, number));
            }
        }
    }
    seen.into_iter()
        .filter_map(|(name, places)| match places[..] {
            [(file, line)] => Some(file.complain(
                line,
                format!("`SYNC {name}` occurs once; give the other side the same name"),
            )),
            _ => None,
        })
        .collect()
}

/// Returns the names in a comment that pairs orderings: a word after the mark, followed by a colon.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let comment = line.split_once("//").map_or("", |(_, comment)| comment);
    comment.split("SYNC ").skip(1).filter_map(|after| {
        let (name, _) = after.split_once(':')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (!name.is_empty() && name.chars().all(plain)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_name_in_comment_needs_second_occurrence_in_any_file() {
        let files = TextFile::all_made_up(&[
            ("a.rs", "// SYNC made-up: pairs with peek.\n"),
            ("b.rs", "load(); // SYNC made-up: pairs with publish.\n"),
            ("c.rs", "let a = \"SYNC b:\"; // SYNC <name>: the pattern\n// SYNC without colon\n"),
        ]);
        assert_eq!(check(&files), []);
        let found = check(&files[1..]);
        assert!(matches!(&found[..], [only] if only.text.contains("made-up")), "{found:?}");
    }
}
