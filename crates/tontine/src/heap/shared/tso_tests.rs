//! A model of the hint that another thread has freed a block, on x86-64: it explores every order
//! that the processor's memory model allows.
//!
//! loom follows the language, in which one thread's store of the hint may hide another thread's
//! store. This model follows the processor (*x86-TSO*). Each thread has a buffer of stores, which
//! reach memory in order, at any later time. A load reads the thread's own buffer first. An
//! exchange and a fence wait until the buffer is empty. The protocol is repeated here because only
//! the order of its stores and loads matters. The library's own code is in `word`, and runs in
//! `models`.

use std::collections::{HashSet, VecDeque};

/// The method by which a thread that has freed a block sets the hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Give {
    Exchange,
    Store,
    LookFirst,
    FenceAndLook,
}

/// Indices of the words: the hint, and the words of the two blocks that are freed.
const HINT: usize = 0;
const BLOCKS: [usize; 2] = [1, 2];
/// The thread that owns the slab. Each of the other two threads frees one block.
const OWNER: usize = 2;
const THREADS: usize = 3;

/// The state of memory and of all threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct TsoState {
    memory: [u8; 3],
    buffers: [VecDeque<(usize, u8)>; THREADS],
    /// The next step of each thread.
    steps: [u8; THREADS],
    /// Blocks that the owner has found free.
    seen: [bool; 2],
}

impl TsoState {
    fn load(&self, thread: usize, word: usize) -> u8 {
        let own = self.buffers[thread].iter().rev().find(|(to, _)| *to == word);
        own.map_or(self.memory[word], |(_, value)| *value)
    }

    /// Returns the state after this thread's next step, or `None` if the thread must wait or has
    /// ended.
    fn stepped(&self, thread: usize, give: Give) -> Option<Self> {
        let mut next = self.clone();
        let drained = self.buffers[thread].is_empty();
        let step = &mut next.steps[thread];
        *step += 1;
        if thread == OWNER {
            // The owner runs these steps twice: a load of the hint, the exchange, and loads of both
            // words.
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

    /// Returns the state after this thread's oldest store has reached memory.
    fn drained(&self, thread: usize) -> Option<Self> {
        let mut next = self.clone();
        let (word, value) = next.buffers[thread].pop_front()?;
        next.memory[word] = value;
        Some(next)
    }
}

/// Explores all states. Returns the number of states, and `true` if a final state has a free block
/// without a hint.
fn explore(give: Give) -> (usize, bool) {
    let (mut known, mut open) = (HashSet::new(), vec![TsoState::default()]);
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
fn stored_hint_suffices_on_x86_unless_loaded_first() {
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
