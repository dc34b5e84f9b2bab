//! Looks up tests. Like the compiler, [`Sources`] follows the modules from a target's root to a
//! function that is marked as a test. `examples` is not a target; it precedes the path of a
//! scenario in `examples/unix`, with `_` for `-`. Other tests run all scenarios in that folder.
//!
//! The sources must have the layout of `cargo fmt`, and macros are not expanded: a test that only
//! an expansion contains is not found. `cargo xtask tidy` refuses disabled tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose tests are searched.
const CRATES: [&str; 3] = ["unix", "unix-sim", "unix-lab"];

/// The sources of the Unix crates.
pub(crate) struct Sources {
    crates: PathBuf,
}

/// The lines of a module, the folder of its file, and the folder of its submodules.
struct Module {
    lines: Vec<String>,
    adjacent: PathBuf,
    folder: PathBuf,
}

impl Sources {
    pub(crate) fn of_the_unix() -> Self {
        Self { crates: Path::new(env!("CARGO_MANIFEST_DIR")).join("..") }
    }

    /// Finds the test with this path: a target (`lib`, or a folder in `tests`), modules, and the
    /// function. The path does not name the crate; the test is in one of [`CRATES`].
    pub(crate) fn find(&self, path: &str) -> Result<(), String> {
        let names: Vec<_> = path.split("::").collect();
        let &[target, ref modules @ .., test] = names.as_slice() else {
            return Err(format!("`{path}` does not name a test"));
        };
        if target == "examples" {
            return self.find_scenario(&names[1..]).ok_or_else(|| format!("no scenario `{path}`"));
        }
        // The returned error is the one from the crate in which the path leads furthest.
        let (mut furthest, mut error) = (0, format!("no target `{target}`"));
        for mut module in CRATES.iter().filter_map(|package| self.target(package, target)) {
            let mut found = 0;
            while let Some(child) = modules.get(found).and_then(|name| module.child(name)) {
                (module, found) = (child, found + 1);
            }
            let why = match modules.get(found) {
                None if module.has_test(test) => return Ok(()),
                None => format!("no test `{path}`"),
                Some(name) => format!("no module `{name}` in `{path}`"),
            };
            if found >= furthest {
                (furthest, error) = (found, why);
            }
        }
        Err(error)
    }

    fn find_scenario(&self, path: &[&str]) -> Option<()> {
        let &[folder, name] = path else { return None };
        let file = self.crates.join("../examples/unix").join(folder).join(name.replace('_', "-"));
        file.with_extension("unix").is_file().then_some(())
    }

    fn target(&self, package: &str, name: &str) -> Option<Module> {
        let root = self.crates.join(package);
        let tests = root.join("tests");
        let (file, folder) = if name == "lib" {
            (root.join("src/lib.rs"), root.join("src"))
        } else if tests.join(name).join("main.rs").exists() {
            (tests.join(name).join("main.rs"), tests.join(name))
        } else {
            (tests.join(name).with_extension("rs"), tests)
        };
        Module::read(&file, folder)
    }
}

impl Module {
    fn read(file: &Path, folder: PathBuf) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let adjacent = file.parent()?.to_owned();
        Some(Self { lines: text.lines().map(str::to_owned).collect(), adjacent, folder })
    }

    /// Returns a module that this module declares or contains.
    fn child(&self, name: &str) -> Option<Self> {
        let (declared, contained) = (format!("mod {name};"), format!("mod {name} {{"));
        for (at, line) in self.lines.iter().enumerate() {
            let item = without_visibility(line);
            let folder = self.folder.join(name);
            if item == declared {
                let attribute = at.checked_sub(1).map_or("", |above| self.lines[above].trim());
                let path = attribute.strip_prefix("#[path = \"");
                if let Some(path) = path.and_then(|path| path.strip_suffix("\"]")) {
                    return Self::read(&self.adjacent.join(path), folder);
                }
                let adjacent = folder.with_extension("rs");
                let file = if adjacent.exists() { adjacent } else { folder.join("mod.rs") };
                return Self::read(&file, folder);
            }
            if item == contained {
                let length = block_length(&self.lines[at..]);
                let lines = self.lines[at + 1..at + length].to_vec();
                return Some(Self { lines, adjacent: self.adjacent.clone(), folder });
            }
        }
        None
    }

    /// Returns `true` if a function `name`, outside nested modules, is marked as a test.
    fn has_test(&self, name: &str) -> bool {
        let head = format!("fn {name}(");
        let mut marked = false;
        let mut at = 0;
        while let Some(line) = self.lines.get(at) {
            let item = line.trim();
            if without_visibility(line).starts_with("mod ") && item.ends_with('{') {
                at += block_length(&self.lines[at..]);
                marked = false;
                continue;
            }
            if marked && item.starts_with(&head) {
                return true;
            }
            let is_above = item.starts_with("#[") || item.starts_with("//");
            marked = item == "#[test]" || (marked && is_above);
            at += 1;
        }
        false
    }
}

/// Returns the number of lines of the block that begins in the first line, without the line that
/// ends the block.
fn block_length(lines: &[String]) -> usize {
    let indentation = lines[0].len() - lines[0].trim_start().len();
    let end = format!("{}}}", " ".repeat(indentation));
    lines.iter().position(|line| *line == end).unwrap_or(lines.len())
}

fn without_visibility(line: &str) -> &str {
    let item = line.trim();
    ["pub ", "pub(crate) ", "pub(super) "]
        .into_iter()
        .find_map(|visibility| item.strip_prefix(visibility))
        .unwrap_or(item)
}

#[test]
fn test_lookup_finds_tests_in_targets_modules_and_library() {
    let sources = Sources::of_the_unix();
    for path in [
        "host::keys_pass_unprocessed_and_terminal_is_restored",
        "lab::conformance::every_assertion_is_listed_once",
        "lab::conformance::sources::test_lookup_finds_tests_in_targets_modules_and_library",
        "sim::rules::kill::null_signal_checks_without_sending",
        "lib::kernel::pending::tests::pending_fault_precedes_lower_numbers",
        "lib::kernel::pipe::tests::pipe_bytes_are_read_in_write_order",
        "lib::lock::tests::page::lock_order_page_matches_docs",
        "lib::kernel::terminal::line::tests::kill_character_erases_line",
        "examples::sending::self_signal_arrives_before_kill_returns",
    ] {
        assert_eq!(sources.find(path), Ok(()), "{path}");
    }
}

#[test]
fn test_lookup_refuses_paths_without_test() {
    let sources = Sources::of_the_unix();
    for (path, why) in [
        ("simulator::kill::null_signal_checks_without_sending", "no target `simulator`"),
        ("sim::rules::murder::null_signal_checks_without_sending", "no module `murder`"),
        ("sim::rules::null_signal_checks_without_sending", "no test"),
        ("sim::rules::kill::the_null_signal_only_ask", "no test"),
        ("sim::rules::kill::leader", "no test"),
        ("sim::rules::harness::everywhere", "no test"),
        ("lib::kernel::pending::pending_fault_precedes_lower_numbers", "no test"),
        ("lib::lock::page::lock_order_page", "no test"),
        ("examples::sending::self_signal_arrives_after_kill_returns", "no scenario"),
        ("examples::self_signal_arrives_before_kill_returns", "no scenario"),
    ] {
        let said = sources.find(path).expect_err(path);
        assert!(said.contains(why), "{path}: {said}");
    }
}

#[test]
fn test_attribute_applies_to_function_below() {
    let text = r"
        #[test]
        #[other]
        /// Text.
        fn one() {}

        #[test]
        fn two() {
            fn three() {}
        }
        fn four() {}
        mod inner {
            #[test]
            fn five() {}
        }";
    let lines = text.lines().map(str::to_owned).collect();
    let module = Module { lines, adjacent: PathBuf::new(), folder: PathBuf::new() };
    let found = ["one", "two", "three", "four", "five"].map(|name| module.has_test(name));
    assert_eq!(found, [true, true, false, false, false]);
    assert!(module.child("inner").is_some_and(|inner| inner.has_test("five")));
}
