//! Members of one heap that allocate, free, hand over, accept and recover at random, and are killed
//! and replaced at random moments: [`torment`].

#![allow(unsafe_code, reason = "fork, and memory shared with forked processes")]
#![allow(dead_code, unreachable_pub, reason = "a module of each test, and of a task")]

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};
use tontine::heap::shared::{Block, Heap, Member, Parcel};
use tontine::heap::{HeapError, Result};

use super::common::Random;

/// Number of concurrent members.
const SLOTS: usize = 6;
/// Number of kills per round, after which all members are killed and the heap is checked.
const ROUND: u64 = 500;
/// Capacity of the heap, so small that it is full occasionally.
const CAPACITY: usize = 4 << 20;
/// Maximum number of blocks per member.
const MAX_BLOCKS: usize = 60;
/// Lifetime in seconds of a child that is not killed.
const LIMIT_S: u32 = 300;
/// Maximum time without progress. A member that exceeds it hangs.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum wait for a member that recovers others.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of one member, visible to all processes.
#[repr(C, align(64))]
struct MemberSlot {
    /// The member's identifier.
    member: AtomicU64,
    /// Number of steps taken by the members in this slot.
    steps: AtomicU64,
    /// 1 during a recovery.
    tends: AtomicU64,
    accepted: AtomicU64,
    stale: AtomicU64,
    full: AtomicU64,
    recovered: AtomicU64,
}

fn slots() -> &'static [MemberSlot] {
    let bytes = SLOTS * size_of::<MemberSlot>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the mapping is new, filled with zeros, page-aligned and never unmapped; the slots are
    // atomics.
    unsafe {
        let memory =
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED);
        std::slice::from_raw_parts(memory.expect("mmap").cast(), SLOTS)
    }
}

type Queue = (PipeReader, PipeWriter);

fn queue() -> Queue {
    let queue = std::io::pipe().expect("a pipe");
    rustix::fs::fcntl_setfl(&queue.0, OFlags::NONBLOCK).expect("a flag");
    rustix::fs::fcntl_setfl(&queue.1, OFlags::NONBLOCK).expect("a flag");
    queue
}

/// Length of a message: a parcel, and a tag that distinguishes its block from every other.
const MESSAGE: usize = Parcel::SIZE + 8;

/// Fills a block with words that differ from those of every other block.
fn fill(block: &mut Block<'_>, tag: u64) {
    for (at, piece) in block.chunks_mut(8).enumerate() {
        let word = tag.wrapping_add((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}

fn must_be(block: &Block<'_>, tag: u64) {
    for (at, piece) in block.chunks(8).enumerate() {
        let word = tag.wrapping_add((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(
            *piece == word.to_le_bytes()[..piece.len()],
            "used twice: block {:#x}, word {at}, of {} bytes",
            block.offset(),
            block.len()
        );
    }
}

struct Mine<'a> {
    heap: &'a Heap,
    slot: usize,
    slots: &'static [MemberSlot],
    queues: &'a [Queue],
    blocks: Vec<(Block<'a>, u64)>,
    sent: Vec<(Parcel, Member, u64)>,
    random: Random,
}

impl<'a> Mine<'a> {
    fn me(&self) -> &'static MemberSlot {
        &self.slots[self.slot]
    }

    fn size(&mut self) -> usize {
        let most = [64, 300, 3_000, 3_000, 30_000, 200_000][self.random.below(6) as usize];
        self.random.below(most) as usize
    }

    fn alloc(&mut self) {
        if self.blocks.len() >= MAX_BLOCKS {
            return self.free();
        }
        let size = self.size();
        match self.heap.alloc(size) {
            Ok(mut block) => {
                let tag = self.random.next();
                fill(&mut block, tag);
                self.blocks.push((block, tag));
            }
            Err(HeapError::Full { .. }) => {
                self.me().full.fetch_add(1, Ordering::Relaxed);
                self.free();
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn any(&mut self) -> Option<(Block<'a>, u64)> {
        let count = self.blocks.len() as u64;
        (count > 0).then(|| self.blocks.swap_remove(self.random.below(count) as usize))
    }

    fn free(&mut self) {
        let Some((block, tag)) = self.any() else { return };
        must_be(&block, tag);
        if self.random.below(4) == 0 {
            let handle = block.into_handle();
            self.heap.free(handle).expect("the block is owned");
            self.heap.free(handle).expect_err("already freed");
        }
    }

    fn send(&mut self) {
        let Some((block, tag)) = self.any() else { return };
        must_be(&block, tag);
        let to = self.random.below(SLOTS as u64) as usize;
        let member = Member::from_u64(self.slots[to].member.load(Ordering::Relaxed));
        let Ok(parcel) = block.hand_over(member) else { return };
        let mut message = [0; MESSAGE];
        message[..Parcel::SIZE].copy_from_slice(&parcel.to_bytes());
        message[Parcel::SIZE..].copy_from_slice(&tag.to_le_bytes());
        if (&self.queues[to].1).write(&message).is_ok() {
            self.sent.push((parcel, member, tag));
            return;
        }
        // The queue is full, so no other member knows the parcel, unless the receiver has died.
        self.take_back(parcel, tag);
    }

    fn take_back(&mut self, parcel: Parcel, tag: u64) {
        match self.heap.take_back(parcel) {
            Ok(block) => {
                must_be(&block, tag);
                self.blocks.push((block, tag));
            }
            Err(error) => assert!(is_stale(&error), "{error}"),
        }
    }

    fn accept(&mut self) -> bool {
        let Some((parcel, tag)) = receive(&self.queues[self.slot].0) else { return false };
        match self.heap.accept(parcel) {
            Ok(block) => {
                must_be(&block, tag);
                self.me().accepted.fetch_add(1, Ordering::Relaxed);
                self.blocks.push((block, tag));
            }
            Err(error) => {
                assert!(is_stale(&error), "{error}");
                self.me().stale.fetch_add(1, Ordering::Relaxed);
            }
        }
        true
    }

    fn recover(&mut self) {
        self.me().tends.store(1, Ordering::Relaxed);
        let keeps = self.random.below(2) == 0;
        let recovery = if keeps { self.heap.recover() } else { self.heap.recover_and_trim() };
        let recovery = recovery.expect("dead members are recovered");
        self.me().tends.store(0, Ordering::Relaxed);
        self.me().recovered.fetch_add(recovery.members as u64, Ordering::Relaxed);
        let dead = self.heap.dead_members().expect("not forked");
        while self.accept() {}
        self.heap.reclaim_received(&dead).expect("not forked");
        let heap = self.heap;
        self.sent.retain(|(_, to, _)| {
            let alive = heap.is_alive(*to);
            if !alive {
                heap.reclaim_sent(*to).expect("not forked");
            }
            alive
        });
    }

    /// Starts a thread that allocates, frees a block of this thread, and leaves one block behind.
    fn with_a_thread(&mut self) {
        let heap = self.heap;
        let given = self.any();
        let tag = self.random.next();
        let left = std::thread::scope(|scope| {
            let thread = scope.spawn(move || -> Result<_> {
                let first = heap.alloc(100)?;
                let mut second = heap.alloc(1_000)?;
                fill(&mut second, tag);
                drop((first, given));
                Ok(second)
            });
            thread.join().expect("no panic")
        });
        self.blocks.extend(left.ok().map(|block| (block, tag)));
    }

    fn step(&mut self) {
        match self.random.below(200) {
            0..80 => self.alloc(),
            80..125 => self.free(),
            125..155 => self.send(),
            155..185 => drop(self.accept()),
            185..190 => {
                let count = self.sent.len() as u64;
                if count > 0 {
                    let (parcel, _, tag) = self.sent.swap_remove(self.random.below(count) as usize);
                    self.take_back(parcel, tag);
                }
            }
            190..197 => self.recover(),
            197..199 => self.with_a_thread(),
            _ => drop(self.heap.check().expect("not forked")),
        }
        while self.sent.len() > MAX_BLOCKS {
            self.sent.remove(0);
        }
        self.me().steps.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_stale(error: &HeapError) -> bool {
    matches!(error, HeapError::Stale { .. } | HeapError::InvalidHandle { .. })
}

fn receive(mut queue: &PipeReader) -> Option<(Parcel, u64)> {
    let mut message = [0; MESSAGE];
    let count = queue.read(&mut message).ok()?;
    assert_eq!(count, MESSAGE, "a whole message, because it was written at once");
    let parcel = message[..Parcel::SIZE].try_into().expect("the length of a parcel");
    let tag = message[Parcel::SIZE..].try_into().expect("eight bytes");
    Some((Parcel::from_bytes(parcel), u64::from_le_bytes(tag)))
}

/// Runs a member in this slot. Most run until they are killed; some leave after a random number of
/// steps.
fn live(parents: &Heap, slot: usize, slots: &'static [MemberSlot], queues: &[Queue], seed: u64) {
    // SAFETY: the inherited descriptor stays open.
    let heap = unsafe { parents.rejoin() }.expect("the heap can be joined");
    slots[slot].member.store(heap.member().to_u64(), Ordering::Relaxed);
    let random = Random(seed | 1);
    let (blocks, sent) = (Vec::new(), Vec::new());
    let mut mine = Mine { heap: &heap, slot, slots, queues, blocks, sent, random };
    // Most members are killed; some leave properly.
    let steps = if mine.random.below(10) == 0 { mine.random.below(500) } else { u64::MAX };
    for _ in 0..steps {
        mine.step();
    }
    while let Some((block, tag)) = mine.any() {
        must_be(&block, tag);
    }
}

fn start(
    heap: &Heap,
    slot: usize,
    slots: &'static [MemberSlot],
    queues: &[Queue],
    seed: u64,
) -> i32 {
    // SAFETY: the child calls `_exit` and never returns into the harness; the C library resets its
    // allocator in the child.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: these calls set a timer, tie the child's life to its parent's, and lower the
            // child's priority, so that the parent is scheduled and can kill it.
            unsafe {
                libc::alarm(LIMIT_S);
                libc::nice(5);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            let done = catch_unwind(AssertUnwindSafe(|| live(heap, slot, slots, queues, seed)));
            // SAFETY: `_exit` only ends this process.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
        pid => {
            assert!(pid > 0, "fork failed");
            pid
        }
    }
}

/// Kills and reaps a member; returns `true` if the kill ended it.
fn kill(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: the child is our own and unreaped, and `status` is writable.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
    }
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    assert!(killed || status == 0, "a member failed: {status:#x}");
    killed
}

/// Asserts that only the parent's blocks are left, and that the heap has no fault.
fn look(heap: &Heap, queues: &[Queue], own: usize, seed: u64) {
    for queue in queues {
        while receive(&queue.0).is_some() {}
    }
    for _ in 0..3 {
        heap.recover_and_trim().expect("dead members are recovered");
    }
    let report = heap.check().expect("not forked");
    assert!(report.faults.is_empty(), "seed {seed}: {report}");
    assert_eq!(report.in_use(), own, "seed {seed}: leaked: {report}");
}

/// Counts of one [`torment`].
#[derive(Debug)]
pub struct Counts {
    /// Number of members killed.
    pub kills: u64,
    /// Number of kills during a recovery.
    pub in_recovery: u64,
    /// Number of steps of all members.
    pub steps: u64,
    /// Number of blocks that members accepted.
    pub accepted: u64,
    /// Number of parcels whose block had been freed.
    pub stale: u64,
    /// Number of allocations that found no space.
    pub full: u64,
    /// Number of dead members that members recovered.
    pub recovered: u64,
}

/// Kills members of a new heap until `is_done` returns `true` for the number of kills, and checks
/// after each round that nothing leaked and that no block was allocated twice.
///
/// # Panics
/// Panics if a check fails, or if a member makes no progress.
pub fn torment(seed: u64, is_done: impl Fn(u64) -> bool) -> Counts {
    let mut random = Random(seed.max(1));
    let heap = Heap::create(CAPACITY).expect("there is memory");
    let (slots, queues) = (slots(), std::array::from_fn::<_, SLOTS, _>(|_| queue()));
    // The parent, which survives, owns these blocks.
    let mut own: Vec<_> = [10, 100, 5_000, 70_000]
        .map(|len| heap.alloc(len).expect("space is free"))
        .into_iter()
        .collect();
    own.iter_mut().zip(1..).for_each(|(block, tag)| fill(block, tag));
    let own_bytes = heap.check().expect("not forked").in_use();
    let (mut done, mut in_recovery) = (0, 0);
    while !is_done(done) {
        let mut members: [i32; SLOTS] =
            std::array::from_fn(|slot| start(&heap, slot, slots, &queues, random.next()));
        let mut last: [(u64, Instant); SLOTS] = [(0, Instant::now()); SLOTS];
        let end = done + ROUND;
        while done < end && !is_done(done) {
            let mut slot = random.below(SLOTS as u64) as usize;
            let wait = Duration::from_micros(random.below(2_000));
            // A third of the kills target a member that recovers others.
            let tending = random.below(3) == 0;
            let until = Instant::now() + if tending { RECOVERY_TIMEOUT } else { wait };
            while Instant::now() < until {
                let found = slots.iter().position(|one| one.tends.load(Ordering::Relaxed) == 1);
                if tending && let Some(found) = found {
                    slot = found;
                    break;
                }
                std::thread::yield_now();
            }
            in_recovery += u64::from(slots[slot].tends.load(Ordering::Relaxed) == 1);
            done += u64::from(kill(members[slot]));
            slots[slot].tends.store(0, Ordering::Relaxed);
            members[slot] = start(&heap, slot, slots, &queues, random.next());
            for (one, last) in slots.iter().zip(&mut last) {
                let steps = one.steps.load(Ordering::Relaxed);
                if steps != last.0 {
                    *last = (steps, Instant::now());
                }
                assert!(last.1.elapsed() < PROGRESS_TIMEOUT, "seed {seed}: a member hangs");
            }
        }
        done += members.into_iter().map(|pid| u64::from(kill(pid))).sum::<u64>();
        own.iter().zip(1..).for_each(|(block, tag)| must_be(block, tag));
        look(&heap, &queues, own_bytes, seed);
    }
    let sum = |of: fn(&MemberSlot) -> &AtomicU64| -> u64 {
        slots.iter().map(|slot| of(slot).load(Ordering::Relaxed)).sum()
    };
    let (steps, accepted, stale) = (sum(|s| &s.steps), sum(|s| &s.accepted), sum(|s| &s.stale));
    let (full, recovered) = (sum(|s| &s.full), sum(|s| &s.recovered));
    drop(own);
    heap.recover_and_trim().expect("dead members are recovered");
    let report = heap.check().expect("not forked");
    assert_eq!((report.in_use(), report.committed()), (0, 0), "{report}");
    Counts { kills: done, in_recovery, steps, accepted, stale, full, recovered }
}
