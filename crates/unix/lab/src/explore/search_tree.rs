//! The depth-first search through all schedules: [`SearchTree`].
//!
//! A run is a path through the tree of decisions. The next run repeats the path up to its last
//! decision with an untried choice, so no state of the system need be saved.
//!
//! Two schedules are equivalent if they differ only in the order of steps whose footprints do not
//! conflict. It suffices to run one schedule per equivalence class, the first in the order of the
//! search. Three rules prune the others; docs/reference/explore.md explains why the schedule that
//! remains never needs more preemptions.
//!
//! - *Sleep set*: a fiber that was interrupted before a step continues only after another fiber has
//!   made a step that conflicts with it. Otherwise the step could have been made before the
//!   interruption.
//! - *Out of order*: a run is over if a turn could have come earlier, because it conflicts with no
//!   turn in between and its fiber is tried before the fiber that ran then.
//! - *No conflict ahead*: if the step (or turn) of the first choice conflicts with no step that
//!   other fibers made after it in any run, no other choice is tried at that decision.

use smallvec::SmallVec;
use tontine_unix_sim::internal::{CLOCK, Footprint, SwitchEvent, SwitchReason};

use super::order::ReadyOrder;

/// The known part of the search tree.
#[derive(Debug, Default)]
pub(super) struct SearchTree {
    nodes: Vec<Node>,
    /// Maximum number of preemptions of a schedule.
    bound: u32,
    /// `true` if equivalent schedules are pruned.
    reduces: bool,
    run: RunRecord,
}

/// A decision at which several fibers may continue.
#[derive(Debug)]
struct Node {
    /// The number of the decision in the run.
    decision: u32,
    /// The fibers, in the order in which they are tried.
    ready: Vec<u32>,
    /// `true` if the first of these fibers was running and can continue.
    continues: bool,
    /// The fibers that need not be tried, by index in `ready`.
    asleep: ReadySet,
    /// The indices of the fiber that was tried first and of the fiber that is tried now.
    first: usize,
    now: usize,
    /// The footprint of the first choice: of its next step if the fiber continued, else of its
    /// whole turn.
    reached: Footprint,
    /// The footprints of all steps after this decision in all runs, by fiber.
    after: FiberFootprints,
}

#[derive(Debug, Clone, Default)]
struct FiberFootprints(Vec<Footprint>);

/// Number of fibers that are distinguished; all further fibers are treated as one.
const DISTINGUISHED: u32 = 24;

/// A set of indices into the ready fibers, of any size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ReadySet(SmallVec<[u64; 1]>);

impl ReadySet {
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

impl FiberFootprints {
    fn place(fiber: u32) -> usize {
        if fiber < DISTINGUISHED { fiber as usize } else { 0 }
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

    fn by_others(&self, fiber: u32) -> Footprint {
        let own = if fiber < DISTINGUISHED { fiber as usize } else { usize::MAX };
        let others = self.0.iter().enumerate().filter(|(place, _)| *place != own);
        others.fold(Footprint::NOTHING, |all, (_, touched)| all.and(*touched))
    }
}

/// The state of the run in progress.
#[derive(Debug, Default)]
struct RunRecord {
    /// Number of nodes passed so far.
    passed: usize,
    /// Number of preemptions so far.
    spent: u32,
    /// `true` if the run is equivalent to another, so that no further choice is tried.
    is_over: bool,
    turns: Vec<FiberTurn>,
    /// `true` while the fiber of the last turn continues that turn.
    in_turn: bool,
    /// The sleep set: interrupted fibers, each with the footprint of its next step.
    asleep: Vec<(u32, Footprint)>,
    /// The node whose first step, and the node whose first turn, is running for the first time.
    step_of: Option<usize>,
    turn_of: Option<usize>,
}

/// A turn of a fiber: its consecutive steps, without another fiber in between.
#[derive(Debug)]
struct FiberTurn {
    fiber: u32,
    touched: Footprint,
    /// The fibers that would have been tried before this one.
    before: Vec<u32>,
}

impl SearchTree {
    /// Starts a search from scratch with at most `bound` preemptions.
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

    /// Returns the number of preemptions of the run in progress.
    pub(super) fn spent(&self) -> u32 {
        self.run.spent
    }

    /// Returns `true` if the run in progress is equivalent to another.
    pub(super) fn is_over(&self) -> bool {
        self.run.is_over
    }

    /// Advances to the next schedule. Returns `false` if no schedule is left.
    pub(super) fn advance(&mut self) -> bool {
        self.begin_run();
        while let Some(node) = self.nodes.last_mut() {
            let fiber = node.ready[node.first];
            let is_all = node.now == node.first
                && self.reduces
                && !node.reached.conflicts(node.after.by_others(fiber));
            // The clock is always tried, because the first choice may cancel the timer.
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

    /// Chooses the fiber that continues, from the fibers that are ready.
    pub(super) fn choose(&mut self, order: &ReadyOrder, decision: u32) -> u32 {
        let Self { nodes, bound, reduces, run } = self;
        run.pass(nodes, decision);
        let (ready, continues) = (&order.ready[..], order.continues);
        // The clock is a preemption: it takes the processor from all runnable fibers.
        let is_spent = run.spent == *bound;
        let clocks = usize::from(is_spent && ready.last() == Some(&CLOCK));
        let ready = &ready[..ready.len() - clocks];
        if !continues && *reduces && run.in_turn {
            run.end_turn();
        }
        let fiber = if run.is_over || (continues && is_spent) {
            ready[0]
        } else {
            run.take_candidate(nodes, decision, ready, continues)
        };
        let interrupts = fiber == CLOCK || (continues && fiber != ready[0]);
        if interrupts {
            run.spent += 1;
            // For the reduction, a turn that the clock cuts short does not end here. If the turn
            // moved to an earlier place, the clock would cut it short there, which would be one
            // more preemption.
            if *reduces && fiber != CLOCK {
                run.end_turn();
            }
        }
        if interrupts || !continues {
            let place = ready.iter().position(|one| *one == fiber).unwrap_or(0);
            let before = ready[..place].to_vec();
            run.turns.push(FiberTurn { fiber, touched: Footprint::NOTHING, before });
            run.in_turn = true;
        }
        fiber
    }

    /// Returns `true` if the running fiber continues without regard to the others.
    #[inline]
    pub(super) fn leaves_alone(&self) -> bool {
        self.run.is_over || self.run.spent == self.bound
    }

    /// Returns the next decision at which the running fiber does not simply continue. Until then
    /// the footprints of single steps are not needed, because a step that conflicts with any of
    /// them conflicts with their union.
    pub(super) fn next_decision(&self) -> u32 {
        if self.leaves_alone() {
            return u32::MAX;
        }
        let ahead = &self.nodes[self.run.passed..];
        let next = ahead.iter().find(|node| !node.continues || node.now != node.first);
        next.map_or(0, |node| node.decision)
    }

    /// Records a step of a fiber.
    pub(super) fn left(&mut self, left: &SwitchEvent, yields: bool) {
        let Self { nodes, run, .. } = self;
        let is_last = left.leave != SwitchReason::Point || yields;
        // The decision to yield depends on whether another fiber can run.
        let touched = if yields { Footprint::EVERYTHING } else { left.touched };
        if !run.in_turn || run.turns.last().is_none_or(|turn| turn.fiber != left.fiber) {
            let turn =
                FiberTurn { fiber: left.fiber, touched: Footprint::NOTHING, before: Vec::new() };
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

impl RunRecord {
    /// Passes the nodes before a decision, at which the running fiber continued.
    fn pass(&mut self, nodes: &[Node], decision: u32) {
        while let Some(node) = nodes.get(self.passed).filter(|node| node.decision < decision) {
            debug_assert!(node.continues && node.now == node.first, "nothing was chosen there");
            self.passed += 1;
        }
    }

    /// Returns the choice of the path, or, at the end of the path, the first choice of a new node.
    fn take_candidate(
        &mut self,
        nodes: &mut Vec<Node>,
        decision: u32,
        ready: &[u32],
        continues: bool,
    ) -> u32 {
        let sleeps = |fiber: &u32| self.asleep.iter().any(|(one, _)| one == fiber);
        let mut asleep = ReadySet::default();
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
            let step = if continues { &mut self.step_of } else { &mut self.turn_of };
            *step = Some(at);
            nodes.push(Node {
                decision,
                ready: ready.to_vec(),
                continues,
                asleep,
                first,
                now: first,
                reached: Footprint::NOTHING,
                after: FiberFootprints::default(),
            });
            return ready[first];
        }
        let node = &nodes[at];
        debug_assert!(node.decision == decision, "a run repeats another one");
        debug_assert!(
            node.ready == ready && node.continues == continues,
            "and the request is the same"
        );
        if continues && node.now != node.first {
            self.asleep.push((ready[0], node.reached));
        }
        ready[node.now]
    }

    /// Ends the turn. The run is over if the turn could have come earlier.
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

    /// Regression: with more than 64 runnable fibers, the fibers after the sixty-fourth were never
    /// tried, yet the search was reported as complete.
    #[test]
    fn search_tries_each_of_150_runnable_fibers() {
        let many = 150;
        let mut path = SearchTree::default();
        path.begin(0, true);
        let runnable: Vec<u32> = (1..=many).collect();
        let mut order = ReadyOrder::default();
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
    fn ready_set_contains_only_added_indices() {
        let mut places = ReadySet::default();
        for place in [0, 63, 64, 200] {
            assert!(!places.has(place));
            places.add(place);
            assert!(places.has(place));
        }
        assert!(![1, 62, 65, 199, 201, 1000].iter().any(|place| places.has(*place)));
    }
}
