//! The oldest supported Rust version, on which all files that name it must agree.
//!
//! Cargo enforces `rust-version` in the workspace's manifest, so a build with exactly that
//! toolchain proves that the version suffices. README.md documents the version. A toolchain file,
//! if present, determines the toolchain of every build.

use std::path::Path;

use super::{Diagnostic, TextFile};

/// Compares the manifest, README.md and the toolchain files.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let Some(manifest) = named(files, "Cargo.toml") else {
        return Vec::new();
    };
    let Some(promised) = after(&manifest.text, "rust-version = \"") else {
        return vec![
            manifest.complain(0, "expected a `rust-version` for the workspace, found none"),
        ];
    };
    let mut found = Vec::new();
    if let Some(readme) = named(files, "README.md") {
        // The text may be wrapped at any space.
        let flat = readme.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let stated = after(&flat, "Rust ≥ ").unwrap_or("no version");
        if stated != promised {
            let text = format!("expected `Rust ≥ {promised}`, as in Cargo.toml, found {stated}");
            found.push(readme.complain(0, text));
        }
    }
    for name in ["rust-toolchain.toml", "rust-toolchain"] {
        let Some(file) = named(files, name) else { continue };
        let chosen = after(&file.text, "channel = \"").or_else(|| after(&file.text, ""));
        let is_promised = |chosen: &str| {
            let rest = chosen.strip_prefix(promised);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !chosen.is_some_and(is_promised) {
            found.push(file.complain(
                0,
                format!("expected toolchain {promised}, the oldest that Cargo.toml promises"),
            ));
        }
    }
    found
}

fn named<'a>(files: &'a [TextFile], name: &str) -> Option<&'a TextFile> {
    files.iter().find(|file| file.path == Path::new(name))
}

/// Returns the version after the first `mark`.
fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let rest = &text[text.find(mark)? + mark.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('.')).filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_versions_must_agree() {
        let exact = "[toolchain]\nchannel = \"1.95.0\"\n";
        for (readme, toolchain, count) in [
            ("Linux ≥ 5.10, Rust\n≥ 1.95; x86-64.\n", exact, 0),
            ("It needs Rust ≥ 1.95.\n", exact, 0),
            ("Rust ≥ 1.9\n", exact, 1),
            ("Rust, a recent one\n", exact, 1),
            ("Rust ≥ 1.95\n", "[toolchain]\nchannel = \"stable\"\n", 1),
            ("Rust ≥ 1.95\n", "[toolchain]\nchannel = \"1.950\"\n", 1),
        ] {
            let manifest = ("Cargo.toml", "[workspace.package]\nrust-version = \"1.95\"\n");
            let files = [manifest, ("README.md", readme), ("rust-toolchain.toml", toolchain)];
            assert_eq!(check(&TextFile::all_made_up(&files)).len(), count, "{readme}{toolchain}");
        }
        assert_eq!(check(&[TextFile::made_up("Cargo.toml", "[workspace]\n")]).len(), 1);
        assert!(check(&[]).is_empty(), "no manifest, no promise");
    }
}
