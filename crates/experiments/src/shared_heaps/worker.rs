//! One who allocates, frees and passes blocks on: [`Worker`]. Every block that it has carries a
//! word that says whose it is, which is read before the block is freed or passed on: a heap that
//! hands out one piece of memory twice is found out.

#![allow(unsafe_code, reason = "reads and writes inside of blocks")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tontine_host::trouble::{Result, Trouble};

use super::board::Board;
use super::dice::Dice;
use super::heap::Heap;
use super::ring::{Inbound, Outbound};

/// Looks before the processor is given to others.
const LOOKS: u32 = 1 << 10;

// What a block's first word says: who has it and where, or which entry of which ring it is.
//
//  63   56 55   48 47       46       40 39       0
// +-------+-------+-----------+----------+----------+
// | seat  | 0     | 0         | sat      | place    |
// | to    | from  | under way | 0        | number   |
// +-------+-------+-----------+----------+----------+
//
// `sat` is how many had the seat before, modulo 128.
const SEAT: u32 = 56;
const FROM: u32 = 48;
const UNDER_WAY: u64 = 1 << 47;
const SAT: u32 = 40;
const SAT_MASK: u32 = 0x7f;
const PLACE: u64 = (1 << SAT) - 1;

/// A worker at its seat.
pub(super) struct Worker<'w, H: Heap> {
    heap: &'w H,
    board: &'w Board,
    /// Which one it is.
    pub(super) seat: usize,
    /// How many there are.
    pub(super) workers: usize,
    /// What it draws from.
    pub(super) dice: Dice,
    /// Whether nobody sat here before.
    pub(super) is_first: bool,
    owner: u64,
    freed: u64,
    deaths: u32,
    outbound: Vec<Outbound<'w>>,
    inbound: Vec<Inbound<'w>>,
}

/// A block and the place at which its worker keeps it.
pub(super) struct Held<'w, H: Heap + 'w> {
    block: H::Block<'w>,
    place: u64,
}

/// What became of a block that was to be passed on.
pub(super) enum Passed<'w, H: Heap + 'w> {
    /// It is under way, or gone with who should have had it.
    Gone,
    /// There was no room for it.
    Back(Held<'w, H>),
}

impl<'w, H: Heap> Worker<'w, H> {
    /// Sits down.
    pub(super) fn new(heap: &'w H, board: &'w Board, seat: usize) -> Self {
        let before = board.sit(seat, heap.address());
        let workers = board.workers();
        let (outbound, inbound) = board.rings(seat);
        Self {
            heap,
            board,
            seat,
            workers,
            dice: Dice::of(seat + usize::try_from(before).unwrap_or(0) * workers),
            is_first: before == 0,
            owner: ((seat as u64) << SEAT) | (u64::from(before & SAT_MASK) << SAT),
            freed: board.freed_at(seat),
            deaths: board.deaths(),
            outbound,
            inbound,
        }
    }

    /// Waits until all may begin.
    pub(super) fn wait(&self) {
        let mut patience = Patience::default();
        while !self.board.may_go() {
            patience.wait();
        }
    }

    /// Whether there is more to do; looks after the dead.
    ///
    /// # Errors
    /// Those of the heap.
    #[inline(always)]
    pub(super) fn goes_on(&mut self) -> Result<bool> {
        let deaths = self.board.deaths();
        if deaths != self.deaths {
            self.deaths = deaths;
            self.heap.recover_and_trim()?;
        }
        Ok(!self.board.stopped())
    }

    /// A block of so many bytes for that place.
    ///
    /// # Errors
    /// Failed, where there is none.
    #[inline(always)]
    pub(super) fn allocate(&self, size: usize, place: usize) -> Result<Held<'w, H>> {
        debug_assert!(size >= size_of::<u64>());
        let block = self.heap.allocate(size)?;
        Ok(self.keep(block, place))
    }

    /// Checks whose a block is and frees it.
    ///
    /// # Errors
    /// Failed, where it is somebody else's as well.
    #[inline(always)]
    pub(super) fn free(&mut self, held: Held<'w, H>) -> Result<()> {
        self.heap.free(self.checked(held)?)?;
        self.freed += 1;
        self.board.set_freed(self.seat, self.freed);
        Ok(())
    }

    /// Passes a block on, if there is room; nobody sees it before [`Worker::publish`].
    ///
    /// # Errors
    /// Failed, where the block is somebody else's as well, or the heap refuses.
    #[inline(always)]
    pub(super) fn pass(&mut self, held: Held<'w, H>, to: usize) -> Result<Passed<'w, H>> {
        let Some(number) = self.outbound[to].next() else { return Ok(Passed::Back(held)) };
        let mut block = self.checked(held)?;
        write(self.heap.at(&mut block), under_way(self.seat, to, number));
        if let Some(entry) = self.heap.give(block, self.board.address(to))? {
            self.outbound[to].write(entry);
        }
        Ok(Passed::Gone)
    }

    /// Shows all that was passed to that worker.
    #[inline(always)]
    pub(super) fn publish(&mut self, to: usize) {
        self.outbound[to].publish();
    }

    /// Passes a block on and shows it; waits for room. Where the work ends before there is some, it
    /// is freed.
    ///
    /// # Errors
    /// As [`Worker::pass`].
    #[inline(always)]
    pub(super) fn hand(&mut self, mut held: Held<'w, H>, to: usize) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            match self.pass(held, to)? {
                Passed::Gone => break,
                Passed::Back(back) => held = back,
            }
            patience.wait();
            if !self.goes_on()? {
                return self.free(held);
            }
        }
        self.publish(to);
        Ok(())
    }

    /// What came from that worker next, for that place.
    ///
    /// # Errors
    /// Failed, where the block is not the one that was passed on.
    #[inline(always)]
    pub(super) fn receive(&mut self, from: usize, place: usize) -> Result<Option<Held<'w, H>>> {
        while let Some((number, entry)) = self.inbound[from].take() {
            let Some(mut block) = self.heap.take(entry)? else {
                self.must_be_of_the_dead()?;
                continue;
            };
            if read(self.heap.at(&mut block)) != under_way(from, self.seat, number) {
                return Err(twice());
            }
            return Ok(Some(self.keep(block, place)));
        }
        Ok(None)
    }

    /// A block's word number `at`, of those that were asked for, not the first.
    #[inline(always)]
    pub(super) fn word<'b>(&self, held: &'b mut Held<'w, H>, at: usize) -> &'b AtomicU64 {
        debug_assert!(at > 0);
        // SAFETY: by the contract of `Heap`, as long as the block is held; a word is aligned.
        unsafe { AtomicU64::from_ptr(self.heap.at(&mut held.block).as_ptr().add(at)) }
    }

    /// Writes into the bytes behind the first word, so often.
    #[inline(always)]
    pub(super) fn scribble(&self, held: &mut Held<'w, H>, times: u32) {
        let word = self.word(held, 1);
        for _ in 0..times {
            // A load and a store of memory each time, as nobody else writes it.
            word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Ends the work: takes what still comes, until nobody passes any more.
    ///
    /// # Errors
    /// As [`Worker::receive`].
    pub(super) fn finish(mut self) -> Result<()> {
        (0..self.workers).for_each(|to| self.publish(to));
        self.board.finish(self.seat);
        let mut patience = Patience::default();
        loop {
            let last = self.board.all_finished();
            for from in 0..self.workers {
                while let Some(held) = self.receive(from, 0)? {
                    self.heap.free(self.checked(held)?)?;
                }
            }
            if last {
                return Ok(());
            }
            patience.wait();
            self.goes_on()?;
        }
    }

    #[cold]
    fn must_be_of_the_dead(&self) -> Result<()> {
        if self.board.deaths() > 0 {
            return Ok(());
        }
        Err(Trouble::fail("a block that was passed on did not arrive, and no worker had died"))
    }

    #[inline(always)]
    fn keep(&self, mut block: H::Block<'w>, place: usize) -> Held<'w, H> {
        let place = place as u64 & PLACE;
        write(self.heap.at(&mut block), self.owner | place);
        Held { block, place }
    }

    #[inline(always)]
    fn checked(&self, mut held: Held<'w, H>) -> Result<H::Block<'w>> {
        let found = read(self.heap.at(&mut held.block));
        if found == self.owner | held.place { Ok(held.block) } else { Err(twice()) }
    }
}

/// What the first word says of a block that is under way.
#[inline(always)]
fn under_way(from: usize, to: usize, number: u64) -> u64 {
    ((to as u64) << SEAT) | ((from as u64) << FROM) | UNDER_WAY | (number & PLACE)
}

/// Writes a block's first word where all see it.
#[inline(always)]
fn write(at: NonNull<u64>, word: u64) {
    // SAFETY: by the contract of `Heap::at`; a heap that breaks it is what the word is to find out.
    unsafe { at.write_volatile(word) };
}

#[inline(always)]
fn read(at: NonNull<u64>) -> u64 {
    // SAFETY: as in `write`.
    unsafe { at.read_volatile() }
}

#[cold]
fn twice() -> Trouble {
    Trouble::fail("the heap handed out one piece of memory twice")
}

/// Waits: looks many times, then lets others run.
#[derive(Debug, Default)]
pub(super) struct Patience(u32);

impl Patience {
    #[inline(always)]
    pub(super) fn wait(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(LOOKS) {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
