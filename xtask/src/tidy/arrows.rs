//! Arrows between the crates: they run one way, and only those that the architecture names.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Complaint, output};

/// Who may depend on whom, as (who, whom).
const ALLOWED: [(&str, &str); 10] = [
    ("tontine-crash", "tontine"),
    ("tontine-c", "tontine"),
    ("tontine-measure", "tontine"),
    ("tontine-measure", "tontine-unix"),
    ("tontine-cli", "tontine"),
    ("tontine-cli", "tontine-measure"),
    ("tontine-cli", "tontine-crash"),
    ("tontine-cli", "tontine-unix"),
    ("xtask", "tontine-measure"),
    ("xtask", "tontine-crash"),
];

/// Asks cargo for the members of the workspace and what each depends on.
pub(super) fn check(root: &Path) -> Vec<Complaint> {
    if !root.join("Cargo.toml").exists() {
        return Vec::new();
    }
    let complain = |text| {
        let path = PathBuf::from("Cargo.toml");
        Complaint { path, line: 0, text }
    };
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let metadata = output(root, "cargo", &arguments)
        .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    match metadata {
        Ok(metadata) => forbidden(&metadata).into_iter().map(complain).collect(),
        Err(why) => vec![complain(why)],
    }
}

/// The arrows between members that nobody allowed.
fn forbidden(metadata: &Value) -> Vec<String> {
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let names: Vec<&str> = packages().filter_map(|package| package["name"].as_str()).collect();
    let mut found = Vec::new();
    for package in packages() {
        let who = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let whom = dependency["name"].as_str().unwrap_or_default();
            if names.contains(&whom) && !ALLOWED.contains(&(who, whom)) {
                found.push(format!("{who} depends on {whom}: no arrow of the architecture's"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace(who: &str, whom: &str) -> Value {
        json!({ "packages": [
            { "name": who, "dependencies": [{ "name": whom }, { "name": "serde" }] },
            { "name": whom, "dependencies": [] },
        ] })
    }

    #[test]
    fn arrows_run_one_way() {
        assert_eq!(forbidden(&workspace("tontine-cli", "tontine-measure")), [""; 0]);
        assert_eq!(forbidden(&workspace("tontine-measure", "tontine-cli")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-unix", "tontine")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine", "tontine-unix")).len(), 1);
        assert_eq!(forbidden(&workspace("tontine-crash", "xtask")).len(), 1);
    }
}
