//! Lists of the assertions that test suites for POSIX and Linux make about the interfaces of
//! [`Sys`](tontine_unix::Sys), and the tests here that show them. The lists are in this folder, and
//! in `docs/evidence/conformance.md`. Assertions from the tests of other systems and of languages
//! are in `docs/evidence/conformance-further.md`.
//!
//! A list has one line per assertion, in our words, with one of three verdicts:
//!
//! ```text
//! <group>/<number> | assertion | holds <target>::<module>::<test>[, another]
//! <group>/<number> | assertion | holds examples::<folder>::<scenario>
//! <group>/<number> | assertion | n/a <key of a reason>
//! <group>/<number> | assertion | open <why>
//! ```
//!
//! The parser ignores blank lines and lines that begin with `#`. [`claim`] parses lines,
//! [`sources`] finds tests, [`page`] writes the pages, and [`suite`] counts verdicts.

mod claim;
mod page;
mod sources;
mod suite;

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use self::sources::Sources;
use self::suite::{Suite, Tally};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evidence");

/// Minimum percentage of applicable assertions that hold.
const MIN_HOLDS_PERCENT: usize = 95;
/// Maximum percentage of all assertions that do not apply.
const MAX_NOT_APPLICABLE_PERCENT: usize = 25;

/// Minimum number of assertions in the further sources.
const FURTHER: usize = 100;
/// Minimum number of applicable assertions in the further sources.
const FURTHER_THAT_APPLY: usize = 90;

#[test]
fn conformance_pages_match_lists() {
    for page in suite::PAGES {
        let (file, text) = (page.file, page::page(page.head, &suite::on(page)));
        let path = Path::new(DOCS).join(file);
        if env::var_os("WRITE_DOCS").is_some() {
            fs::write(&path, &text).unwrap_or_else(|error| panic!("docs/evidence/{file}: {error}"));
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == there,
            "docs/evidence/{file} differs from the lists: conformance.md tells how to update it"
        );
    }
}

#[test]
fn every_test_named_in_list_exists() {
    let sources = Sources::of_the_unix();
    let mut missing = Vec::new();
    for claim in suite::all().iter().flat_map(|suite| &suite.claims) {
        let absent = claim.tests().iter().filter_map(|test| sources.find(test).err());
        missing.extend(absent.map(|why| format!("{}: {why}", claim.place)));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_assertion_is_listed_once() {
    for suite in suite::all() {
        let mut seen = BTreeSet::new();
        for claim in &suite.claims {
            let new = seen.insert((&claim.group, &claim.name));
            assert!(new, "{}: {}/{} is listed twice", claim.place, claim.group, claim.name);
        }
    }
}

#[test]
fn most_applicable_assertions_hold_and_few_do_not_apply() {
    let suites = suite::on(&suite::FIRST);
    let proper = suites.iter().filter(|suite| suite.about.proper);
    let total: Tally = proper.map(Suite::tally).sum();
    assert!(total.holds * 100 >= MIN_HOLDS_PERCENT * total.applies(), "{total:?}");
    assert!(total.not_applicable * 100 <= MAX_NOT_APPLICABLE_PERCENT * total.all(), "{total:?}");
}

#[test]
fn most_applicable_assertions_of_further_sources_hold() {
    let total: Tally = suite::on(&suite::FURTHER).iter().map(Suite::tally).sum();
    assert!(total.all() >= FURTHER && total.applies() >= FURTHER_THAT_APPLY, "{total:?}");
    assert!(total.holds * 100 >= MIN_HOLDS_PERCENT * total.applies(), "{total:?}");
}

#[test]
fn open_posix_test_suite_is_listed_in_full() {
    let suites = suite::all();
    let open_posix = suites.iter().find(|suite| suite.about.file == "open_posix.txt");
    let open_posix = open_posix.expect("the list exists");
    let directories: BTreeSet<_> = open_posix.claims.iter().map(|claim| &claim.group).collect();
    assert_eq!((directories.len(), open_posix.claims.len()), (27, 247));
}
