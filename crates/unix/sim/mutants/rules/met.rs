//! Counts the rules that random scenarios meet, and the broken rules that they notice.
//!
//! ```console
//! $ rules count 100000 93000000    # each rule is met 1,000 times; from this seed on
//! $ rules break                    # nine of ten broken rules are noticed
//! ```
//!
//! Only `break` compares with Linux. The rules that a scenario meets depend only on the virtual
//! Unix.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tontine_unix_lab::check::{CheckOptions, Checker, Trace, TraceComparison, against, on_virtual};
use tontine_unix_lab::random::{Campaign, scenario};
use tontine_unix_sim::rule::Rule;
use tontine_unix_sim::{LockingMode, Virtual};

/// Minimum number of times that scenarios must meet each rule.
const WANTED: u64 = 1_000;
/// Number of seeds whose scenarios are available for broken rules.
const SEEDS: u64 = 1_500;
/// Number of seeds that are tried for each broken rule.
const TRIED: usize = 12;
/// Number of seeds that a thread takes at a time.
const IN_A_ROW: u64 = 100;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["count", scenarios, from] => scenarios
            .parse()
            .ok()
            .zip(from.parse().ok())
            .map(|(scenarios, from)| count(scenarios, from)),
        ["break"] => Some(break_each()),
        _ => None,
    };
    match done {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::from(1),
        None => {
            eprintln!("usage: rules count SCENARIOS FROM | break");
            ExitCode::from(2)
        }
    }
}

fn options(seed: u64, mode: LockingMode) -> CheckOptions {
    Campaign::options(seed, Virtual::builder().mode(mode))
}

/// Runs a seed's scenario on the virtual Unix.
fn meet(seed: u64, mode: LockingMode) {
    on_virtual(&scenario(seed), &options(seed, mode), 0).expect("the scenario can run");
}

/// Runs scenarios, cycling through all modes, and prints how often each rule was met, the rarest
/// first. Returns `true` if each rule was met often enough.
fn count(scenarios: u64, from: u64) -> bool {
    let next = AtomicU64::new(0);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(IN_A_ROW, Ordering::Relaxed);
                    if first >= scenarios {
                        break;
                    }
                    for nth in first..scenarios.min(first + IN_A_ROW) {
                        meet(from + nth, LockingMode::ALL[nth as usize % LockingMode::ALL.len()]);
                    }
                }
            });
        }
    });
    let mut rows: Vec<_> = Rule::ALL.iter().map(|rule| (rule.hits(), rule)).collect();
    rows.sort();
    for (hits, rule) in &rows {
        println!("{hits:>9}  {:<24}  {}", rule.name(), rule.says());
    }
    let met = rows.iter().filter(|(hits, _)| *hits >= WANTED).count();
    let all = rows.len();
    println!("{met} of {all} rules met at least {WANTED} times in {scenarios} scenarios");
    met == all
}

/// Returns, for each rule, up to [`TRIED`] seeds whose scenarios meet the rule.
fn seeds_by_rule() -> BTreeMap<Rule, Vec<u64>> {
    let mut seeds: BTreeMap<_, Vec<_>> = Rule::ALL.iter().map(|rule| (*rule, vec![])).collect();
    for seed in 0..SEEDS {
        let before = Rule::ALL.iter().map(|rule| rule.hits()).collect::<Vec<_>>();
        meet(seed, LockingMode::Parallel);
        for (rule, before) in Rule::ALL.iter().zip(before) {
            let of_it = seeds.get_mut(rule).expect("each has an entry");
            if rule.hits() > before && of_it.len() < TRIED {
                of_it.push(seed);
            }
        }
    }
    seeds
}

/// The traces of Linux, one run for each seed; `None` if the virtual Unix differs from Linux even
/// while it follows all rules.
struct Real {
    checker: Checker,
    made: BTreeMap<u64, Option<Trace>>,
}

impl Real {
    fn trace(&mut self, seed: u64) -> Option<&Trace> {
        let made = self.made.entry(seed).or_insert_with(|| {
            Rule::follow_all();
            let (scenario, options) = (scenario(seed), options(seed, LockingMode::Parallel));
            let real = self.checker.on_linux(&scenario, &options).ok()?;
            let same = matches!(against(&scenario, &options, &real), Ok(TraceComparison::Same(_)));
            same.then_some(real)
        });
        made.as_ref()
    }
}

/// Breaks one rule after another, and compares with Linux the scenarios that meet the rule. Returns
/// `true` if every rule is met and nine out of ten broken rules are detected.
fn break_each() -> bool {
    let checker = match Checker::new() {
        Ok(checker) => checker,
        Err(why) => {
            println!("cannot break rules: {why}");
            return false;
        }
    };
    let mut real = Real { checker, made: BTreeMap::new() };
    let (mut unmet, mut unnoticed) = (Vec::new(), Vec::new());
    for (rule, seeds) in seeds_by_rule() {
        if seeds.is_empty() {
            unmet.push(rule.name());
        }
        let notices = |seed: u64| {
            let Some(trace) = real.trace(seed) else { return false };
            rule.break_it();
            let found = against(&scenario(seed), &options(seed, LockingMode::Parallel), trace);
            matches!(found, Ok(TraceComparison::Differs(_)))
        };
        if !seeds.into_iter().any(notices) {
            unnoticed.push(rule.name());
        }
    }
    let all = Rule::ALL.len();
    println!("{} of {all} broken rules noticed by random scenarios", all - unnoticed.len());
    for (what, rules) in [("not noticed", &unnoticed), ("not met", &unmet)] {
        if !rules.is_empty() {
            println!("{what}: {}", rules.join(", "));
        }
    }
    unmet.is_empty() && unnoticed.len() * 10 <= all
}
