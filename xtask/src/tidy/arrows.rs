//! Dependencies of the crates. A crate depends only on crates that the architecture allows, and the
//! library depends on few packages.

use super::{Diagnostic, TextFile};

/// Allowed dependencies of each crate.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("tontine-c", &["tontine", "tontine-gateway"]),
    ("tontine-mechanisms", &["tontine", "tontine-bench"]),
    ("tontine-bench", &["tontine", "tontine-command"]),
    ("tontine-report", &["tontine-bench"]),
    ("tontine-gateway", &["tontine"]),
    (
        "tontine-experiments",
        &[
            "tontine",
            "tontine-bench",
            "tontine-mechanisms",
            "tontine-gateway",
            "tontine-unix",
            "tontine-unix-sim",
        ],
    ),
    ("tontine-crash", &["tontine", "tontine-bench", "tontine-mechanisms"]),
    ("tontine-unix-sim", &["tontine-unix"]),
    ("tontine-unix-lab", &["tontine-unix", "tontine-unix-sim"]),
    ("tontine-command", &["tontine"]),
    ("tontine-cli", &["tontine", "tontine-command", "tontine-gateway"]),
    (
        "tontine-measure",
        &[
            "tontine-bench",
            "tontine-command",
            "tontine-crash",
            "tontine-experiments",
            "tontine-report",
        ],
    ),
    (
        "tontine-unix-cli",
        &["tontine-command", "tontine-unix", "tontine-unix-lab", "tontine-unix-sim"],
    ),
    ("tontine-zenoh", &["tontine", "tontine-gateway"]),
    ("tontine-fuzz", &["tontine"]),
    ("tontine-python", &["tontine"]),
];

/// The crate on which other programs depend.
const LIBRARY: &str = "tontine";
/// Maximum number of direct dependencies of the library. Optional dependencies count; dependencies
/// of tests do not.
const MAX_DEPENDENCIES: usize = 7;

/// A package, as its manifest describes it.
struct Manifest<'f> {
    file: &'f TextFile,
    name: &'f str,
    dependencies: Vec<Dependency<'f>>,
    has_build_script: bool,
}

/// A dependency of a package.
#[derive(Debug)]
struct Dependency<'f> {
    name: &'f str,
    /// `true` for a dependency of tests and examples only.
    is_dev: bool,
}

/// Checks the dependencies of all packages, inside and outside of the workspace.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let packages = manifests(files);
    let mut found = forbidden(&packages);
    if !packages.is_empty() {
        found.extend(limit_violations(&packages));
    }
    found
}

/// Reads the manifests of all packages.
fn manifests(files: &[TextFile]) -> Vec<Manifest<'_>> {
    let read = |file| {
        let mut manifest = read(file)?;
        let script = file.path.with_file_name("build.rs");
        manifest.has_build_script |= files.iter().any(|file| file.path == script);
        Some(manifest)
    };
    files.iter().filter(|file| file.path.ends_with("Cargo.toml")).filter_map(read).collect()
}

/// Reads a manifest line by line; each dependency begins a line, or has a table of its own. Returns
/// `None` if the manifest is of no package.
fn read(file: &TextFile) -> Option<Manifest<'_>> {
    let mut manifest = Manifest { file, name: "", dependencies: vec![], has_build_script: false };
    let mut table = "";
    for line in file.text.lines() {
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end().trim_end_matches(']');
            if let Some((kind, name)) = table.rsplit_once("dependencies.") {
                manifest.dependencies.push(Dependency { name, is_dev: kind.ends_with("dev-") });
            }
        } else if table == "package" {
            if let Some(name) = line.strip_prefix("name = ") {
                manifest.name = name.trim_matches('"');
            }
            manifest.has_build_script |= line.starts_with("build = \"");
        } else if table.ends_with("dependencies") && !table.starts_with("workspace") {
            let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
            let name = &line[..end.unwrap_or(0)];
            // A dependency may have another name in the sources.
            let original =
                line.split_once("package = \"").and_then(|(_, rest)| rest.split_once('"'));
            if !name.is_empty() {
                let name = original.map_or(name, |(original, _)| original);
                let is_dev = table.ends_with("dev-dependencies");
                manifest.dependencies.push(Dependency { name, is_dev });
            }
        }
    }
    (!manifest.name.is_empty()).then_some(manifest)
}

/// Returns the dependencies between packages of the repository that are not allowed. A package may
/// depend on itself, for features that only its tests need.
fn forbidden(packages: &[Manifest<'_>]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for Manifest { file, name: dependent, dependencies, .. } in packages {
        for Dependency { name: dependency, .. } in dependencies {
            let allowed = dependent == dependency
                || ALLOWED.iter().any(|(from, to)| from == dependent && to.contains(dependency));
            if packages.iter().any(|package| package.name == *dependency) && !allowed {
                let text = format!(
                    "{dependent} depends on {dependency}, which ARCHITECTURE.md does not allow"
                );
                found.push(file.complain(0, text));
            }
        }
    }
    found
}

/// Returns the violations of the limits on the library's dependencies.
fn limit_violations(packages: &[Manifest<'_>]) -> Vec<Diagnostic> {
    let Some(library) = packages.iter().find(|package| package.name == LIBRARY) else {
        return vec![
            packages[0].file.complain(0, format!("expected a package {LIBRARY}, found none")),
        ];
    };
    let mut found = Vec::new();
    let normal = library.dependencies.iter().filter(|dependency| !dependency.is_dev);
    let mut names: Vec<&str> = normal.map(|dependency| dependency.name).collect();
    // A dependency that is named for several targets counts once.
    names.sort_unstable();
    names.dedup();
    if names.len() > MAX_DEPENDENCIES {
        let (count, names) = (names.len(), names.join(", "));
        found.push(library.file.complain(0, format!(
            "{LIBRARY}: expected at most {MAX_DEPENDENCIES} dependencies, found {count} ({names})"
        )));
    }
    if library.has_build_script {
        found.push(
            library.file.complain(0, format!("{LIBRARY}: expected no build script, found one")),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> TextFile {
        let text = format!("[package]\nname = \"{name}\"\n{rest}\n");
        TextFile::made_up(&format!("crates/{name}/Cargo.toml"), &text)
    }

    fn texts(files: &[TextFile]) -> Vec<String> {
        check(files).into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn dependencies_follow_allowed_direction() {
        for (dependent, dependency, count) in [
            ("tontine-zenoh", "tontine-gateway", 0),
            ("tontine", "tontine", 0),
            ("tontine-cli", "tontine-measure", 1),
            ("tontine-gateway", "tontine-bench", 1),
            ("tontine-report", "tontine-experiments", 1),
            ("tontine-unix-sim", "tontine-unix-lab", 1),
            ("tontine-unix", "tontine", 1),
            ("tontine", "tontine-unix", 1),
            ("tontine-crash", "xtask", 1),
            ("xtask", "tontine", 1),
        ] {
            let rest = format!("\n[dependencies]\n{dependency}.workspace = true\nserde = \"1\"");
            let library = (![dependent, dependency].contains(&LIBRARY)).then_some(LIBRARY);
            let others = [Some(dependency), library].into_iter().flatten();
            let mut files: Vec<TextFile> = others.map(|name| manifest(name, "")).collect();
            files.push(manifest(dependent, &rest));
            let found = texts(&files);
            assert_eq!(found.len(), count, "{dependent} on {dependency}: {found:?}");
        }
    }

    #[test]
    fn every_form_of_a_dependency_is_read() {
        let rest = "[features]\na = [\n    \"dep:x\",\n]\n[dependencies]\n# A comment.\n\
                    one.workspace = true\ntwo = { version = \"1\", features = [\n    \"x\",\n] }\n\
                    named = { package = \"three\", version = \"1\" }\n\
                    [target.'cfg(loom)'.dev-dependencies]\nfour = \"1\"\n\
                    [dependencies.five]\nversion = \"1\"\n[dev-dependencies.six]\nversion = \"1\"\n\
                    [build-dependencies]\nseven = \"1\"\n[lints]\nworkspace = true";
        let file = manifest("a", rest);
        let read = read(&file).expect("a package");
        let found: Vec<(&str, bool)> =
            read.dependencies.iter().map(|one| (one.name, one.is_dev)).collect();
        let normal = ["one", "two", "three"].map(|name| (name, false));
        let others = [("four", true), ("five", false), ("six", true), ("seven", false)];
        assert_eq!(found, [&normal[..], &others[..]].concat());
    }

    #[test]
    fn library_dependencies_are_limited() {
        let complaints = |count: usize, more: &str, script: &str| {
            let lines: String = (0..count).map(|number| format!("d{number} = \"1\"\n")).collect();
            let rest = format!(
                "{more}\n[dependencies]\n{lines}[target.'cfg(loom)'.dependencies]\nd0 = \"1\"\n\
                 [dev-dependencies]\nproptest = \"1\"\n"
            );
            texts(&[manifest(LIBRARY, &rest), TextFile::made_up(script, "fn main() {}\n")]).len()
        };
        assert_eq!(complaints(MAX_DEPENDENCIES, "", "crates/cli/build.rs"), 0);
        assert_eq!(complaints(MAX_DEPENDENCIES + 1, "", "crates/cli/build.rs"), 1);
        assert_eq!(complaints(MAX_DEPENDENCIES, "build = \"script.rs\"", "crates/cli/build.rs"), 1);
        assert_eq!(complaints(MAX_DEPENDENCIES, "", "crates/tontine/build.rs"), 1);
        assert_eq!(texts(&[manifest("tontine-cli", "")]).len(), 1, "no library");
    }
}
