//! Comparison of `docs/internals/lock-order.md` with the code.
//!
//! `WRITE_DOCS=1 cargo test -p tontine-unix-sim lock_order_page` writes the page.

use crate::lock_order_page;
use std::{env, fs};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/internals/lock-order.md");

#[test]
fn lock_order_page_matches_docs() {
    let page = lock_order_page();
    if env::var_os("WRITE_DOCS").is_some() {
        fs::write(PATH, &page).expect("docs/internals/lock-order.md can be written");
    }
    let there = fs::read_to_string(PATH).unwrap_or_default();
    assert!(
        page == there,
        "docs/internals/lock-order.md differs from the code: its first lines say how to write it"
    );
}
