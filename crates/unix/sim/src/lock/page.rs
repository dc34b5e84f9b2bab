//! The lock order as a Markdown page: [`lock_order_page`], printed to
//! `docs/internals/lock-order.md`.

use super::lock_order::{LockKind, ORDER, OrderRow};
use crate::LockingMode;
use crate::held::InterruptLevel;
use std::fmt::Write as _;

const HEAD: &str = "\
# Lock order

Generated from `crates/unix/sim/src/lock/lock_order.rs`, which defines the order; a test compares
the two, and `WRITE_DOCS=1 cargo test -p tontine-unix-sim lock_order_page` writes this page.

A lock may be taken while locks above it are held, but not while locks below it are held. In
general, blocking locks come before simple locks and, within each kind, global locks come before
local locks. The locks at the bottom are held so briefly that they may be taken anywhere. The
numbers in the second column are those of table 3 of the paper. If two locks of one class are taken
together, the lock with the smaller instance (slot number) is taken first.

- *blocking*: many readers or one writer hold the lock; a waiting thread tries for a short while,
  then sleeps.
- *simple*: a waiting thread spins, and the lock is never held across a sleep.
- *high* spl: the lock is taken with ticks deferred, because a tick takes it. A tick takes no other
  lock.

";

const CHECKS: &str = "
## Checks at compile time and at run time

- *at compile time*: a lock that is taken through a guard (`then_lock`, `then_read`, `then_write`)
  belongs to a class after the guard's. Only a few nestings of the kernel are written like this: the
  table of groups with a group, a group with a member, a group with its references. All other
  acquisitions do not name the locks that are held; many are in functions that are called with
  locks held, and the compiler cannot check them.
- *at run time, with debug assertions*: each acquisition is compared, before it waits, with all
  locks that its fiber holds, by class and by instance. A lock that a tick takes must always be
  taken at high spl, a tick must take no other lock, and no fiber may sleep while it holds a simple
  lock. Tests run in such builds, and check the nestings that they reach.
- *at run time, in every build*: a lock that the mode omits must have only one holder. A build
  without debug assertions checks nothing else.

[Decision 10](../decisions/0010-lock-order.md) gives the reasons.
";

const MODES: &str = "
## Locks of each mode

A lock that is *absent* is not needed in that mode, because no two threads can reach it at once; its
data exist, and a second holder is an error.

- *uniprocessor*: the kernel switches threads only where a thread sleeps, so every lock that is
  neither held across a sleep nor taken by a tick is absent.
- *master*: processor 0 runs all code that would take the absent locks. As in OSF/1.0, exec runs on
  every processor, and takes `p_siglock` and `p_lock`; so do the terminal code and the clock.
- *parallel*: the locks of tables 1 and 3 of the paper. Section 9 suggests a lock around the
  reference count of a process; in every mode, the count is an atomic word instead. [Decision
  26](../decisions/0026-three-modes.md) says why the other locks that section 9 suggests are absent.

";

/// Returns the lock order of the virtual Unix and the locks of each mode, as a Markdown page.
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
        let standings = LockingMode::ALL
            .map(|mode| if row.exists_in(mode) { "yes" } else { "absent" })
            .join(" | ");
        page.push_str(&format!("| `{}` | {standings} |\n", row.name));
    }
    page.push_str("\n## Reasons for the position of each lock\n\n");
    for row in &ORDER {
        page.push_str(&format!("- `{}`: {}\n", row.name, row.edge));
    }
    page
}

fn kind(row: &OrderRow) -> &'static str {
    match row.kind {
        LockKind::Blocking => "blocking",
        LockKind::Simple => "simple",
    }
}

fn spl(row: &OrderRow) -> &'static str {
    match row.spl {
        InterruptLevel::Base => "base",
        InterruptLevel::High => "high",
    }
}
