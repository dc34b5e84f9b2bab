//! The hint that a block was freed elsewhere, on x86-64: every order that its memory model allows.
//!
//! loom follows the language, by which a hint that is only stored may hide another one's. Here is
//! what a processor does: each thread has a buffer of stores, which come to memory in order, at any
//! time later; it reads its own first; an exchange and a fence wait until the buffer is empty
//! (*x86-TSO*). The protocol is written down once more, for it is the order of stores and loads
//! that counts; that of the library itself is in `word`, and in `models`.

use std::collections::{HashSet, VecDeque};

/// How those who free give the hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Give {
    Exchange,
    Store,
    LookFirst,
    FenceAndLook,
}

/// Words: the hint, and two blocks' that are to be freed.
const HINT: usize = 0;
const BLOCKS: [usize; 2] = [1, 2];
/// Whose slab it is; the others free a block each.
const OWNER: usize = 2;
const THREADS: usize = 3;

/// All there is at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct State {
    memory: [u8; 3],
    buffers: [VecDeque<(usize, u8)>; THREADS],
    /// What each does next.
    steps: [u8; THREADS],
    /// The owner has seen that they are free.
    seen: [bool; 2],
}

impl State {
    fn load(&self, thread: usize, word: usize) -> u8 {
        let own = self.buffers[thread].iter().rev().find(|(to, _)| *to == word);
        own.map_or(self.memory[word], |(_, value)| *value)
    }

    /// What follows where this thread does its next step; none where it cannot, or has ended.
    fn stepped(&self, thread: usize, give: Give) -> Option<Self> {
        let mut next = self.clone();
        let drained = self.buffers[thread].is_empty();
        let step = &mut next.steps[thread];
        *step += 1;
        if thread == OWNER {
            // Twice: a look at the hint, the exchange, both words.
            match self.steps[thread] {
                0 | 4 if self.load(thread, HINT) == 0 => *step += 3,
                0 | 4 => {}
                1 | 5 if drained => next.memory[HINT] = 0,
                at @ (2 | 3 | 6 | 7) => {
                    let which = usize::from(at % 2);
                    next.seen[which] |= self.load(thread, BLOCKS[which]) == 1;
                }
                _ => return None,
            }
            return Some(next);
        }
        match (self.steps[thread], give) {
            (0, _) => next.buffers[thread].push_back((BLOCKS[thread], 1)),
            (1, Give::Exchange) if drained => next.memory[HINT] = 1,
            (1, Give::Store) => next.buffers[thread].push_back((HINT, 1)),
            (1, Give::FenceAndLook) if drained => {}
            (1, Give::LookFirst) => {}
            (2, Give::LookFirst | Give::FenceAndLook) if self.load(thread, HINT) == 1 => *step += 1,
            (2, Give::LookFirst | Give::FenceAndLook) => {}
            (3, Give::LookFirst | Give::FenceAndLook) => {
                next.buffers[thread].push_back((HINT, 1));
            }
            _ => return None,
        }
        Some(next)
    }

    /// What follows where this thread's oldest store comes to memory.
    fn drained(&self, thread: usize) -> Option<Self> {
        let mut next = self.clone();
        let (word, value) = next.buffers[thread].pop_front()?;
        next.memory[word] = value;
        Some(next)
    }
}

/// All ends: how many states led there, and whether one has a block that nobody looks for.
fn explore(give: Give) -> (usize, bool) {
    let (mut known, mut open) = (HashSet::new(), vec![State::default()]);
    let mut lost = false;
    while let Some(state) = open.pop() {
        if !known.insert(state.clone()) {
            continue;
        }
        let before = open.len();
        open.extend((0..THREADS).filter_map(|thread| state.stepped(thread, give)));
        open.extend((0..THREADS).filter_map(|thread| state.drained(thread)));
        let at_its_end = open.len() == before;
        lost |= at_its_end && state.seen != [true; 2] && state.memory[HINT] == 0;
    }
    (known.len(), lost)
}

#[test]
fn a_stored_hint_is_enough_on_x86_and_a_look_first_is_not() {
    for (give, expected) in [
        (Give::Exchange, false),
        (Give::Store, false),
        (Give::FenceAndLook, false),
        (Give::LookFirst, true),
    ] {
        let (states, lost) = explore(give);
        assert!(states > 100, "{give:?}: {states} states");
        assert_eq!(lost, expected, "{give:?}, in {states} states");
    }
}
