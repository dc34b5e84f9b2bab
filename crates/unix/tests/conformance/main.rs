//! What test suites for POSIX and Linux ask of the interfaces that [`Sys`](tontine_unix::Sys) has,
//! and which tests here show it: the lists beside this file, and `docs/conformance.md`.
//!
//! A list has a line for each assertion, in our words, and one of three verdicts:
//!
//! ```text
//! <group>/<number> | what it asks | holds <target>::<module>::<test>[, another]
//! <group>/<number> | what it asks | n/a <key of a reason>
//! <group>/<number> | what it asks | open <why>
//! ```
//!
//! Blank lines and lines that begin with `#` are for readers of the list. [`claim`] reads lines,
//! [`sources`] looks tests up, [`page`] writes what [`suite`] counts.

mod claim;
mod page;
mod sources;
mod suite;

use std::collections::BTreeSet;
use std::{env, fs};

use sources::Sources;
use suite::{Suite, Tally};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md");

/// Percent of what applies that holds, at least.
const MOST: usize = 95;
/// Percent of everything that does not apply, at most.
const FEW: usize = 25;

#[test]
fn conformance_page_says_what_the_lists_say() {
    let page = page::page(&suite::all());
    if env::var_os("WRITE_DOCS").is_some() {
        fs::write(PAGE, &page).expect("docs/conformance.md can be written");
    }
    let there = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        page == there,
        "docs/conformance.md is not what the lists say: its head says who writes it"
    );
}

#[test]
fn every_test_that_a_list_names_is_there() {
    let sources = Sources::of_this_crate();
    let mut missing = Vec::new();
    for claim in suite::all().iter().flat_map(|suite| &suite.claims) {
        let absent = claim.tests().iter().filter_map(|test| sources.find(test).err());
        missing.extend(absent.map(|why| format!("{}: {why}", claim.place)));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn an_assertion_is_listed_once() {
    for suite in suite::all() {
        let mut seen = BTreeSet::new();
        for claim in &suite.claims {
            let new = seen.insert((&claim.group, &claim.name));
            assert!(new, "{}: {}/{} is listed already", claim.place, claim.group, claim.name);
        }
    }
}

#[test]
fn of_these_interfaces_nearly_all_that_applies_holds_and_little_does_not_apply() {
    let suites = suite::all();
    let proper = suites.iter().filter(|suite| suite.about.proper);
    let total: Tally = proper.map(Suite::tally).sum();
    assert!(total.holds * 100 >= MOST * total.applies(), "{total:?}");
    assert!(total.not_applicable * 100 <= FEW * total.all(), "{total:?}");
}

#[test]
fn the_open_posix_test_suite_is_listed_in_full() {
    let suites = suite::all();
    let open_posix = suites.iter().find(|suite| suite.about.file == "open_posix.txt");
    let open_posix = open_posix.expect("the list is there");
    let directories: BTreeSet<_> = open_posix.claims.iter().map(|claim| &claim.group).collect();
    assert_eq!((directories.len(), open_posix.claims.len()), (27, 247));
}
