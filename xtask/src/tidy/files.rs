//! Rules on a Rust file as a whole.

use super::{Complaint, File};

/// Most lines of a Rust file.
const LONGEST: usize = 600;

/// The rules on files, for one file.
pub(super) fn check(file: &File) -> Vec<Complaint> {
    if !file.is("rs") {
        return Vec::new();
    }
    [too_long(file), no_module_doc(file), unsafe_without_consent(file)]
        .into_iter()
        .flatten()
        .collect()
}

fn too_long(file: &File) -> Option<Complaint> {
    let lines = file.text.lines().count();
    (lines > LONGEST)
        .then(|| file.complain(0, format!("{lines} lines, at most {LONGEST}: look for the seam")))
}

fn no_module_doc(file: &File) -> Option<Complaint> {
    let first = file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!/"));
    (!first.is_some_and(|line| line.starts_with("//!")))
        .then(|| file.complain(1, "begin with `//!`: what the module does, and what it does not"))
}

/// The lint denies `unsafe` by default; who allows it says why, for the whole file and at its top.
fn unsafe_without_consent(file: &File) -> Option<Complaint> {
    // Halved, so that this file is not one of those that it looks for.
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
        file.complain(number, format!("`{word}` in a file that does not opt in: {how}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check(&File::made_up("a.rs", text)).len()
    }

    #[test]
    fn length() {
        assert_eq!(complaints(&"//! Long.\n".repeat(600)), 0);
        assert_eq!(complaints(&"//! Long.\n".repeat(601)), 1);
    }

    #[test]
    fn module_doc() {
        assert_eq!(complaints("//! What it does.\nfn a() {}\n"), 0);
        assert_eq!(complaints("fn a() {}\n"), 1);
        assert_eq!(complaints("// A plain comment.\nfn a() {}\n"), 1);
        assert_eq!(complaints(""), 1);
        assert!(check(&File::made_up("a.c", "int a;\n")).is_empty());
    }

    #[test]
    fn consent_to_what_the_lint_denies() {
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
