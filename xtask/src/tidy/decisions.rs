//! The records of `docs/decisions`. Each record has a unique number, which is in its file name and
//! in its title.

use std::collections::BTreeMap;

use super::{Diagnostic, TextFile};

/// Checks every record of the tree.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut first: BTreeMap<u32, &str> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.starts_with("docs/decisions")) {
        let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(number) = number(name) else {
            found.push(file.complain(0, "expected a name like `0001-subject.md`; rename the file"));
            continue;
        };
        let title = format!("# {number}. ");
        if !file.text.starts_with(&title) {
            found.push(file.complain(1, format!("expected a title that begins with `{title}`")));
        }
        if let Some(other) = first.insert(number, name) {
            let text = format!("has the number of {other}; use the next free one");
            found.push(file.complain(0, text));
        }
    }
    found
}

/// Returns the number in `0001-subject.md`.
fn number(name: &str) -> Option<u32> {
    let (digits, about) = name.strip_suffix(".md")?.split_once('-')?;
    (digits.len() == 4 && !about.is_empty()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: two records had the number 6, and "decision 6" was ambiguous.
    #[test]
    fn number_is_unique_and_in_name_and_title() {
        let one = ("docs/decisions/0001-one.md", "# 1. One\n");
        let fine = [one, ("docs/decisions/0002-two.md", "# 2. Two\n"), ("docs/0001-else.md", "")];
        assert_eq!(check(&TextFile::all_made_up(&fine)), []);
        for (path, text, complaint) in [
            ("docs/decisions/0001-other.md", "# 1. Other\n", "number of 0001-one.md"),
            ("docs/decisions/0003-three.md", "# 0003: Three\n", "a title"),
            ("docs/decisions/0003-three.md", "# 2. Three\n", "a title"),
            ("docs/decisions/three.md", "# 3. Three\n", "a name"),
            ("docs/decisions/3-three.md", "# 3. Three\n", "a name"),
        ] {
            let found = check(&TextFile::all_made_up(&[one, (path, text)]));
            assert!(matches!(&found[..], [it] if it.text.contains(complaint)), "{found:?}");
        }
    }
}
