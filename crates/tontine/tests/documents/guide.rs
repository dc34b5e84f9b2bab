//! A test shows every guarantee of `docs/guides/mailbox.md`: each test that the guide names exists.

use std::path::Path;

/// Appends the text of all sources and tests below `folder` to `text`.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// Returns the names in backticks that only a test can have: words with more than two underscores,
/// or an example's name followed by a verb.
fn named(guide: &str) -> Vec<&str> {
    let prose = guide.split("```").step_by(2);
    let code = prose.flat_map(|text| text.split('`').skip(1).step_by(2));
    let is_name = |code: &&str| {
        let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        code.bytes().all(word)
            && (code.matches('_').count() > 2
                || code.ends_with("_runs")
                || code.contains("_after_"))
    };
    code.filter(is_name).collect()
}

#[test]
fn every_test_named_in_mailbox_guide_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = root.join("../../docs/guides/mailbox.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let mut text = String::new();
    sources(&root.join("src"), &mut text);
    sources(&root.join("tests"), &mut text);
    let names = named(&guide);
    assert!(names.len() > 20, "only {names:?} were found");
    for name in names {
        assert!(text.contains(&format!("fn {name}()")), "no test is named {name}");
    }
}
