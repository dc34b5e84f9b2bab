//! Models of the shared heap's words: loom runs each in every interleaving, and lets every load
//! return every value that the memory model of the language allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tontine --lib --release models`
//!
//! The operations on words are the library's own code, in `word`. The data that they protect, a
//! block's bytes or a slab's memory, is a loom cell, which detects concurrent accesses. Each model
//! also runs with an [`InjectedFault`], and must then fail. Each outcome of a model must also occur
//! in some run ([`saw`]): loom omits orders that it considers equivalent, and it is wrong about
//! them if a thread reads a word before it changes the word.

#![allow(unsafe_code, reason = "accesses loom cells")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::word::{
    BlockState, BlockWord, MemberState, MemberWord, SlabState, SlabWord, ended, hint, slab, truth,
};
use crate::sync::weakened::{self, InjectedFault, models};
use crate::sync::{AtomicU64, Ordering};

thread_local! {
    // The whole model runs on one thread, as in `weakened`.
    static SEEN: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// Records that an outcome occurred in some run.
fn saw(what: &'static str) {
    SEEN.with_borrow_mut(|seen| seen.insert(what));
}

/// Runs `body` in every interleaving, with a fault, and checks that all `outcomes` occurred.
fn check(fault: InjectedFault, outcomes: &[&str], body: impl Fn() + Sync + Send + 'static) {
    SEEN.take();
    loom::model(move || {
        weakened::set(fault);
        body();
        weakened::set(InjectedFault::None);
    });
    let seen = SEEN.take();
    let missing: Vec<_> = outcomes.iter().filter(|one| !seen.contains(*one)).collect();
    assert!(missing.is_empty(), "in no run: {missing:?}; seen: {seen:?}");
}

/// A block's bytes or a slab's memory, in which loom detects concurrent accesses.
#[derive(Default)]
struct ModelMemory(UnsafeCell<u64>);

impl ModelMemory {
    fn set(&self, value: u64) {
        // SAFETY: the model shows that no other thread accesses it, and loom checks that.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    fn get(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|place| unsafe { *place })
    }
}

// SAFETY: as above.
unsafe impl Sync for ModelMemory {}

struct ModelBlock {
    word: AtomicU64,
    hint: AtomicU64,
    bytes: ModelMemory,
}

impl ModelBlock {
    fn new(truth: BlockWord) -> Arc<Self> {
        let (word, hint) = (AtomicU64::new(truth.0), AtomicU64::new(0));
        Arc::new(Self { word, hint, bytes: ModelMemory::default() })
    }

    fn now(&self) -> BlockWord {
        BlockWord(self.word.load(Ordering::Acquire))
    }
}

/// A thread frees a block in another thread's slab, and that thread allocates the block again.
/// The owner's thread is spawned last. Otherwise, if the holder reads the word first, loom would
/// not try the owner after the holder's store.
fn freed_and_given_out() {
    let block = ModelBlock::new(BlockWord::allocated(2, 0));
    let holder = thread::spawn({
        let block = block.clone();
        move || {
            block.bytes.set(1);
            truth::free(&block.word, 0);
        }
    });
    let owner = thread::spawn({
        let block = block.clone();
        move || {
            if block.now().state() == BlockState::Free && truth::allocate(&block.word, 1) {
                saw("given out");
                block.bytes.set(2);
            } else {
                saw("not free yet");
            }
        }
    });
    for one in [holder, owner] {
        one.join().expect("no panic");
    }
}

models! {
    block_is_allocated_only_when_free:
        check(InjectedFault::None, &["given out", "not free yet"], freed_and_given_out);
    free_without_release_is_detected:
        check(InjectedFault::StoresRelaxed, &[], freed_and_given_out) => "Causality violation";
    allocation_without_acquire_is_detected:
        check(InjectedFault::LoadsRelaxed, &[], freed_and_given_out) => "Causality violation";
}

/// A block is sent. The receiver accepts it, the sender takes it back, and a recoverer, which has
/// found both processes dead, frees it, all at the same time. Exactly one of the three obtains the
/// block, with the bytes that the sender wrote.
fn sent_and_taken() {
    let block = ModelBlock::new(BlockWord::allocated(1, 4));
    block.bytes.set(7);
    let generation = truth::send(&block.word, 1, 4);
    let flight = BlockWord::in_flight(1, generation);
    let taken = |then: BlockWord| {
        let block = block.clone();
        thread::spawn(move || {
            let taken = truth::leave_flight(&block.word, flight, then).is_ok();
            if taken {
                assert_eq!(block.bytes.get(), 7);
                block.bytes.set(then.0);
            }
            taken
        })
    };
    let reader = taken(BlockWord::allocated(2, generation));
    let sender = taken(BlockWord::allocated(1, BlockWord::next(generation)));
    let freed = truth::reclaim(&block.word, flight);
    let had = [reader, sender].map(|one| one.join().expect("no panic"));
    for (one, who) in had.into_iter().chain([freed]).zip(["reader", "sender", "recoverer"]) {
        if one {
            saw(who);
        }
    }
    let count = had.into_iter().chain([freed]).filter(|had| *had).count();
    assert_eq!(count, 1, "one has the block");
    assert!(!freed || block.now() == BlockWord::free(BlockWord::next(generation)));
}

models! {
    block_in_flight_is_taken_exactly_once:
        check(InjectedFault::None, &["reader", "sender", "recoverer"], sent_and_taken);
    torn_exchange_of_sent_block_is_detected:
        check(InjectedFault::ExchangesTorn, &[], sent_and_taken) => "";
}

/// A sender writes and sends a block. The receiver that reads the word obtains the block and its
/// bytes.
fn written_and_accepted() {
    let block = ModelBlock::new(BlockWord::allocated(1, 0));
    let sender = thread::spawn({
        let block = block.clone();
        move || {
            block.bytes.set(7);
            truth::send(&block.word, 1, 0);
        }
    });
    let then = BlockWord::allocated(2, 1);
    if truth::leave_flight(&block.word, BlockWord::in_flight(1, 1), then).is_ok() {
        saw("accepted");
        assert_eq!(block.bytes.get(), 7);
    }
    sender.join().expect("no panic");
}

models! {
    accepted_block_has_bytes_of_sender:
        check(InjectedFault::None, &["accepted"], written_and_accepted);
    send_of_block_without_release_is_detected:
        check(InjectedFault::StoresRelaxed, &[], written_and_accepted) => "Causality violation";
    accept_of_block_without_acquire_is_detected:
        check(InjectedFault::ExchangesRelaxed, &[], written_and_accepted) => "Causality violation";
}

/// Other threads free one block each in a slab, while its owner reads the words twice. For each
/// free block that the owner has not found, the hint is still set.
fn looked_for<const BLOCKS: usize>(give: fn(&AtomicU64)) {
    let held = || AtomicU64::new(BlockWord::allocated(2, 0).0);
    let slab = Arc::new((AtomicU64::new(0), [0; BLOCKS].map(|_| held())));
    let freeing: [_; BLOCKS] = std::array::from_fn(|which| {
        let slab = slab.clone();
        thread::spawn(move || {
            truth::free(&slab.1[which], 0);
            give(&slab.0);
        })
    });
    // The owner's thread is spawned last. Otherwise, loom would not try the other threads before it
    // if they load first.
    let owner = thread::spawn({
        let slab = slab.clone();
        move || {
            let mut seen = [false; BLOCKS];
            for _ in 0..2 {
                if hint::take(&slab.0) {
                    for (word, seen) in slab.1.iter().zip(&mut seen) {
                        *seen |=
                            BlockWord(word.load(Ordering::Acquire)).state() == BlockState::Free;
                    }
                }
            }
            seen
        }
    });
    for one in freeing {
        one.join().expect("no panic");
    }
    let seen = owner.join().expect("no panic");
    saw(match seen.iter().filter(|seen| **seen).count() {
        0 => "none",
        count if count == BLOCKS => "all",
        _ => "some",
    });
    assert!(seen == [true; BLOCKS] || hint::take(&slab.0), "a free block without a hint");
}

/// Uses one block, because loom lets unordered stores and exchanges occur in two orders at once.
/// `tso_tests` checks the hint with two threads that free blocks.
fn freed_and_looked_for() {
    looked_for::<1>(hint::give);
}

models! {
    freed_block_is_found_or_hinted:
        check(InjectedFault::None, &["all", "none"], freed_and_looked_for);
    hint_store_without_release_is_detected:
        check(InjectedFault::StoresRelaxed, &[], freed_and_looked_for)
        => "a free block without a hint";
    hint_exchange_without_acquire_is_detected:
        check(InjectedFault::ExchangesRelaxed, &[], freed_and_looked_for)
        => "a free block without a hint";
}

/// Exchanging the hint only after a load that returned 0 does not suffice, because the owner may
/// have read the words already.
#[test]
#[should_panic = "a free block without a hint"]
fn hint_loaded_before_store_is_detected() {
    let give = |hint: &AtomicU64| {
        if hint.load(Ordering::Acquire) == 0 {
            hint.swap(1, Ordering::Release);
        }
    };
    check(InjectedFault::None, &[], move || looked_for::<2>(give));
}

models! {
    /// If two threads store the hint, the rules of the language do not make the first thread's
    /// earlier stores visible through the second store. On x86-64, they are visible (`tso_tests`).
    stored_hint_may_hide_earlier_hint_in_memory_model:
        check(InjectedFault::None, &[], || looked_for::<2>(hint::give))
        => "a free block without a hint";
}

/// If two threads exchange the hint, the second exchange continues the release sequence of the
/// first.
#[test]
fn exchanged_hint_hides_no_other_hint() {
    let give = |hint: &AtomicU64| {
        hint.swap(1, Ordering::Release);
    };
    check(InjectedFault::None, &["all", "some", "none"], move || looked_for::<2>(give));
}

/// A block is in flight between two dead members. Each is recovered by one process, which frees the
/// block if the other member is known to be dead.
fn both_ends_recovered() {
    let alive = || AtomicU64::new(MemberWord::new(MemberState::Alive, 1).0);
    let shared = Arc::new((ModelBlock::new(BlockWord::in_flight(1, 5)), [alive(), alive()]));
    let recover = |which: usize| {
        let shared = shared.clone();
        move || {
            let (block, members) = &*shared;
            ended::say(&members[which], 1);
            let found = BlockWord(block.word.load(Ordering::Relaxed));
            found.state() == BlockState::InFlight
                && ended::is(&members[1 - which])
                && truth::reclaim(&block.word, found)
        }
    };
    let other = thread::spawn(recover(0));
    let freed = recover(1)();
    let freed = [freed, other.join().expect("no panic")];
    saw(if freed[0] { "freed by the one" } else { "freed by the other" });
    assert!(freed != [false; 2], "freed by neither");
    assert!(freed != [true; 2], "freed twice");
    assert_eq!(shared.0.now(), BlockWord::free(6));
}

#[test]
fn block_between_dead_members_is_freed_by_one_recoverer() {
    let outcomes = ["freed by the one", "freed by the other"];
    check(InjectedFault::None, &outcomes, both_ends_recovered);
}

models! {
    recoverers_without_fence_are_detected:
        check(InjectedFault::Unfenced, &[], both_ends_recovered) => "freed by neither";
    recoverers_without_exchange_are_detected:
        check(InjectedFault::ExchangesTorn, &[], both_ends_recovered) => "freed twice";
}

/// An arena returns a slab, and two others claim it. At most one of them obtains its memory.
fn claimed_by_two() {
    let owned = SlabWord::new(SlabState::Punching, 1, 0);
    let shared = Arc::new((AtomicU64::new(owned.0), AtomicU64::new(0), ModelMemory::default()));
    let claim = |arena: usize| {
        let shared = shared.clone();
        move || {
            let (owner, class, memory) = &*shared;
            let claimed = slab::claim(owner, arena);
            if claimed {
                memory.set(arena as u64);
                class.store(arena as u64, Ordering::Relaxed);
                slab::set(owner, SlabWord::new(SlabState::Owned, arena, 0));
            }
            claimed
        }
    };
    let others = [2, 3].map(|arena| thread::spawn(claim(arena)));
    shared.2.set(0);
    slab::set(&shared.0, SlabWord::EMPTY);
    let claimed = others.map(|one| one.join().expect("no panic"));
    saw(if claimed == [false; 2] { "neither" } else { "one" });
    assert!(claimed != [true; 2], "two have the slab");
}

models! {
    slab_is_claimed_exactly_once: check(InjectedFault::None, &["neither", "one"], claimed_by_two);
    torn_slab_claim_is_detected: check(InjectedFault::ExchangesTorn, &[], claimed_by_two) => "";
    slab_emptied_without_release_is_detected:
        check(InjectedFault::StoresRelaxed, &[], claimed_by_two) => "Causality violation";
}

/// A reader that finds a slab owned reads the slab's class. The slab is claimed beforehand: in a
/// thread that loads before it claims, loom would not try a later reader.
fn owned_and_read() {
    let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    assert!(slab::claim(&shared.0, 2));
    let owner = thread::spawn({
        let shared = shared.clone();
        move || {
            shared.1.store(9, Ordering::Relaxed);
            slab::set(&shared.0, SlabWord::new(SlabState::Owned, 2, 0));
        }
    });
    let found = SlabWord(shared.0.load(Ordering::Acquire));
    if found.state() == SlabState::Owned {
        saw("owned");
        assert_eq!(shared.1.load(Ordering::Relaxed), 9, "an old class");
    } else {
        saw("claimed");
    }
    owner.join().expect("no panic");
}

models! {
    owner_of_slab_sees_its_size_class:
        check(InjectedFault::None, &["owned", "claimed"], owned_and_read);
    slab_owned_without_release_is_detected:
        check(InjectedFault::StoresRelaxed, &[], owned_and_read) => "an old class";
    slab_owner_read_without_acquire_is_detected:
        check(InjectedFault::LoadsRelaxed, &[], owned_and_read) => "an old class";
}

/// The adopter of a large block died during the adoption. The recoverer of the dead owner releases
/// the block, the recoverer of the adopter releases slabs that belong to no block, and a third
/// process claims the slab.
fn part_let_go_by_two() {
    let span = SlabWord::new(SlabState::Span, 2, 1);
    let shared = Arc::new((AtomicU64::new(span.0), AtomicU64::new(2), ModelMemory::default()));
    let empties = |arena: usize| {
        let shared = shared.clone();
        move || {
            let (owner, slabs, memory) = &*shared;
            let found = SlabWord(owner.load(Ordering::Acquire));
            if found.state() != SlabState::Span {
                return;
            }
            let heir = found.arena() == arena;
            if heir && slabs.load(Ordering::Relaxed) > found.part() as u64 {
                return;
            }
            let ours = slab::let_go(owner, found, arena);
            if !heir {
                slabs.store(1, Ordering::Relaxed);
            }
            saw(if ours { "let go" } else { "too late" });
            if ours {
                memory.set(0);
                slab::set(owner, SlabWord::EMPTY);
            }
        }
    };
    let others = [1, 2].map(|arena| thread::spawn(empties(arena)));
    // This thread is spawned last, for the same reason as above.
    let third = thread::spawn({
        let shared = shared.clone();
        move || {
            let claimed = slab::claim(&shared.0, 3);
            if claimed {
                saw("claimed");
                shared.2.set(3);
            }
            claimed
        }
    });
    for one in others {
        one.join().expect("no panic");
    }
    let claimed = third.join().expect("no panic");
    let owner = SlabWord(shared.0.load(Ordering::Relaxed));
    assert!(!claimed || owner.state() == SlabState::Claimed, "a claimed slab was released");
}

models! {
    slab_of_large_block_is_released_once:
        check(InjectedFault::None, &["let go", "too late", "claimed"], part_let_go_by_two);
    slab_released_without_exchange_is_detected:
        check(InjectedFault::ExchangesTorn, &[], part_let_go_by_two) => "";
}
