//! Compares the C header with the header that cbindgen generates from the sources.
//!
//! `WRITE_DOCS=1 cargo test -p tontine-c --test header` writes it; `cargo xtask header` calls that.
//! cbindgen reads the files one by one, without cargo, in the order of the header.
//! `docs/decisions/0007-header.md` explains why no build script does this.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Path of the header, relative to the package.
const PATH: &str = "include/tontine.h";

/// Names of the sources, in the order of the header.
const SOURCES: [&str; 5] = ["border", "life", "options", "mailbox", "sender"];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the header of the package in `folder`.
fn generate(folder: &Path) -> String {
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("settings");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(folder.join(format!("src/{name}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("sources that cbindgen understands").write(&mut text);
    String::from_utf8(text).expect("text")
}

#[test]
fn header_equals_generated_header() {
    let (path, header) = (here().join(PATH), generate(&here()));
    if env::var_os("WRITE_DOCS").is_some() {
        fs::write(&path, &header).expect("written");
    }
    let current = fs::read_to_string(&path).expect("the header");
    assert!(current == header, "{PATH} is out of date: run `cargo xtask header` and commit it");
}

#[test]
fn sources_list_every_file() {
    let mut names: Vec<String> = fs::read_dir(here().join("src"))
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
fn changed_source_changes_header() {
    let copy = tempfile::tempdir().expect("a folder");
    fs::create_dir(copy.path().join("src")).expect("a folder");
    fs::copy(here().join("cbindgen.toml"), copy.path().join("cbindgen.toml")).expect("copied");
    for name in SOURCES {
        let path = format!("src/{name}.rs");
        fs::copy(here().join(&path), copy.path().join(&path)).expect("copied");
    }
    let source = copy.path().join("src/life.rs");
    let text = fs::read_to_string(&source).expect("a source");
    fs::write(&source, text.replace("tontine_life_fd", "tontine_life_descriptor"))
        .expect("written");
    assert!(generate(copy.path()).contains("tontine_life_descriptor"));
    assert!(!generate(&here()).contains("tontine_life_descriptor"));
}
