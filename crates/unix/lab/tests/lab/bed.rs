//! Tests of the example `bed`. Each of its races, which come from public reports, occurs in the
//! faulty version under a schedule that reproduces it, and under no schedule in the corrected
//! version.

#[path = "../../examples/bed/races/mod.rs"]
mod races;

use races::RACES;
use tontine_unix_lab::explore::Exploration;
use tontine_unix_sim::LockingMode;

use crate::keeper;

/// Maximum number of schedules until a mistake is found, in any mode, as docs/guides/bed.md states.
const MAX_SCHEDULES: u64 = 38;

/// Preemption bound for the corrected versions.
const BOUND: u32 = if cfg!(debug_assertions) { 1 } else { races::BOUND };

#[test]
fn every_mistake_is_found_and_reproduced() {
    for (race, mode) in in_all_modes() {
        let exploration = Exploration::new(|| race.wrong).mode(mode).preemption_bound(1);
        let outcome = exploration.run();
        let what = format!("{}, {mode}", race.name);
        let found = outcome.violation.unwrap_or_else(|| panic!("{what}: nothing was found"));
        println!("{what}: {:?} runs: {}: {}", outcome.by_bound, found.schedule, found.what);
        assert!(outcome.schedules <= MAX_SCHEDULES, "{what}: {}", outcome.schedules);
        let schedule = found.schedule.to_string().parse().expect("a printed schedule");
        let again = exploration.replay(&schedule);
        assert_eq!((again.violation, again.interleaving), (Some(found.what), found.interleaving));
    }
}

fn in_all_modes() -> impl Iterator<Item = (&'static races::Race, LockingMode)> {
    RACES.iter().flat_map(|race| LockingMode::ALL.map(|mode| (race, mode)))
}

#[test]
fn corrected_program_holds_under_every_schedule() {
    for (race, mode) in in_all_modes() {
        let outcome = Exploration::new(|| race.right).mode(mode).preemption_bound(BOUND).run();
        println!("{}, {mode}: {:?} runs", race.name, outcome.by_bound);
        assert_eq!(outcome.violation, None, "{}, {mode}", race.name);
        assert!(outcome.complete, "{}, {mode}: {:?}", race.name, outcome.by_bound);
    }
}

#[test]
fn corrected_program_holds_on_linux() {
    for race in &RACES {
        for _ in 0..20 {
            assert_eq!(keeper::keep(race.right), Some(0), "{}", race.name);
        }
    }
}

/// Each race has the same name, project and text in the example and on the page.
#[test]
fn every_race_has_row_on_page() {
    let page = include_str!("../../../../../docs/guides/bed.md");
    for race in &RACES {
        let races::Race { name, project, report, what, .. } = race;
        let row = format!("| `{name}` | [{project}]({report}) | {what} |");
        assert_eq!(page.matches(&row).count(), 1, "{row}");
        assert!(races::find(name).is_some_and(|found| found.report == *report), "{name}");
    }
}
