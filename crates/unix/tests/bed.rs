//! The example `bed`: each race that it has from a public report shows with the mistake, at a
//! schedule that shows it again, and never without.

#[path = "../examples/bed/races/mod.rs"]
mod races;
#[path = "../examples/bed/schedules.rs"]
mod schedules;

mod keeper;

use races::RACES;

/// Seeds that are tried for each.
const SEEDS: u64 = if cfg!(debug_assertions) { 300 } else { 3_000 };

#[test]
fn each_mistake_shows_and_shows_again() {
    for race in &RACES {
        let found = schedules::find(race.wrong, SEEDS);
        let found = found.unwrap_or_else(|| panic!("{}: nothing was seen", race.name));
        println!("{}: seed {}: {}", race.name, found.seed, found.seen);
        assert_eq!(schedules::replay(race.wrong, found.seed), Some(found), "{}", race.name);
    }
}

#[test]
fn what_keeps_it_right_keeps_it_right() {
    for race in &RACES {
        assert_eq!(schedules::find(race.right, SEEDS), None, "{}", race.name);
    }
}

#[test]
fn what_is_right_is_right_on_linux_too() {
    for race in &RACES {
        for _ in 0..20 {
            assert_eq!(keeper::keep(race.right), Some(0), "{}", race.name);
        }
    }
}

/// The page names each as the example does.
#[test]
fn each_has_a_row_on_the_page() {
    let page = include_str!("../../../docs/bed.md");
    for race in &RACES {
        let races::Race { name, project, report, what, .. } = race;
        let row = format!("| `{name}` | [{project}]({report}) | {what} |");
        assert_eq!(page.matches(&row).count(), 1, "{row}");
        assert!(races::find(name).is_some_and(|found| found.report == *report), "{name}");
    }
}
