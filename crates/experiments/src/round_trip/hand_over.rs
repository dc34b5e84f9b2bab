//! A block of 1 MiB of the library's shared heap, handed over without a copy through a mailbox at
//! each end. Both processes spin.
//!
//! One block passes back and forth. The sender writes into it a number that the block never held
//! before, and the receiver reads that number. This shows that the receiver obtains the memory
//! itself, not only its name. Only a parcel of 24 bytes crosses the lane.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tontine::heap::shared::{Block, Heap, Inbox, Member, Outbox};
use tontine::mailbox::{Options, WaitStrategy};
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::shared::SharedMapping;
use tontine_host::peer::{PeerHandle, spin_until};
use tontine_mechanisms::heap::{must_be_free, refused, rejoined};
use tontine_mechanisms::mailbox::{Correspondent, Post, posts};

use super::harness::{self, RoundPlan, RoundTripEnd, Timed};

/// Size of the block in bytes.
const BLOCK: usize = 1 << 20;
/// Size of the heap in bytes: the block and free space.
const HEAP: usize = 4 * BLOCK;
/// Size in bytes of the number at the beginning of the block.
const STAMP: usize = size_of::<u64>();

/// Times the handover between two processes, and checks the heap at the end.
pub(super) fn run(plan: &RoundPlan) -> Result<Timed> {
    let heap = Heap::create(HEAP).map_err(refused)?;
    let timer = heap.member();
    // The identity of the answering process as a member of the heap; 0 until the process has
    // joined.
    let answerer = SharedMapping::<AtomicU64>::anonymous()?;
    let (here, there) = posts(1)?;
    let (here, there) = (Cell::new(Some(here)), Cell::new(Some(there)));
    let timed = harness::between_processes(
        plan,
        |peer| {
            drop(there.take());
            // SYNC hand-over-member: pairs with the store after the child has joined.
            spin_until(peer, true, || answerer.load(Ordering::Acquire) != 0)?;
            let to = Member::from_u64(answerer.load(Ordering::Relaxed));
            let mut end = Hands::new(&heap, to, here.take(), peer)?;
            end.held = Some(heap.alloc(BLOCK).map_err(refused)?);
            harness::time(plan, &mut end)
        },
        |peer| {
            drop(here.take());
            let heap = rejoined(&heap)?;
            // SYNC hand-over-member: pairs with the loads of the timing process.
            answerer.store(heap.member().to_u64(), Ordering::Release);
            let mut end = Hands::new(&heap, timer, there.take(), peer)?;
            (end.next, end.awaited) = (2, 1);
            harness::answer(plan, &mut end)
        },
    )?;
    must_be_free(&heap)?;
    Ok(timed)
}

/// One end, which either has the block or waits for it.
struct Hands<'h> {
    outbox: Outbox<'h>,
    inbox: Inbox<'h>,
    held: Option<Block<'h>>,
    /// The next number to write into the block.
    next: u64,
    /// The number expected in the block at its next arrival.
    awaited: u64,
}

impl<'h> Hands<'h> {
    fn new(heap: &'h Heap, to: Member, post: Option<Post>, peer: PeerHandle<'_>) -> Result<Self> {
        let post =
            post.ok_or_else(|| MeasureError::fail("found the connection of another process"))?;
        let options = Options::new().wait_strategy(WaitStrategy::Spin).max_lanes(1);
        let Correspondent { sender, mailbox, .. } = post.open(&options, &[peer])?;
        let outbox = heap.outbox(sender, to).map_err(refused)?;
        let inbox = heap.inbox(mailbox).map_err(refused)?;
        Ok(Self { outbox, inbox, held: None, next: 1, awaited: 2 })
    }
}

impl RoundTripEnd for Hands<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        let Some(mut block) = self.held.take() else { return Err(not_held()) };
        block[..STAMP].copy_from_slice(&self.next.to_ne_bytes());
        self.next += 2;
        self.outbox.send(block).map_err(|(error, _)| refused(error))
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        let (block, _) = self.inbox.recv().map_err(refused)?;
        if block[..STAMP] != self.awaited.to_ne_bytes() || block.len() != BLOCK {
            return Err(another(&block, self.awaited));
        }
        self.awaited += 2;
        self.held = Some(block);
        Ok(())
    }
}

#[cold]
fn not_held() -> MeasureError {
    MeasureError::fail("expected to own the block to hand over, found none")
}

#[cold]
fn another(block: &[u8], awaited: u64) -> MeasureError {
    let found = block.first_chunk().map_or(0, |stamp| u64::from_ne_bytes(*stamp));
    let bytes = block.len();
    MeasureError::fail(format!(
        "expected a block of {BLOCK} bytes with the number {awaited}, found one of {bytes} with \
         {found}"
    ))
}
