//! Dependencies of the crates. A crate depends only on crates that the architecture allows, and the
//! library depends on few packages.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Diagnostic, output};

/// Allowed dependencies of each crate.
const ALLOWED: [(&str, &[&str]); 12] = [
    ("tontine-c", &["tontine", "tontine-remote"]),
    ("tontine-mechanisms", &["tontine", "tontine-host"]),
    ("tontine-bench", &["tontine", "tontine-host"]),
    ("tontine-report", &["tontine-bench"]),
    ("tontine-remote", &["tontine"]),
    (
        "tontine-experiments",
        &[
            "tontine",
            "tontine-bench",
            "tontine-host",
            "tontine-mechanisms",
            "tontine-remote",
            "tontine-unix",
            "tontine-unix-sim",
        ],
    ),
    ("tontine-crash", &["tontine", "tontine-host", "tontine-mechanisms"]),
    ("tontine-unix-sim", &["tontine-unix"]),
    ("tontine-unix-lab", &["tontine-unix", "tontine-unix-sim"]),
    (
        "tontine-cli",
        &[
            "tontine",
            "tontine-bench",
            "tontine-crash",
            "tontine-experiments",
            "tontine-remote",
            "tontine-report",
            "tontine-unix",
            "tontine-unix-lab",
            "tontine-unix-sim",
        ],
    ),
    ("tontine-zenoh", &["tontine", "tontine-remote"]),
    (
        "xtask",
        &[
            "tontine",
            "tontine-bench",
            "tontine-crash",
            "tontine-experiments",
            "tontine-host",
            "tontine-unix",
            "tontine-unix-sim",
        ],
    ),
];

/// The crate on which other programs depend.
const LIBRARY: &str = "tontine";
/// Maximum number of direct dependencies of the library. Optional dependencies count; dependencies
/// of tests do not.
const MOST_DEPENDENCIES: usize = 6;

/// Packages outside of the workspace whose dependencies are checked too.
const EXCLUDED: [&str; 1] = ["crates/zenoh/Cargo.toml"];

/// Checks the dependencies of the members of the workspace and of [`EXCLUDED`], which cargo lists.
pub(super) fn check(root: &Path) -> Vec<Diagnostic> {
    if !root.join("Cargo.toml").exists() {
        return Vec::new();
    }
    let complain = |text| {
        let path = PathBuf::from("Cargo.toml");
        Diagnostic { path, line: 0, text }
    };
    match metadata(root) {
        Ok(metadata) => forbidden(&metadata)
            .into_iter()
            .chain(limit_violations(&metadata))
            .map(complain)
            .collect(),
        Err(why) => vec![complain(why)],
    }
}

/// Returns the metadata of the workspace, with the excluded packages among its packages.
fn metadata(root: &Path) -> Result<Value, String> {
    let read = |manifest: &str| {
        let mut arguments = vec!["metadata", "--no-deps", "--offline", "--format-version", "1"];
        arguments.extend(["--manifest-path", manifest]);
        let text = output(root, "cargo", &arguments)?;
        serde_json::from_str::<Value>(&text).map_err(|error| error.to_string())
    };
    let mut metadata = read("Cargo.toml")?;
    for manifest in EXCLUDED.into_iter().filter(|manifest| root.join(manifest).exists()) {
        let mut excluded = read(manifest)?;
        let packages = excluded["packages"].as_array_mut().map(std::mem::take);
        if let Some(all) = metadata["packages"].as_array_mut() {
            all.extend(packages.unwrap_or_default());
        }
    }
    Ok(metadata)
}

/// Returns the dependencies between members that are not allowed.
fn forbidden(metadata: &Value) -> Vec<String> {
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let names: Vec<&str> = packages().filter_map(|package| package["name"].as_str()).collect();
    let mut found = Vec::new();
    for package in packages() {
        let dependent = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let dependency_name = dependency["name"].as_str().unwrap_or_default();
            let allowed = ALLOWED
                .iter()
                .any(|(from, to)| *from == dependent && to.contains(&dependency_name));
            if names.contains(&dependency_name) && !allowed {
                found.push(format!(
                    "{dependent} depends on {dependency_name}, which ARCHITECTURE.md does not allow"
                ));
            }
        }
    }
    found
}

/// Returns the violations of the limits on the library's dependencies.
fn limit_violations(metadata: &Value) -> Vec<String> {
    let Some(library) = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == LIBRARY))
    else {
        return vec![format!("expected a package {LIBRARY}, found none")];
    };
    let mut found = Vec::new();
    let mut names: Vec<&str> = library["dependencies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["name"].as_str())
        .collect();
    // A dependency that is named for several targets counts once.
    names.sort_unstable();
    names.dedup();
    if names.len() > MOST_DEPENDENCIES {
        let (count, names) = (names.len(), names.join(", "));
        found.push(format!(
            "{LIBRARY}: expected at most {MOST_DEPENDENCIES} dependencies, found {count} ({names})"
        ));
    }
    let targets = library["targets"].as_array().into_iter().flatten();
    let kinds = targets.flat_map(|target| target["kind"].as_array().into_iter().flatten());
    if kinds.into_iter().any(|kind| kind == "custom-build") {
        found.push(format!("{LIBRARY}: expected no build script, found one"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace(dependent: &str, dependency_name: &str) -> Value {
        json!({ "packages": [
            {
                    "name": dependent,
                    "dependencies": [{ "name": dependency_name }, { "name": "serde" }],
                },
            { "name": dependency_name, "dependencies": [] },
        ] })
    }

    #[test]
    fn dependencies_follow_allowed_direction() {
        assert_eq!(forbidden(&workspace("tontine-cli", "tontine-bench")), [""; 0]);
        assert_eq!(forbidden(&workspace("tontine-bench", "tontine-cli")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-bench", "tontine-experiments")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-report", "tontine-experiments")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-unix", "tontine-unix-sim")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-unix-sim", "tontine-unix-lab")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-unix", "tontine")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine", "tontine-unix")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-crash", "xtask")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-zenoh", "tontine-remote")), [""; 0]);
        assert_eq!(forbidden(&workspace("tontine-cli", "tontine-zenoh")).len(), 1);
    }

    fn library(dependencies: usize, kind: &str) -> Value {
        let mut all: Vec<Value> =
            (0..dependencies).map(|number| json!({ "name": format!("d{number}") })).collect();
        // A duplicate, and a dependency of the tests.
        all.push(json!({ "name": "d0", "kind": null, "target": "cfg(loom)" }));
        all.push(json!({ "name": "proptest", "kind": "dev" }));
        json!({ "packages": [
            { "name": "tontine", "dependencies": all, "targets": [{ "kind": [kind] }] },
        ] })
    }

    #[test]
    fn library_dependencies_are_limited() {
        assert_eq!(limit_violations(&library(6, "lib")), [""; 0]);
        assert_eq!(limit_violations(&library(7, "lib")).len(), 1);
        assert_eq!(limit_violations(&library(6, "custom-build")).len(), 1);
        assert_eq!(limit_violations(&workspace("xtask", "tontine-bench")).len(), 1, "no library");
    }
}
