//! One name, one type. `names.txt` lists the names that several types still share, with how many
//! types have each; the list only becomes shorter.
//!
//! Structs, enums, unions, traits and type aliases of the crates' sources count, except those of
//! tests. Error types of modules, such as `Error` and `Result`, count like any other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item};

use super::floors::is_test;
use super::{Complaint, File};

/// The names that several types share.
const SHARED: &str = include_str!("names.txt");

/// The rule on names, for all crates.
pub(super) fn check(files: &[File]) -> Vec<Complaint> {
    complaints(files, SHARED)
}

fn complaints(files: &[File], shared: &str) -> Vec<Complaint> {
    let mut types: BTreeMap<String, Vec<&File>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_source(file)) {
        // A file that cannot be read is a complaint of the floors.
        let Ok(syntax) = syn::parse_file(&file.text) else { continue };
        let mut names = Names::default();
        names.visit_file(&syntax);
        for name in names.0 {
            types.entry(name).or_default().push(file);
        }
    }
    let allowed: BTreeMap<&str, usize> =
        shared.lines().filter_map(|line| line.split_once(' ')).filter_map(count).collect();
    let more = types.iter().filter_map(|(name, files)| {
        let most = allowed.get(name.as_str()).copied().unwrap_or(1);
        let text = format!("`{name}` is the name of {} types, at most {most}", files.len());
        (files.len() > most).then(|| files[files.len() - 1].complain(0, text))
    });
    let fewer = allowed.iter().filter_map(|(name, listed)| {
        let found = types.get(*name).map_or(0, Vec::len);
        let text = format!("`{name}` is the name of {found} types, not {listed}: shorten the list");
        let path = PathBuf::from("xtask/src/tidy/names.txt");
        (found < *listed || *listed < 2).then_some(Complaint { path, line: 0, text })
    });
    more.chain(fewer).collect()
}

fn count<'a>((name, number): (&'a str, &str)) -> Option<(&'a str, usize)> {
    Some((name, number.parse().ok()?))
}

/// Returns `true` if a file is part of a library or a program, and not of its tests.
fn is_source(file: &File) -> bool {
    let Some(path) = file.path.to_str().and_then(|path| path.strip_suffix(".rs")) else {
        return false;
    };
    path.split_once("/src/").is_some_and(|(_, inside)| {
        !inside.split('/').any(|name| name == "tests" || name.ends_with("_tests"))
    })
}

/// The types that a file declares, except in tests.
#[derive(Default)]
struct Names(Vec<String>);

impl<'s> Visit<'s> for Names {
    fn visit_item(&mut self, item: &'s Item) {
        let (attributes, name): (&[Attribute], Option<&Ident>) = match item {
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Mod(item) => (&item.attrs, None),
            Item::Fn(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        if !attributes.iter().any(is_test) {
            self.0.extend(name.map(ToString::to_string));
            visit::visit_item(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)], shared: &str) -> Vec<String> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::made_up(path, text)).collect();
        complaints(&files, shared).into_iter().map(|complaint| complaint.text).collect()
    }

    #[test]
    fn names_shared_by_more_types_than_listed_are_refused() {
        let files = [
            ("crates/a/src/lib.rs", "pub struct Step; mod inner { enum Step {} }"),
            ("crates/b/src/lib.rs", "pub trait Step {}"),
        ];
        assert_eq!(texts(&files, "Step 3\n"), [""; 0]);
        assert_eq!(texts(&files, "Step 2\n"), ["`Step` is the name of 3 types, at most 2"]);
        assert_eq!(texts(&files[1..], ""), [""; 0]);
    }

    #[test]
    fn list_that_is_too_long_is_refused() {
        let files = [("crates/a/src/lib.rs", "struct Board;")];
        assert_eq!(texts(&files, "Board 2\n").len(), 1);
        assert_eq!(texts(&files, "Desk 2\n").len(), 1);
    }

    #[test]
    fn types_of_tests_and_associated_types_do_not_count() {
        let text = "struct Step;\n#[cfg(test)]\nmod tests { struct Step; }\n\
                    impl Deref for Step { type Target = u8; }";
        let files = [("crates/a/src/lib.rs", text), ("crates/a/src/tests.rs", "struct Step;")];
        assert_eq!(texts(&files, ""), [""; 0]);
    }
}
