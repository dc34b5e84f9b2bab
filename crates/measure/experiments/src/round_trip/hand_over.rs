//! A block of 1 MiB of the library's shared heap, handed over without a copy through a mailbox at
//! each end. Both processes spin.
//!
//! One block passes back and forth. The sender writes into it a number that the block never held
//! before, and the receiver reads that number. This shows that the receiver obtains the memory
//! itself, not only its name. Only a parcel of 24 bytes crosses the lane.

use std::sync::atomic::{AtomicU64, Ordering};

use tontine::heap::shared::{Block, Heap, Inbox, Member, Outbox};
use tontine::mailbox::{Options, WaitStrategy};
use tontine_mechanisms::heap::{must_be_free, refused, rejoined};
use tontine_mechanisms::mailbox::{Correspondent, Post, posts};

use super::end::{RoundTripEnd, Timed};
use super::harness::{RoundPlan, RoundRunner};
use crate::prelude::*;

const BLOCK: usize = 1 << 20;
const HEAP: usize = 4 * BLOCK;
/// Size in bytes of the number at the beginning of the block.
const STAMP: usize = size_of::<u64>();

pub(super) fn run(plan: &RoundPlan<'_>) -> Result<Timed> {
    let heap = Heap::create(HEAP).map_err(refused)?;
    let timer = heap.member();
    // The answering process as a member of the heap; 0 until it has joined.
    let answerer = SharedMapping::<AtomicU64>::anonymous()?;
    let timed = in_two_processes(
        plan.cpus(),
        posts(1)?,
        |post, peer| {
            // SYNC hand-over-member: pairs with the store after the child has joined.
            spin_until(&[peer], true, || answerer.load(Ordering::Acquire) != 0)?;
            let to = Member::from_u64(answerer.load(Ordering::Relaxed));
            let mut end = BlockEnd::new(&heap, to, post, peer)?;
            end.held = Some(heap.alloc(BLOCK).map_err(refused)?);
            end.time(plan)
        },
        |post, peer| {
            let heap = rejoined(&heap)?;
            // SYNC hand-over-member: pairs with the loads of the timing process.
            answerer.store(heap.member().to_u64(), Ordering::Release);
            let mut end = BlockEnd::new(&heap, timer, post, peer)?;
            (end.next, end.awaited) = (2, 1);
            end.answer(plan)
        },
    )?;
    must_be_free(&heap)?;
    Ok(timed)
}

/// An end, which either has the block or waits for it.
struct BlockEnd<'h> {
    outbox: Outbox<'h>,
    inbox: Inbox<'h>,
    held: Option<Block<'h>>,
    next: u64,
    /// The number expected in the block at its next arrival.
    awaited: u64,
}

impl<'h> BlockEnd<'h> {
    fn new(heap: &'h Heap, to: Member, post: Post, peer: PeerHandle<'_>) -> Result<Self> {
        let options = Options::new().wait_strategy(WaitStrategy::Spin);
        let Correspondent { out, back, .. } = post.open(&options, &[peer])?;
        let outbox = heap.outbox(out, to).map_err(refused)?;
        let inbox = heap.inbox(back).map_err(refused)?;
        Ok(Self { outbox, inbox, held: None, next: 1, awaited: 2 })
    }
}

impl RoundTripEnd for BlockEnd<'_> {
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
