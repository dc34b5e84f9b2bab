//! Seeded random runs: longer lanes, long messages, many faults. A run that violates a property
//! panics with its seed; `REMOTE_SEED=N` repeats it, and `REMOTE_RUNS=N` sets the number of runs.

use std::ops::Range;
use std::rc::Rc;
use std::thread;

use tontine_gateway::frame::{HEADER, MAX_FRAME};

use super::setting::{Setting, messages};
use super::world::{Action, World};

const RUNS: u64 = 400;
/// Maximum number of steps in which a lane settles once all faults have stopped, for each message
/// and for each frame that its bytes fill.
const MAX_STEPS_EACH: usize = 200;

/// The generator SplitMix64.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns `true` once in `interval` calls, on average.
    fn once_in(&mut self, interval: usize) -> bool {
        self.below(interval) == 0
    }
}

fn random_setting(random: &mut SplitMix) -> Setting {
    let count = random.pick(&[3, 10, 40, 200]);
    let max_length = if count > 40 { 3_000 } else { random.pick(&[0, 9, 500, 300_000]) };
    let max_gap = random.pick(&[0, 8, 4_096]);
    let shape: Vec<(u64, usize)> = (0..count)
        .map(|_| {
            let gap = if random.once_in(3) { random.below(max_gap + 1) / 8 * 8 } else { 0 };
            let length = if random.once_in(3) { 24 } else { max_length };
            (gap as u64, random.below(length.min(max_length) + 1))
        })
        .collect();
    // The space holds the gap before a message and the message.
    let min = max_gap + 8 + max_length.next_multiple_of(8);
    let grant = (min * random.pick(&[1, 2, 10])) as u64;
    let small = HEADER + random.pick(&[16, 24, 1_000]);
    Setting {
        waits: random.once_in(2),
        grant,
        capacity: random.pick(&[1, 2, 8, usize::MAX]),
        max_frames: random.pick(&[2, 4, 16, 64]),
        // Small frames suit short messages.
        max_frame: if max_length > 500 || random.once_in(2) { MAX_FRAME } else { small },
        publishes: random.once_in(2),
        sees_at_once: random.once_in(2),
        max_owners: 200,
        messages: messages(shape),
        ..Setting::new("random")
    }
}

/// Relative frequencies of a run's actions: one in N.
struct Rates {
    fault: usize,
    read: usize,
    publish: usize,
    restart: usize,
    ends: usize,
    loses_only: bool,
}

impl Rates {
    fn random(random: &mut SplitMix) -> Self {
        Self {
            fault: random.pick(&[3, 10, 50, 300]),
            read: random.pick(&[1, 4, 40]),
            publish: random.pick(&[1, 4, 20]),
            restart: random.pick(&[1, 5, 50]),
            ends: random.pick(&[200, 2_000, usize::MAX]),
            // Without kills, each message must be received exactly once.
            loses_only: random.once_in(2),
        }
    }

    /// Returns `true` if the run refuses the action this time.
    fn refuses(&self, random: &mut SplitMix, action: Action) -> bool {
        let interval = match action {
            Action::Take(_) | Action::Acknowledge(_) | Action::Inspect => self.read,
            Action::Publish => self.publish,
            Action::Restart(_) | Action::Heal | Action::Mend => self.restart,
            Action::SenderEnds => self.ends,
            Action::GiveUp => 50,
            Action::OwnerCloses | Action::Kill(_) if self.loses_only => return true,
            Action::OwnerCloses | Action::Kill(_) | Action::Cut => 4,
            _ => 1,
        };
        !random.once_in(interval)
    }
}

/// Runs one seed, and returns the number of its steps.
fn run(seed: u64) -> usize {
    let mut random = SplitMix(seed);
    let setting = Rc::new(random_setting(&mut random));
    let rates = Rates::random(&mut random);
    let count = setting.messages.len();
    let mut world = World::new(&setting, 0);
    let mut actions = Vec::new();
    let mut steps = 0;
    let limit = 20 * count + random.below(40 * count);
    while steps < limit {
        steps += 1;
        world.faults = u8::from(random.once_in(rates.fault));
        world.actions(&mut actions);
        actions.retain(|action| !rates.refuses(&mut random, *action));
        if actions.is_empty() {
            continue;
        }
        world.apply(random.pick(&actions));
        if let Some(violation) = world.check() {
            panic!("seed {seed}, step {steps}: {violation}");
        }
    }
    world.faults = 0;
    let frames = setting.end_of(count as u16) as usize / (setting.max_frame - HEADER);
    let max = MAX_STEPS_EACH * (count + frames + 1);
    for _ in 0..max {
        let Some(action) = world.healing_step() else { return steps };
        steps += 1;
        world.apply(action);
        if let Some(violation) = world.check() {
            panic!("seed {seed}, step {steps}, after all faults: {violation}");
        }
    }
    let (a, b) = (&world.a, &world.b);
    panic!("seed {seed}: the lane does not settle after all faults have stopped: {a:?}, {b:?}");
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}: expected a number, found {value}")))
}

fn run_seeds(first: u64, runs: u64) {
    let steps = |seeds: Range<u64>| -> usize { seeds.map(run).sum() };
    let (middle, end) = (first + runs / 2, first + runs);
    let steps: usize = thread::scope(|scope| {
        let threads = [first..middle, middle..end].map(|seeds| scope.spawn(|| steps(seeds)));
        threads.map(|thread| thread.join().expect("no violation")).iter().sum()
    });
    println!("{runs} random runs from seed {first}: {steps} steps");
}

#[test]
fn random_faults_break_no_promise() {
    match number("REMOTE_SEED") {
        Some(seed) => run_seeds(seed, 1),
        None => run_seeds(1, number("REMOTE_RUNS").unwrap_or(RUNS)),
    }
}

#[test]
#[ignore = "takes long: minutes"]
fn many_random_faults_break_no_promise() {
    run_seeds(1_000_000, 40 * RUNS);
}
