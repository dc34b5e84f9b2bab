//! `cargo xtask header`: generates the C header from the sources of `bindings/c` ([`run`],
//! [`stale`]).
//!
//! cbindgen reads the files one by one, without cargo, in the order of the header. `tidy` compares
//! the result with the file. `docs/decisions/0007-header.md` explains why this is a task and not a
//! build script.

use std::path::Path;
use std::{fs, io};

/// Path of the header, relative to the root.
pub(crate) const PATH: &str = "bindings/c/include/tontine.h";

/// Names of the sources, in the order of the header.
const SOURCES: [&str; 6] = ["border", "life", "options", "mailbox", "sender", "classic"];

/// Writes the header, or only checks it. Returns `Ok(false)` if the checked header is out of date.
pub(crate) fn run(root: &Path, check: bool) -> io::Result<bool> {
    if check {
        let stale = stale(root);
        if let Some(why) = &stale {
            eprintln!("{PATH}: {why}");
        }
        return Ok(stale.is_none());
    }
    fs::write(root.join(PATH), generate(root).map_err(io::Error::other)?)?;
    Ok(true)
}

/// Returns the reason why the header differs from the sources, or `None` if it does not differ or
/// there are no sources.
pub(crate) fn stale(root: &Path) -> Option<String> {
    if !root.join("bindings/c/cbindgen.toml").exists() {
        return None;
    }
    match generate(root) {
        Ok(text) if fs::read_to_string(root.join(PATH)).is_ok_and(|there| there == text) => None,
        Ok(_) => Some("out of date: generate it with `cargo xtask header`".into()),
        Err(why) => Some(why),
    }
}

fn generate(root: &Path) -> Result<String, String> {
    let folder = root.join("bindings/c");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(folder.join(format!("src/{name}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().map_err(|error| error.to_string())?.write(&mut text);
    String::from_utf8(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_list_every_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/c/src");
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("sources")
            .map(|entry| entry.expect("a file").path())
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .filter(|name| name != "lib")
            .collect();
        names.sort();
        let mut read = SOURCES;
        read.sort_unstable();
        assert_eq!(names, read);
    }

    #[test]
    fn changed_source_makes_header_outdated() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let copy = tempfile::tempdir().expect("a folder");
        for folder in ["bindings/c/src", "bindings/c/include"] {
            let to = copy.path().join(folder);
            fs::create_dir_all(&to).expect("a folder");
            for entry in fs::read_dir(root.join(folder)).expect("files") {
                let entry = entry.expect("a file");
                fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
            }
        }
        assert_eq!(stale(copy.path()), None, "no sources, nothing to compare");
        let config = "bindings/c/cbindgen.toml";
        fs::copy(root.join(config), copy.path().join(config)).expect("copied");
        assert_eq!(stale(copy.path()), None);
        let source = copy.path().join("bindings/c/src/life.rs");
        let text = fs::read_to_string(&source).expect("a source");
        fs::write(&source, text.replace("tontine_life_fd", "tontine_life_descriptor"))
            .expect("written");
        assert!(stale(copy.path()).is_some_and(|why| why.starts_with("out of date")));
    }
}
