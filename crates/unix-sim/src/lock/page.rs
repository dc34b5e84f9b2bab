//! The lock order as a page to read: [`lock_order_page`], which `docs/lock-order.md` is.

use super::lock_order::{Kind, ORDER, Row, Standing};
use crate::LockingMode;
use crate::held::Level;
use std::fmt::Write as _;

const HEAD: &str = "\
# Lock order

Printed from `crates/unix-sim/src/lock/lock_order.rs`, which states it; a test compares the two, and
`WRITE_DOCS=1 cargo test -p tontine-unix-sim lock_order_page` writes this page.

A lock may be taken while any of those above it are held, and none below. In general blocking locks
come before simple ones and, subject to this, global ones before local ones; the locks at the bottom
are so short that they may be taken anywhere. The numbers in the second column are those of table 3
of the paper. Two locks of one line are taken together, the smaller instance (slot number) first.

- *blocking*: many readers or one writer; who waits tries for a short while and then sleeps.
- *simple*: who waits spins. Never held across a sleep.
- *high* spl: taken with ticks held back, because a tick takes it. No other lock is taken by a tick.

";

const CHECKS: &str = "
## What is checked, and when

- *when it is compiled*: a lock that is taken by way of a guard (`then_lock`, `then_read`,
  `then_write`) belongs to a class behind the guard's. Only few nestings of the kernel are written
  so: the table of groups with a group, a group with a member, a group with its references. All
  others are taken without a word on what is held, many in functions that are called with locks
  held, and the compiler does not see them.
- *when it runs, with debug assertions*: each acquisition, before it waits, against all that its
  fiber holds, by class and by instance; that what a tick takes is always taken at high spl, and
  that a tick takes nothing else; that nobody sleeps who holds a simple lock. Tests run in such
  builds, and see the nestings that they come to.
- *when it runs, in any build*: that a mode has the class at all, and that what it leaves out has
  one holder. In a build without debug assertions nothing else is checked.

[Decision 10](decisions/0010-lock-order.md) says why.
";

const MODES: &str = "
## Which mode has which

A lock that is *absent* is not needed in that mode, since no two can come to it at once; its data
are there, and a second holder is an error. One that is *replaced* must not be taken in that mode.

- *uniprocessor*: nothing switches inside of the kernel except where it sleeps, so what is neither
  held across a sleep nor taken by a tick is absent.
- *master*: processor 0 runs all that would take the absent ones. As in OSF/1.0 exec runs
  everywhere, and takes `p_siglock` and `p_lock`; so do the terminal code and the clock.
- *coarse*: `coarse_lock` is held around whatever touches relations, groups and their members, from
  fork to wait. What touches one process alone, a pipe or a terminal, comes without it.
- *parallel*: the paper's tables 1 and 3.
- *per-process*: what section 9 imagines: `p_family_lock` in the place of `proc_relation_lock`. Its
  other lock, around the count of references to a process, is an atomic word in every mode.

";

/// The lock order of the virtual Unix, and which mode has which lock, as a page of Markdown.
///
/// ```
/// assert!(tontine_unix_sim::lock_order_page().contains("| `p_lock` | simple | per process |"));
/// ```
#[must_use]
pub fn lock_order_page() -> String {
    let mut page = HEAD.to_owned();
    let mut table = |row: [&str; 7]| {
        let [rank, paper, name, kind, scope, spl, guards] = row;
        writeln!(page, "| {rank} | {paper} | {name} | {kind} | {scope} | {spl} | {guards} |")
            .expect("a string grows");
    };
    table(["rank", "paper", "lock", "type", "scope", "spl", "guards"]);
    table(["--:", "--:", "---", "---", "---", "---", "---"]);
    for (rank, row) in ORDER.iter().enumerate() {
        let paper = row.paper.map(|number| number.to_string()).unwrap_or_default();
        let (rank, name) = (rank.to_string(), format!("`{}`", row.name));
        table([&rank, &paper, &name, kind(row), row.scope, spl(row), row.guards]);
    }
    page.push_str(CHECKS);
    page.push_str(MODES);
    let modes = LockingMode::ALL.map(|mode| mode.to_string()).join(" | ");
    page.push_str(&format!(
        "| lock | {modes} |\n| --- |{}\n",
        " --- |".repeat(LockingMode::ALL.len())
    ));
    for row in &ORDER {
        let standings = LockingMode::ALL.map(|mode| standing(row, mode)).join(" | ");
        page.push_str(&format!("| `{}` | {standings} |\n", row.name));
    }
    page.push_str("\n## Why each stands below the one above it\n\n");
    for row in &ORDER {
        page.push_str(&format!("- `{}`: {}\n", row.name, row.edge));
    }
    page
}

fn kind(row: &Row) -> &'static str {
    match row.kind {
        Kind::Blocking => "blocking",
        Kind::Simple => "simple",
    }
}

fn spl(row: &Row) -> &'static str {
    match row.spl {
        Level::Base => "base",
        Level::High => "high",
    }
}

fn standing(row: &Row, mode: LockingMode) -> &'static str {
    match row.standing(mode) {
        Standing::Kept => "yes",
        Standing::Absent => "absent",
        Standing::Replaced => "replaced",
    }
}
