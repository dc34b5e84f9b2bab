//! Goes through all schedules, one after another: [`Path`].
//!
//! A run is a path through the tree of decisions. The next one repeats it up to its last decision
//! at which there is something left to try. That is depth first, and needs no state of the system.
//!
//! Of schedules that come to the same, because steps change places that have nothing in common,
//! one is enough: the first in the order in which they are tried. Three rules leave others out;
//! docs/explore.md says why none of them leaves out what needs as many preemptions or fewer.
//!
//! - *Asleep*: who was interrupted before a step goes on only when somebody has reached what that
//!   step reaches. Otherwise the step could have been made before the interruption.
//! - *Out of order*: a turn that could have been had earlier, by one that is tried before who had
//!   it then, and that has nothing in common with what lies between.
//! - *Nothing to come*: where the step (the turn) that was tried first has nothing in common with
//!   anything that others did after it in any run, nobody else need be tried there.

use smallvec::SmallVec;
use tontine_unix_sim::internal::{CLOCK, Footprint, SwitchEvent, SwitchReason};

use super::order::Order;

/// The tree, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Path {
    nodes: Vec<Node>,
    /// Preemptions that a schedule may have.
    bound: u32,
    /// Whether schedules that come to the same are left out.
    reduces: bool,
    run: Run,
}

/// A decision at which several may go on.
#[derive(Debug)]
struct Node {
    /// Its number among the decisions of the run.
    decision: u32,
    /// In the order in which they are tried.
    ready: Vec<u32>,
    /// Whether the first of them is who ran and can go on.
    goes_on: bool,
    /// Who of them is not tried, by place.
    asleep: Places,
    /// Who was tried first, and who is now, by place.
    first: usize,
    now: usize,
    /// What that first one reached: with its next step if it went on, else in its whole turn.
    reached: Footprint,
    /// What was reached after this in all runs, by fiber.
    after: Reached,
}

/// What fibers reached.
#[derive(Debug, Clone, Default)]
struct Reached(Vec<Footprint>);

/// Fibers that are told apart; those above are one.
const TOLD_APART: u32 = 24;

/// A set of places among those that are ready, however many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Places(SmallVec<[u64; 1]>);

impl Places {
    fn add(&mut self, place: usize) {
        let word = place / u64::BITS as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (place % u64::BITS as usize);
    }

    fn has(&self, place: usize) -> bool {
        let word = self.0.get(place / u64::BITS as usize).copied().unwrap_or(0);
        word >> (place % u64::BITS as usize) & 1 != 0
    }
}

impl Reached {
    fn place(fiber: u32) -> usize {
        if fiber < TOLD_APART { fiber as usize } else { 0 }
    }

    fn add(&mut self, fiber: u32, touched: Footprint) {
        let place = Self::place(fiber);
        if self.0.len() <= place {
            self.0.resize(place + 1, Footprint::NOTHING);
        }
        self.0[place] = self.0[place].and(touched);
    }

    fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Footprint::NOTHING);
        }
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.and(*others);
        }
    }

    /// By everybody but this one.
    fn by_others(&self, fiber: u32) -> Footprint {
        let own = if fiber < TOLD_APART { fiber as usize } else { usize::MAX };
        let others = self.0.iter().enumerate().filter(|(place, _)| *place != own);
        others.fold(Footprint::NOTHING, |all, (_, touched)| all.and(*touched))
    }
}

/// What is known of the run under way.
#[derive(Debug, Default)]
struct Run {
    /// Nodes that were passed.
    passed: usize,
    /// Preemptions so far.
    spent: u32,
    /// It is not worth while any more: nothing is tried after this.
    is_over: bool,
    turns: Vec<Turn>,
    /// Whether whoever has the last turn still has it.
    in_turn: bool,
    /// Who was interrupted, and what its next step reaches.
    asleep: Vec<(u32, Footprint)>,
    /// The node whose first step, or first turn, is being made for the first time.
    step_of: Option<usize>,
    turn_of: Option<usize>,
}

/// What a fiber does without another one in between.
#[derive(Debug)]
struct Turn {
    fiber: u32,
    touched: Footprint,
    /// Who would have been tried before it.
    before: Vec<u32>,
}

impl Path {
    /// From the beginning, with at most so many preemptions.
    pub(super) fn begin(&mut self, bound: u32, reduces: bool) {
        self.nodes.clear();
        (self.bound, self.reduces) = (bound, reduces);
        self.begin_run();
    }

    fn begin_run(&mut self) {
        let run = &mut self.run;
        (run.passed, run.spent, run.is_over, run.in_turn) = (0, 0, false, false);
        run.turns.clear();
        run.asleep.clear();
        (run.step_of, run.turn_of) = (None, None);
    }

    /// Preemptions of the run under way.
    pub(super) fn spent(&self) -> u32 {
        self.run.spent
    }

    /// Whether the run under way comes to the same as another one.
    pub(super) fn is_over(&self) -> bool {
        self.run.is_over
    }

    /// Goes on to the next schedule; false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        self.begin_run();
        while let Some(node) = self.nodes.last_mut() {
            let fiber = node.ready[node.first];
            let is_all = node.now == node.first
                && self.reduces
                && !node.reached.conflicts(node.after.by_others(fiber));
            // The clock is always tried: the first choice may cancel the timer.
            let is_left = |at: &usize| !is_all || node.ready[*at] == CLOCK;
            let awake = (node.now + 1..node.ready.len()).filter(|at| !node.asleep.has(*at));
            if let Some(next) = awake.into_iter().find(is_left) {
                node.now = next;
                return true;
            }
            let done = self.nodes.pop().expect("it is the last one");
            if let Some(above) = self.nodes.last_mut() {
                above.after.add_all(&done.after);
            }
        }
        false
    }

    /// Who goes on, of those that are ready.
    pub(super) fn choose(&mut self, order: &Order, decision: u32) -> u32 {
        let Self { nodes, bound, reduces, run } = self;
        run.pass(nodes, decision);
        let (ready, goes_on) = (&order.ready[..], order.goes_on);
        // The clock is a preemption: it takes the processor from all runnable fibers.
        let is_spent = run.spent == *bound;
        let clocks = usize::from(is_spent && ready.last() == Some(&CLOCK));
        let ready = &ready[..ready.len() - clocks];
        if !goes_on && *reduces && run.in_turn {
            run.end_turn();
        }
        let fiber = if run.is_over || (goes_on && is_spent) {
            ready[0]
        } else {
            run.try_one(nodes, decision, ready, goes_on)
        };
        let interrupts = fiber == CLOCK || (goes_on && fiber != ready[0]);
        if interrupts {
            run.spent += 1;
            // A turn that the clock cuts short does not end here for the reduction: moved to an
            // earlier place, it would have to be cut short there by one more preemption.
            if *reduces && fiber != CLOCK {
                run.end_turn();
            }
        }
        if interrupts || !goes_on {
            let place = ready.iter().position(|one| *one == fiber).unwrap_or(0);
            let before = ready[..place].to_vec();
            run.turns.push(Turn { fiber, touched: Footprint::NOTHING, before });
            run.in_turn = true;
        }
        fiber
    }

    /// Whether whoever can go on does, without a look at the others.
    #[inline]
    pub(super) fn leaves_alone(&self) -> bool {
        self.run.is_over || self.run.spent == self.bound
    }

    /// The next decision at which who runs is not simply the one that goes on. Up to there nothing
    /// need be known of each step alone: what it conflicts with, they conflict with together.
    pub(super) fn next_decision(&self) -> u32 {
        if self.leaves_alone() {
            return u32::MAX;
        }
        let ahead = &self.nodes[self.run.passed..];
        let next = ahead.iter().find(|node| !node.goes_on || node.now != node.first);
        next.map_or(0, |node| node.decision)
    }

    /// A fiber has made a step.
    pub(super) fn left(&mut self, left: &SwitchEvent, gives_way: bool) {
        let Self { nodes, run, .. } = self;
        let is_last = left.leave != SwitchReason::Point || gives_way;
        // Who yields depends on whether there is somebody else.
        let touched = if gives_way { Footprint::EVERYTHING } else { left.touched };
        if !run.in_turn || run.turns.last().is_none_or(|turn| turn.fiber != left.fiber) {
            let turn = Turn { fiber: left.fiber, touched: Footprint::NOTHING, before: Vec::new() };
            run.turns.push(turn);
            run.in_turn = true;
        }
        if let Some(turn) = run.turns.last_mut() {
            turn.touched = turn.touched.and(touched);
        }
        run.asleep.retain(|(fiber, step)| *fiber != left.fiber && !step.conflicts(touched));
        if let Some(node) = run.step_of.take() {
            nodes[node].reached = touched;
        }
        if let Some(node) = run.turn_of {
            nodes[node].reached = nodes[node].reached.and(touched);
        }
        if let Some(node) = run.passed.checked_sub(1) {
            nodes[node].after.add(left.fiber, touched);
        }
        if is_last {
            run.turn_of = None;
        }
    }
}

impl Run {
    /// Passes the nodes before a decision: those at which whoever ran went on.
    fn pass(&mut self, nodes: &[Node], decision: u32) {
        while let Some(node) = nodes.get(self.passed).filter(|node| node.decision < decision) {
            debug_assert!(node.goes_on && node.now == node.first, "nothing was chosen there");
            self.passed += 1;
        }
    }

    /// Who is tried: as the path has it, or at its end the first.
    fn try_one(
        &mut self,
        nodes: &mut Vec<Node>,
        decision: u32,
        ready: &[u32],
        goes_on: bool,
    ) -> u32 {
        let sleeps = |fiber: &u32| self.asleep.iter().any(|(one, _)| one == fiber);
        let mut asleep = Places::default();
        ready.iter().enumerate().filter(|(_, one)| sleeps(one)).for_each(|(at, _)| asleep.add(at));
        let mut awake = (0..ready.len()).filter(|at| !asleep.has(*at));
        let (Some(first), several) = (awake.next(), awake.next().is_some()) else {
            self.is_over = true;
            return ready[0];
        };
        if !several {
            return ready[first];
        }
        let at = self.passed;
        self.passed += 1;
        if at == nodes.len() {
            let step = if goes_on { &mut self.step_of } else { &mut self.turn_of };
            *step = Some(at);
            nodes.push(Node {
                decision,
                ready: ready.to_vec(),
                goes_on,
                asleep,
                first,
                now: first,
                reached: Footprint::NOTHING,
                after: Reached::default(),
            });
            return ready[first];
        }
        let node = &nodes[at];
        debug_assert!(node.decision == decision, "a run repeats another one");
        debug_assert!(node.ready == ready && node.goes_on == goes_on, "and is asked the same");
        if goes_on && node.now != node.first {
            self.asleep.push((ready[0], node.reached));
        }
        ready[node.now]
    }

    /// The turn has ended: the run is over if it could have been had earlier.
    fn end_turn(&mut self) {
        self.in_turn = false;
        let Some((turn, earlier)) = self.turns.split_last() else { return };
        for before in earlier.iter().rev() {
            if before.fiber == turn.fiber || before.touched.conflicts(turn.touched) {
                return;
            }
            if before.before.contains(&turn.fiber) {
                self.is_over = true;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_unix_sim::internal::At;

    /// Beyond the sixty-fourth of those that could go on nobody was tried, and all schedules were
    /// said to have been seen.
    #[test]
    fn each_of_many_is_tried() {
        let many = 150;
        let mut path = Path::default();
        path.begin(0, true);
        let runnable: Vec<u32> = (1..=many).collect();
        let mut order = Order::default();
        let mut tried = Vec::new();
        loop {
            order.decide(&runnable, None);
            let fiber = path.choose(&order, 1);
            tried.push(fiber);
            for fiber in std::iter::once(fiber).chain(runnable.iter().copied()) {
                let (touched, leave) = (Footprint::EVERYTHING, SwitchReason::End);
                let left =
                    SwitchEvent { fiber, context: 0, name: 0, leave, at: At::Within, touched };
                path.left(&left, false);
            }
            if !path.advance() {
                break;
            }
        }
        tried.sort_unstable();
        assert_eq!(tried, runnable);
    }

    #[test]
    fn a_set_of_places_has_what_was_added() {
        let mut places = Places::default();
        for place in [0, 63, 64, 200] {
            assert!(!places.has(place));
            places.add(place);
            assert!(places.has(place));
        }
        assert!(![1, 62, 65, 199, 201, 1000].iter().any(|place| places.has(*place)));
    }
}
