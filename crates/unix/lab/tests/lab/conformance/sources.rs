//! Looks up the tests that the lists name: [`find`].

use std::fs;
use std::path::Path;

/// The crates whose tests are searched.
const CRATES: [&str; 3] = ["api", "sim", "lab"];

/// Finds the test with this path: a target (`lib`, or a folder or file in `tests`), modules, and
/// the function. The path does not name the crate; the test is in one of [`CRATES`]. `examples`
/// precedes the path of a scenario in `examples/unix`, with `_` for `-`; other tests run all
/// scenarios in that folder.
pub(crate) fn find(path: &str) -> Result<(), String> {
    let names: Vec<_> = path.split("::").collect();
    let &[target, ref modules @ .., test] = names.as_slice() else {
        return Err(format!("`{path}` does not name a test"));
    };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if target == "examples" {
        let file = crates.join("../../examples/unix").join(names[1..].join("/").replace('_', "-"));
        let found = file.with_extension("unix").is_file();
        return if found { Ok(()) } else { Err(format!("no scenario `{path}`")) };
    }
    let texts = CRATES.iter().filter_map(|package| {
        let root = crates.join(package);
        let folder =
            if target == "lib" { root.join("src") } else { root.join("tests").join(target) };
        module(&folder, modules)
    });
    let mut error = format!("no module of `{path}`");
    for text in texts {
        if has_test(&text, test) {
            return Ok(());
        }
        error = format!("no test `{path}`");
    }
    Err(error)
}

/// Returns the source of a module below the target in `folder`. The module `tests` may be in the
/// file of the module that contains it, or in a file `_tests.rs` next to it.
fn module(folder: &Path, modules: &[&str]) -> Option<String> {
    let path = folder.join(modules.join("/"));
    let mut files = vec![path.with_extension("rs"), path.join("mod.rs")];
    match modules {
        [] => files.extend([folder.join("main.rs"), folder.join("lib.rs")]),
        [outer @ .., "tests"] => {
            let outer = outer.join("/");
            files.extend(
                [format!("{outer}.rs"), format!("{outer}_tests.rs")].map(|file| folder.join(file)),
            );
        }
        _ => {}
    }
    let texts: Vec<_> = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    (!texts.is_empty()).then(|| texts.concat())
}

/// Returns `true` if a function `name` is marked as a test. Attributes and comments may be between
/// the mark and the function.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let mut marked = false;
    text.lines().map(str::trim).any(|line| {
        let found = marked && line.starts_with(&head);
        let is_above = line.starts_with("#[") || line.starts_with("//");
        marked = line == "#[test]" || (marked && is_above);
        found
    })
}

#[test]
fn lookup_finds_tests_in_targets_modules_library_and_scenarios() {
    for path in [
        "host::keys_pass_unprocessed_and_terminal_is_restored",
        "lab::conformance::every_assertion_is_listed_once_and_every_list_is_known",
        "lab::conformance::sources::lookup_refuses_paths_without_test",
        "sim::rules::kill::kill_accepts_bare_numbers_and_thread_ids",
        "lib::kernel::pending::tests::pending_fault_precedes_lower_numbers",
        "lib::lock::tests::page::lock_order_page_matches_docs",
        "examples::sending::self_signal_arrives_before_kill_returns",
    ] {
        assert_eq!(find(path), Ok(()), "{path}");
    }
}

#[test]
fn lookup_refuses_paths_without_test() {
    for (path, why) in [
        ("simulator::kill::kill_accepts_bare_numbers_and_thread_ids", "no module"),
        ("sim::rules::murder::kill_accepts_bare_numbers_and_thread_ids", "no module"),
        ("sim::rules::kill_accepts_bare_numbers_and_thread_ids", "no test"),
        ("sim::rules::kill::kill_accepts_bare_numbers", "no test"),
        ("sim::rules::harness::kill", "no test"),
        ("examples::sending::self_signal_arrives_after_kill_returns", "no scenario"),
        ("examples::self_signal_arrives_before_kill_returns", "no scenario"),
    ] {
        let error = find(path).expect_err(path);
        assert!(error.contains(why), "{path}: {error}");
    }
}

#[test]
fn test_attribute_applies_to_function_below() {
    let text = "#[test]\n#[other]\n/// Text.\nfn one() {}\n\nfn two() {}\n";
    assert_eq!(["one", "two"].map(|name| has_test(text, name)), [true, false]);
}
