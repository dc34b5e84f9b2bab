//! The example `bed`: each race that it has from a public report shows with the mistake, at a
//! schedule that shows it again, and at no schedule without.

#[path = "../../examples/bed/races/mod.rs"]
mod races;

use races::RACES;
use tontine_unix_lab::explore::Exploration;

use crate::keeper;

/// Preemptions: within one, each mistake shows.
const BOUND: u32 = if cfg!(debug_assertions) { 1 } else { races::BOUND };

#[test]
fn each_mistake_shows_and_shows_again() {
    for race in &RACES {
        let exploration = Exploration::new(|| race.wrong).bound(BOUND);
        let outcome = exploration.run();
        let found = outcome.violation.unwrap_or_else(|| panic!("{}: nothing was seen", race.name));
        println!("{}: {:?} runs: {}: {}", race.name, outcome.by_bound, found.schedule, found.what);
        let schedule = found.schedule.to_string().parse().expect("it was printed");
        let again = exploration.replay(&schedule).expect("it is wrong again");
        assert_eq!((again.what, again.interleaving), (found.what, found.interleaving));
    }
}

#[test]
fn what_keeps_it_right_keeps_it_right_at_every_schedule() {
    for race in &RACES {
        let outcome = Exploration::new(|| race.right).bound(BOUND).run();
        println!("{}: {:?} runs", race.name, outcome.by_bound);
        assert_eq!(outcome.violation, None, "{}", race.name);
        assert!(outcome.complete, "{}: {:?}", race.name, outcome.by_bound);
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
    let page = include_str!("../../../../docs/bed.md");
    for race in &RACES {
        let races::Race { name, project, report, what, .. } = race;
        let row = format!("| `{name}` | [{project}]({report}) | {what} |");
        assert_eq!(page.matches(&row).count(), 1, "{row}");
        assert!(races::find(name).is_some_and(|found| found.report == *report), "{name}");
    }
}
