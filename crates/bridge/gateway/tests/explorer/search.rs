//! The search through all states of a world: [`explore`].

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use super::setting::{Setting, digest};
use super::world::{Action, World};

/// A number of states, and the first violation with the actions that lead to it.
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) found: Option<(&'static str, Vec<Action>)>,
}

/// Maximum number of steps in which a lane settles once all faults have stopped.
pub(crate) const MAX_STEPS: usize = 200;

/// Maximum number of times that a gateway greets. With three faults, a correct one needs far fewer.
const MAX_ATTEMPTS: u32 = 20;

/// A set of hashes, which need no further hash.
type Digests = HashSet<u64, BuildHasherDefault<Unchanged>>;

#[derive(Default)]
struct Unchanged(u64);

impl Hasher for Unchanged {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Visits each state once, depth first, until a property is violated.
pub(crate) fn explore(setting: &Rc<Setting>, faults: u8) -> Explored {
    let (mut seen, mut healed) = (Digests::default(), Digests::default());
    let start = World::new(setting, faults);
    seen.insert(digest(&start));
    let mut stack = vec![(start, None, 0)];
    // The actions that lead to the state; an entry of the stack continues a prefix.
    let mut path = Vec::new();
    let mut actions = Vec::new();
    while let Some((world, last, depth)) = stack.pop() {
        path.truncate(depth);
        path.extend(last);
        let violation = world.check().or_else(|| greets_endlessly(&world));
        if let Some(violation) = violation.or_else(|| settles(&world, &mut healed)) {
            return Explored { states: seen.len(), found: Some((violation, path)) };
        }
        world.actions(&mut actions);
        for &action in &actions {
            let mut next = world.clone();
            next.apply(action);
            if seen.insert(digest(&next)) {
                stack.push((next, Some(action), path.len()));
            }
        }
    }
    Explored { states: seen.len(), found: None }
}

fn greets_endlessly(world: &World) -> Option<&'static str> {
    let attempt = world.a.as_ref().map_or(0, |lane| lane.hello().attempt);
    (attempt > MAX_ATTEMPTS).then_some("the gateways greet each other without end")
}

/// Lets all faults stop, and returns the property that is violated before the lane has settled.
fn settles(world: &World, healed: &mut Digests) -> Option<&'static str> {
    let mut steps = Vec::new();
    let mut world = world.clone();
    world.faults = 0;
    loop {
        let key = digest(&world);
        if healed.contains(&key) {
            break;
        }
        steps.push(key);
        let Some(action) = world.healing_step() else { break };
        if steps.len() > MAX_STEPS {
            return Some("the lane does not settle after all faults have stopped");
        }
        world.apply(action);
        if let Some(violation) = world.check() {
            return Some(violation);
        }
    }
    healed.extend(steps);
    None
}
