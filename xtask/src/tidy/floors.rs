//! Floors: a module imports only from modules on floors below its own.
//!
//! Modules of one directory must not import each other in a circle. For the modules directly below
//! `lib.rs` or `main.rs`, a sentence in a comment or in the documentation of that file names the
//! floors, from the bottom up. Commas separate names on one floor, and semicolons separate floors.
//!
//! ```text
//! // Floors, from the bottom up: `errno`, `signal`; `process`; `linux`.
//! ```
//!
//! An import is any path through `crate`, `super` or `self` outside of tests, comments and macros.
//! An import from a containing module, or a re-export from a contained module, is not an import
//! between neighbours and is not checked.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, File as Syntax, Item, ItemUse, UseTree};

use super::{Diagnostic, TextFile};

/// Remaining circles: the containing module, and the modules that form the circle. The list may
/// only become shorter.
const REMAINING: [(&str, &str); 1] = [("crates/tontine/heap/shared", "arena core")];

/// Maximum number of re-exports through which an item is followed.
const RE_EXPORTS: usize = 8;

/// A module's path from the root of its crate: empty for the root itself.
type Module = Vec<String>;

/// Checks the rules on floors for all crates.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    let mut crates: BTreeMap<String, Vec<(Module, &TextFile)>> = BTreeMap::new();
    for file in files {
        let Some((package, module)) = place(file) else { continue };
        crates.entry(package).or_default().push((module, file));
    }
    crates.iter().flat_map(|(package, modules)| check_crate(package, modules)).collect()
}

/// Returns the crate and the module of a file, if the file is a module of a library or a program.
fn place(file: &TextFile) -> Option<(String, Module)> {
    let path = file.path.to_str()?.strip_suffix(".rs")?;
    let (package, inside) = path.split_once("/src/")?;
    let mut module: Module = inside.split('/').map(str::to_owned).collect();
    if module.iter().any(|name| name == "tests" || name.ends_with("_tests") || name == "bin") {
        return None;
    }
    if ["mod", "lib", "main"].contains(&module.last()?.as_str()) {
        module.pop();
    }
    Some((package.to_owned(), module))
}

fn check_crate(package: &str, modules: &[(Module, &TextFile)]) -> Vec<Diagnostic> {
    let known: BTreeSet<&[String]> = modules.iter().map(|(module, _)| module.as_slice()).collect();
    let mut found = Vec::new();
    let mut neighbours: BTreeMap<&[String], Graph> = BTreeMap::new();
    let mut read = Vec::new();
    for (module, file) in modules {
        match file.syntax() {
            Ok(syntax) => read.push((module, syntax)),
            Err(error) => found.push(file.complain(0, format!("cannot be parsed: {error}"))),
        }
    }
    let exports = read.iter().flat_map(|(module, syntax)| exported(syntax, module)).collect();
    for (module, syntax) in &read {
        for target in imports(syntax, module, &known, &exports) {
            let common = module.iter().zip(target).take_while(|(one, other)| one == other).count();
            if common < module.len() && common < target.len() {
                let graph = neighbours.entry(&target[..common]).or_default();
                graph.entry(&module[common]).or_default().insert(&target[common]);
            }
        }
    }
    let complain = |folder: &[String], text: String| {
        let (_, file) = modules.iter().find(|(module, _)| module == folder).unwrap_or(&modules[0]);
        file.complain(0, text)
    };
    let mut remaining: Vec<_> =
        REMAINING.iter().filter(|(folder, _)| is_in(folder, package)).collect();
    for (folder, graph) in &neighbours {
        for circle in circles(graph) {
            let circle = circle.join(" ");
            let known = (place_name(package, folder), circle.as_str());
            match remaining.iter().position(|(at, names)| (*at, *names) == (&known.0, known.1)) {
                Some(nth) => drop(remaining.swap_remove(nth)),
                None => found.push(complain(folder, format!("in a circle: {circle}"))),
            }
        }
    }
    let gone = |(folder, names): &&(&str, &str)| {
        modules[0]
            .1
            .complain(0, format!("REMAINING: {names} in {folder} form no circle; remove the entry"))
    };
    found.extend(remaining.iter().map(gone));
    let Some((_, root)) = modules.iter().find(|(module, _)| module.is_empty()) else {
        return found;
    };
    match floors(&root.text) {
        Some(floors) => {
            let names = modules.iter().filter_map(|(module, _)| module.first());
            let missing: BTreeSet<_> =
                names.filter(|name| !floors.contains_key(name.as_str())).collect();
            let text = |name| format!("`{name}` is on no floor in the documentation; add it");
            found.extend(missing.into_iter().map(|name| root.complain(0, text(name))));
            let empty = Graph::new();
            for (from, to) in neighbours.get(&[] as &[String]).unwrap_or(&empty) {
                for to in to {
                    let (Some(low), Some(high)) = (floors.get(to), floors.get(from)) else {
                        continue;
                    };
                    if low >= high {
                        let text =
                            format!("`{from}` imports `{to}`, which is not on a floor below");
                        found.push(root.complain(0, text));
                    }
                }
            }
        }
        None => found.push(
            root.complain(0, "expected the floors in the documentation, found none; add them"),
        ),
    }
    found
}

/// Returns `true` if a directory is a crate's directory or inside such a directory.
fn is_in(folder: &str, package: &str) -> bool {
    folder.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The imports of each module from its neighbours.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn place_name(package: &str, folder: &[String]) -> String {
    [package].into_iter().chain(folder.iter().map(String::as_str)).collect::<Vec<_>>().join("/")
}

/// Returns the floor of each module that the root names in a comment or in its documentation,
/// counted from the bottom.
fn floors(text: &str) -> Option<BTreeMap<&str, usize>> {
    // A line that is not a comment counts as an empty line.
    let comments = || {
        text.lines().map(|line| {
            let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("//"));
            comment.unwrap_or("").trim()
        })
    };
    let from = comments().position(|line| line.starts_with("Floors, from the bottom up:"))?;
    let sentence = comments().skip(from).take_while(|line| !line.is_empty());
    let mut floors = BTreeMap::new();
    let mut floor = 0;
    for line in sentence {
        for (nth, piece) in line.split('`').enumerate() {
            if nth % 2 == 1 {
                floors.insert(piece, floor);
            } else {
                floor += piece.matches(';').count();
            }
        }
    }
    Some(floors)
}

/// Returns the modules of this crate from which a module imports. Each path ends at the module that
/// is a file.
fn imports<'a>(
    syntax: &Syntax,
    module: &[String],
    known: &BTreeSet<&'a [String]>,
    exports: &BTreeMap<Vec<String>, Vec<String>>,
) -> Vec<&'a [String]> {
    let mut paths = Paths::default();
    paths.visit_file(syntax);
    let resolve = |path: &Vec<String>| {
        let mut whole = absolute(path, module)?;
        for _ in 0..RE_EXPORTS {
            let Some((length, source)) =
                (1..=whole.len()).find_map(|length| Some((length, exports.get(&whole[..length])?)))
            else {
                break;
            };
            whole.splice(..length, source.iter().cloned());
        }
        (0..=whole.len()).rev().find_map(|length| known.get(&whole[..length]).copied())
    };
    paths.0.iter().filter_map(resolve).collect()
}

/// Converts a path that begins with `crate`, `self` or `super` into a path from the crate's root.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let mut whole: Vec<String> = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    for name in &path[1..] {
        match name.as_str() {
            "super" => drop(whole.pop()),
            name => whole.push(name.to_owned()),
        }
    }
    Some(whole)
}

/// Returns the names that a module re-exports, each with the path of its item.
fn exported(syntax: &Syntax, module: &[String]) -> Vec<(Vec<String>, Vec<String>)> {
    let mut found = Vec::new();
    for item in &syntax.items {
        let Item::Use(item) = item else { continue };
        let mut paths = Paths::default();
        paths.add_tree(&[], &item.tree);
        found.extend(paths.0.iter().filter_map(|path| {
            let whole = match path.first()?.as_str() {
                "crate" | "self" | "super" => absolute(path, module)?,
                _ => [module, path].concat(),
            };
            let name = [module, &path[path.len() - 1..]].concat();
            (!whole.starts_with(&name)).then_some((name, whole))
        }));
    }
    found
}

/// The paths of a file that may name another module, except in tests.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &dyn ToString| {
            let mut path = before.to_vec();
            path.push(name.to_string());
            path
        };
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.0.push(with(&name.ident)),
            UseTree::Rename(name) => self.0.push(with(&name.ident)),
            UseTree::Glob(_) => self.0.push(before.to_vec()),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(before, tree));
            }
        }
    }
}

impl<'s> Visit<'s> for Paths {
    fn visit_item(&mut self, item: &'s Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'s ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'s syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Returns `true` if an attribute is `#[cfg(test)]`.
pub(super) fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
}

/// Returns the circles of a graph: sorted sets of modules, each of which reaches all others in its
/// set.
fn circles<'a>(graph: &Graph<'a>) -> Vec<Vec<&'a str>> {
    let reaches = |from: &'a str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(name) = next.pop() {
            let new = graph.get(name).into_iter().flatten().filter(|name| seen.insert(**name));
            next.extend(new);
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|name| (*name, reaches(name))).collect();
    let mut found = BTreeSet::new();
    for (name, seen) in &reached {
        if seen.contains(name) {
            let back = |other: &&&str| reached.get(**other).is_some_and(|it| it.contains(name));
            found.insert(seen.iter().filter(back).copied().collect::<Vec<_>>());
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str =
        "//! A crate.\n//!\n//! Floors, from the bottom up: `low`,\n//! `other`; `high`.\n";

    fn complaints(root: &str, files: &[(&str, &str)]) -> Vec<String> {
        let files = [&[("lib.rs", root)], files].concat();
        let made_up = |(path, text): &(&str, &str)| {
            TextFile::made_up(&format!("crates/made-up/src/{path}"), text)
        };
        let files: Vec<TextFile> = files.iter().map(made_up).collect();
        check(&files).into_iter().map(|complaint| complaint.text).collect()
    }

    #[test]
    fn import_from_same_or_higher_floor_is_reported() {
        let low = ("low.rs", "pub struct Low;");
        let other = ("other.rs", "pub struct Other;");
        let high = ("high/mod.rs", "use crate::{low::Low, other::Other};");
        assert_eq!(complaints(ROOT, &[low, other, high]), [""; 0]);
        let up = ("low.rs", "fn low() { crate::high::High::new() }");
        let circle = complaints(ROOT, &[up, other, ("high.rs", "use crate::low::Low;")]);
        assert_eq!(circle.len(), 2, "a circle, and an import from above: {circle:?}");
        let level = ("other.rs", "use super::low;");
        assert_eq!(complaints(ROOT, &[low, level, ("high.rs", "")]).len(), 1);
        let in_tests = "// crate::high::High\n#[cfg(test)]\nmod tests { use crate::high::High; }\n\
                        #[cfg(test)]\nuse crate::high::Other;";
        assert_eq!(complaints(ROOT, &[("low.rs", in_tests), ("high.rs", "")]), [""; 0]);
    }

    #[test]
    fn floors_are_read_from_any_comment_and_complete() {
        assert_eq!(complaints("//! A crate.\n", &[]).len(), 1);
        assert_eq!(complaints(ROOT, &[("new.rs", "")]).len(), 1);
        let plain =
            "//! A crate.\n\n// Floors, from the bottom up: `low`;\n// `high`.\nmod high;\n";
        let low = ("low.rs", "pub struct Low;");
        assert_eq!(complaints(plain, &[low, ("high.rs", "use crate::low::Low;")]), [""; 0]);
        let up = ("low.rs", "use crate::high::High;");
        assert_eq!(complaints(plain, &[up, ("high.rs", "pub struct High;")]).len(), 1);
    }

    #[test]
    fn import_cycle_in_directory_is_reported() {
        let with = |b| {
            let module = ("low/mod.rs", "mod a; pub use b::B;");
            complaints(ROOT, &[module, ("low/a.rs", "use super::b::{self};"), ("low/b.rs", b)])
        };
        assert_eq!(with("use super::Low;"), [""; 0]);
        assert_eq!(with("use crate::low::a::A;"), ["in a circle: a b"]);
    }
}
