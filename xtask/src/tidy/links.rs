//! Relative links in Markdown, whose file and heading must exist.

use std::path::{Component, Path, PathBuf};

use super::{Diagnostic, TextFile};

/// Checks every relative link of every Markdown file.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is("md")) {
        for (number, target) in prose(&file.text).flat_map(|(number, line)| {
            targets(line).into_iter().map(move |target| (number, target))
        }) {
            if let Some(text) = broken(files, &file.path, target) {
                found.push(file.complain(number, text));
            }
        }
    }
    found
}

/// Returns the reason why a link is broken, if it is.
fn broken(files: &[TextFile], from: &Path, target: &str) -> Option<String> {
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    if elsewhere || target.is_empty() {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => from.to_path_buf(),
        path => resolve(from.parent().unwrap_or(Path::new("")), Path::new(path)),
    };
    let there = files.iter().find(|file| file.path == path);
    let is_folder = || files.iter().any(|file| file.path.starts_with(&path));
    match there {
        None if is_folder() => None,
        None => Some(format!("`{target}` names no file of the tree; correct the link")),
        Some(file) if !anchor.is_empty() && file.is("md") => (!anchors(&file.text)
            .contains(&anchor.to_lowercase()))
        .then(|| format!("`{target}` names no heading of {}; correct the link", path.display())),
        Some(_) => None,
    }
}

/// Resolves `path` relative to `folder`, without `.` and `..`.
fn resolve(folder: &Path, path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::Normal(name) => whole.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    whole
}

/// Returns the lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// Returns the targets of the links in a line, `[text](target)` and `[name]: target`, except in
/// code.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = line[from..].find("](").map(|at| from + at + 2) {
        let end = line[at..].find(')').map_or(line.len(), |end| at + end);
        let in_code = line[..at].matches('`').count() % 2 == 1;
        if !in_code {
            // A title may follow the target.
            found.extend(line[at..end].split_whitespace().next());
        }
        from = end;
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.extend(target.split_whitespace().next());
    }
    found
}

/// Returns the anchors of all headings: lower case, with hyphens for spaces and without other
/// characters. A number distinguishes further headings of the same name.
fn anchors(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    for (_, line) in headings {
        let name: String = line
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                c if c.is_alphanumeric() => Some(c),
                _ => None,
            })
            .flat_map(char::to_lowercase)
            .collect();
        let mut unique = name.clone();
        let mut number = 0;
        while all.contains(&unique) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        all.push(unique);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_headings_are_reported() {
        for (text, count) in [
            ("[b](b.md) [lib](../src/lib.rs) [src](../src) [self](./a.md)\n", 0),
            ("[gone](gone.md) and [b](b.md)\n", 1),
            ("[b]: ../b.md\n", 1),
            ("[web](https://example.org/x.md) [me](mailto:a@b)\n", 0),
            ("[b](b.md#one-two-three) [b](b.md#twice-1 \"Title\")\n", 0),
            ("[b](b.md#twice-2)\n", 1),
            ("# Here\n[here](#here) [there](#there)\n", 1),
            // Not in code.
            ("```\n[a](gone.md)\n```\n`x[0](gone.md)`\n", 0),
        ] {
            let headings = "# One `two`, three!\n## Twice\n## Twice\n";
            let files = [("docs/a.md", text), ("docs/b.md", headings), ("src/lib.rs", "//! A.\n")];
            assert_eq!(check(&TextFile::all_made_up(&files)).len(), count, "{text}");
        }
    }
}
