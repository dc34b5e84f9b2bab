//! Rules on a Rust file as a whole, and on the size of a crate.

use std::collections::BTreeMap;

use super::{Diagnostic, TextFile};

/// Maximum number of lines of a Rust file.
const MAX_LINES: usize = 600;

/// Maximum number of lines of a crate's source, without its tests: unit tests, models, properties,
/// schedules and fuzzing.
const MAX_CRATE_LINES: usize = 29_000;

/// Checks the rules on files for one file.
pub(super) fn check(file: &TextFile) -> Vec<Diagnostic> {
    if !file.is("rs") {
        return Vec::new();
    }
    [too_long(file), no_module_doc(file), unsafe_without_allow(file)]
        .into_iter()
        .flatten()
        .collect()
}

/// Checks the rule on the size of crates.
pub(super) fn check_crates(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut crates: BTreeMap<&str, (usize, &TextFile)> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let Some((package, lines)) = source_lines(file) else { continue };
        crates.entry(package).or_insert((0, file)).0 += lines;
    }
    let large = crates.into_iter().filter(|(_, (lines, _))| *lines > MAX_CRATE_LINES);
    large
        .map(|(package, (lines, file))| {
            file.complain(
                0,
                format!("{package}: {lines} lines, at most {MAX_CRATE_LINES}: split the crate"),
            )
        })
        .collect()
}

/// Returns the crate of a file and its number of counted lines, unless the file belongs to the
/// tests.
fn source_lines(file: &TextFile) -> Option<(&str, usize)> {
    let (package, inside) = file.path.to_str()?.strip_suffix(".rs")?.split_once("/src/")?;
    let is_test = |name: &str| {
        name == "tests"
            || name.ends_with("_tests")
            || ["fuzzing", "models", "properties"].contains(&name)
    };
    if inside.split('/').any(is_test) {
        return None;
    }
    let source = ["test", "all(test, not(loom))"].iter().fold(&*file.text, |source, condition| {
        source.split(&format!("\n#[cfg({condition})]\nmod tests {{")).next().unwrap_or_default()
    });
    Some((package, source.lines().count()))
}

fn too_long(file: &TextFile) -> Option<Diagnostic> {
    let lines = file.text.lines().count();
    (lines > MAX_LINES).then(|| {
        file.complain(
            0,
            format!("expected at most {MAX_LINES} lines, found {lines}; split the file"),
        )
    })
}

fn no_module_doc(file: &TextFile) -> Option<Diagnostic> {
    let first = file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!/"));
    (!first.is_some_and(|line| line.starts_with("//!"))).then(|| {
        file.complain(1, "expected a module comment `//!` in the first line, found none; add one")
    })
}

/// Checks that a file with `unsafe` code allows the code at its top, with a reason, because the
/// lint denies it by default.
fn unsafe_without_allow(file: &TextFile) -> Option<Diagnostic> {
    // The word is written in halves, so that the check does not find this file.
    let word = concat!("un", "safe");
    let opens = ["{", "fn ", "impl ", "impl<", "extern ", "trait "];
    let is_unsafe = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        code.match_indices(word).any(|(at, _)| {
            let whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_`\"".contains(c));
            let after = code[at + word.len()..].trim_start();
            whole && opens.iter().any(|open| after.starts_with(open))
        })
    };
    let (number, _) = file.lines().find(|(_, line)| is_unsafe(line))?;
    // rustfmt breaks a long attribute over several lines.
    let dense: String = file.text.split_whitespace().collect();
    (!dense.contains(concat!("#![allow(un", "safe_code,reason"))).then(|| {
        let how = "add `#![allow(unsafe_code, reason = \"…\")]` below the module doc";
        file.complain(number, format!("`{word}` in a file that does not opt in; {how}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check(&TextFile::made_up("a.rs", text)).len()
    }

    #[test]
    fn long_file_and_missing_module_doc_are_reported() {
        for (text, count) in [
            (&*"//! Long.\n".repeat(600), 0),
            (&"//! Long.\n".repeat(601), 1),
            ("//! A purpose.\nfn a() {}\n", 0),
            ("fn a() {}\n", 1),
            ("// A plain comment.\nfn a() {}\n", 1),
            ("", 1),
        ] {
            assert_eq!(complaints(text), count, "{text}");
        }
        assert!(check(&TextFile::made_up("a.c", "int a;\n")).is_empty());
    }

    #[test]
    fn crate_size_excludes_tests() {
        let text = "fn a() {}\n".repeat(MAX_CRATE_LINES / 2);
        let half = |condition| format!("{text}\n#[cfg({condition})]\nmod tests {{\n{text}}}\n");
        let (plain, loom) = (half("test"), half("all(test, not(loom))"));
        let names = ["crates/a/src/one.rs", "crates/a/src/two.rs", "crates/a/src/tests/three.rs"];
        let mut files =
            TextFile::all_made_up(&[(names[0], &*plain), (names[1], &loom), (names[2], &plain)]);
        assert!(check_crates(&files).is_empty());
        files.push(TextFile::made_up("crates/a/src/four.rs", "fn b() {}\n"));
        assert_eq!(check_crates(&files).len(), 1);
    }

    #[test]
    fn unsafe_code_needs_allow_with_reason() {
        for code in ["{ f() }", "fn f();", "impl Send for A {}", "impl<T> Send for A<T> {}"] {
            let code = format!("//! A.\n{} {code}\n", concat!("un", "safe"));
            assert_eq!(complaints(&code), 1, "{code}");
            let consent = concat!("#![allow(\n    un", "safe_code,\n    reason = \"maps\"\n)]");
            assert_eq!(complaints(&format!("{code}{consent}\n")), 0, "{code}");
            let silent = concat!("#![allow(un", "safe_code)]");
            assert_eq!(complaints(&format!("{code}{silent}\n")), 1, "without a reason: {code}");
        }
        assert_eq!(complaints(concat!("//! A.\n// an un", "safe { block }\n")), 0);
        assert_eq!(complaints(concat!("//! A.\nfn not_un", "safe () {}\n")), 0);
    }
}
