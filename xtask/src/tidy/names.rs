//! Names of types: each name belongs to one type.
//!
//! - Two public types of the library crates never share a name. A type is public here if it is
//!   declared `pub`, without a restriction such as `(crate)`. This approximates "reachable from
//!   outside its crate", because the lint `unreachable_pub` finds the declarations that differ.
//! - `names.txt` lists the names that several types still share, private types included. Each line
//!   contains a name, the number of its types and the reason. The list may only become shorter.
//!
//! Structs, enums, unions, traits and type aliases of the crates' sources count, except those of
//! tests. An alias `Result` is not a separate type, and each crate may have one, as modules of the
//! standard library do. The alias counts in `names.txt` only. Error types count like any other
//! type.

use std::collections::BTreeMap;
use std::path::PathBuf;

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, Visibility};

use super::floors::is_test;
use super::{Diagnostic, TextFile};

/// Names that several types share.
const SHARED: &str = include_str!("names.txt");

/// Names that public types share. `tontine` and `tontine-unix` each have a `Signal`, because users
/// of one crate do not need the other, and the field has no other word for a signal.
const PUBLIC_SHARED: &[&str] = &["Signal"];

/// Checks both rules on names, for all crates.
pub(super) fn check(files: &[TextFile]) -> Vec<Diagnostic> {
    complaints(files, SHARED, PUBLIC_SHARED)
}

fn complaints(files: &[TextFile], shared: &str, public_shared: &[&str]) -> Vec<Diagnostic> {
    let mut types: BTreeMap<String, Vec<Declaration<'_>>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_source(file)) {
        // `floors` reports a file that cannot be parsed.
        let Ok(syntax) = file.syntax() else { continue };
        let mut names = TypeNames::default();
        names.visit_file(syntax);
        for (name, is_public) in names.0 {
            types.entry(name).or_default().push(Declaration { file, is_public });
        }
    }
    let mut found = public_complaints(&types, public_shared);
    let allowed: BTreeMap<&str, usize> = shared.lines().filter_map(count).collect();
    found.extend(types.iter().filter_map(|(name, types)| {
        let max = allowed.get(name.as_str()).copied().unwrap_or(1);
        let text = format!("`{name}` is the name of {} types, at most {max}", types.len());
        (types.len() > max).then(|| types[types.len() - 1].file.complain(0, text))
    }));
    found.extend(allowed.iter().filter_map(|(name, listed)| {
        let found = types.get(*name).map_or(0, Vec::len);
        let text = format!("`{name}` is the name of {found} types, not {listed}: shorten the list");
        let path = PathBuf::from("xtask/src/tidy/names.txt");
        (found < *listed || *listed < 2).then_some(Diagnostic { path, line: 0, text })
    }));
    found
}

/// Checks the public types alone.
fn public_complaints(
    types: &BTreeMap<String, Vec<Declaration<'_>>>,
    exempt: &[&str],
) -> Vec<Diagnostic> {
    let shared = |name: &str| -> Vec<&TextFile> {
        let types = types.get(name).into_iter().flatten();
        types.filter(|it| it.is_public && is_of_a_library(it.file)).map(|it| it.file).collect()
    };
    let more = types.keys().filter(|name| !exempt.contains(&name.as_str())).filter_map(|name| {
        let files = shared(name);
        let others: Vec<String> =
            files.iter().skip(1).map(|file| file.path.display().to_string()).collect();
        let text = format!(
            "`{name}` is also the name of a public type of {}: rename one",
            others.join(", ")
        );
        (files.len() > 1).then(|| files[0].complain(0, text))
    });
    let fewer = exempt.iter().filter(|name| shared(name).len() < 2).map(|name| Diagnostic {
        path: PathBuf::from("xtask/src/tidy/names.rs"),
        line: 0,
        text: format!("public types no longer share `{name}`: shorten `PUBLIC_SHARED`"),
    });
    more.chain(fewer).collect()
}

/// A type, by the file that declares it.
struct Declaration<'f> {
    file: &'f TextFile,
    is_public: bool,
}

/// Returns `true` if a file belongs to a crate that other crates may use.
fn is_of_a_library(file: &TextFile) -> bool {
    ["crates/", "bindings/"].iter().any(|folder| file.path.starts_with(folder))
}

/// Parses a line of the list: a name, the number of its types, and the reason.
fn count(line: &str) -> Option<(&str, usize)> {
    let mut words = line.splitn(3, ' ');
    let (name, number, _reason) = (words.next()?, words.next()?, words.next()?);
    Some((name, number.parse().ok()?))
}

/// Returns `true` if a file is part of a library or a program, and not of its tests.
fn is_source(file: &TextFile) -> bool {
    let Some(path) = file.path.to_str().and_then(|path| path.strip_suffix(".rs")) else {
        return false;
    };
    path.split_once("/src/").is_some_and(|(_, inside)| {
        !inside.split('/').any(|name| name == "tests" || name.ends_with("_tests"))
    })
}

/// The types that a file declares outside of tests; `true` marks public types.
#[derive(Default)]
struct TypeNames(Vec<(String, bool)>);

impl<'s> Visit<'s> for TypeNames {
    fn visit_item(&mut self, item: &'s Item) {
        let (attributes, name): (&[Attribute], Option<(&Ident, &Visibility)>) = match item {
            Item::Struct(item) => (&item.attrs, Some((&item.ident, &item.vis))),
            Item::Enum(item) => (&item.attrs, Some((&item.ident, &item.vis))),
            Item::Union(item) => (&item.attrs, Some((&item.ident, &item.vis))),
            Item::Trait(item) => (&item.attrs, Some((&item.ident, &item.vis))),
            Item::Type(item) => (&item.attrs, Some((&item.ident, &item.vis))),
            Item::Mod(item) => (&item.attrs, None),
            Item::Fn(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        if !attributes.iter().any(is_test) {
            let is_result = matches!(item, Item::Type(item) if item.ident == "Result");
            self.0.extend(name.map(|(name, visibility)| {
                let is_public = matches!(visibility, Visibility::Public(_)) && !is_result;
                (name.to_string(), is_public)
            }));
            visit::visit_item(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)], shared: &str, public_shared: &[&str]) -> Vec<String> {
        let found = complaints(&TextFile::all_made_up(files), shared, public_shared);
        found.into_iter().map(|complaint| complaint.text).collect()
    }

    #[test]
    fn shared_names_of_sources_agree_with_list() {
        let files = [
            ("crates/a/src/lib.rs", "pub struct Step; mod inner { enum Step {} }"),
            ("crates/b/src/lib.rs", "pub(crate) trait Step {}"),
        ];
        assert_eq!(texts(&files, "Step 3 why\n", &[]), [""; 0]);
        let more = "`Step` is the name of 3 types, at most 2";
        assert_eq!(texts(&files, "Step 2 why\n", &[]), [more]);
        assert_eq!(texts(&files[1..], "", &[]), [""; 0]);
        for stale in ["Step 2 why\n", "Desk 2 why\n"] {
            assert_eq!(texts(&files[1..], stale, &[]).len(), 1, "{stale}");
        }
        let text = "struct Step;\n#[cfg(test)]\nmod tests { struct Step; }\n\
                    impl Deref for Step { type Target = u8; }";
        let files = [("crates/a/src/lib.rs", text), ("crates/a/src/tests.rs", "struct Step;")];
        assert_eq!(texts(&files, "", &[]), [""; 0], "in tests, and associated");
    }

    #[test]
    fn shared_public_type_name_is_reported() {
        let files = [
            ("crates/a/src/lib.rs", "pub struct Step; pub type Result = u8; struct Board;"),
            ("crates/b/src/lib.rs", "pub trait Step {} pub type Result = u8; pub struct Board;"),
            ("xtask/src/main.rs", "pub struct Board;"),
        ];
        let listed = "Board 3 why\nResult 2 why\nStep 2 why\n";
        let complaint =
            "`Step` is also the name of a public type of crates/b/src/lib.rs: rename one";
        assert_eq!(texts(&files, listed, &[]), [complaint]);
        assert_eq!(texts(&files, listed, &["Step"]), [""; 0]);
        assert_eq!(texts(&files, listed, &["Board", "Step"]).len(), 1, "a stale exemption");
    }
}
