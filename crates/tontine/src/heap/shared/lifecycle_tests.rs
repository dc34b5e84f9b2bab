//! Regression tests for members, outboxes and inboxes that begin or end at unusual moments. The
//! comment of each test describes the failure that it caught.

use std::cell::RefCell;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::thread::{scope, sleep};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::class::SizeClass;
use super::core::SlabSearch;
use super::layout::{GRANULES, SLAB};
use super::tests::{MIB, address, dies_after, heap, sound};
use super::word::{SlabState, SlabWord};
use super::*;
use crate::mailbox::{Mailbox, Sender};
use crate::sync::{AtomicU64, Ordering};

fn write_number(mut to: &PipeWriter, number: u64) -> Option<()> {
    to.write_all(&number.to_le_bytes()).ok()
}

fn read_number(mut from: &PipeReader) -> Option<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn deaths(heap: &Heap) -> u64 {
    heap.core.space.header().deaths.load(Ordering::Relaxed)
}

/// Sends three blocks to a child, which receives one of them and dies after the outbox is dropped.
fn leave_two_in_a_lane(heap: &Heap, name: &str) {
    let address = address(name);
    let (reader, writer) = pipe().expect("pipe");
    let (waits, go) = pipe().expect("pipe");
    let receives = |own: &Heap| -> Option<()> {
        let mut inbox = own.inbox(Mailbox::bind(address.as_str()).ok()?).ok()?;
        write_number(&writer, own.member().to_u64())?;
        std::mem::forget(inbox.recv().ok()?);
        write_number(&writer, 0)?;
        std::mem::forget(inbox);
        read_number(&waits).map(drop)
    };
    scope(|threads| {
        let child = threads.spawn(|| dies_after(heap, |own| receives(own).is_some()));
        let to = Member::from_u64(read_number(&reader).expect("a member"));
        let sender = Sender::connect(address.as_str()).expect("it listens");
        let mut outbox = heap.outbox(sender, to).expect("ours");
        for _ in 0..3 {
            outbox
                .send(heap.alloc(1_000).expect("space"))
                .map_err(|(error, _)| error)
                .expect("sent");
        }
        read_number(&reader).expect("it has received one");
        drop(outbox);
        assert_eq!(sound(heap).in_use(), 3 * 1_024, "a live receiver may still read them");
        write_number(&go, 0).expect("it listens");
        child.join().expect("the child succeeds");
    });
}

/// Regression: blocks that were in flight when the outbox was dropped stayed in flight after the
/// receiver's death, because only the sender may free them, and it had to call `reclaim_sent`.
#[test]
fn blocks_of_dropped_outbox_return_after_receiver_dies() {
    let heap = heap(MIB);
    leave_two_in_a_lane(&heap, "gone");
    assert_eq!(heap.recover_and_trim().expect("recovered").blocks, 3);
    assert_eq!(sound(&heap).in_use(), 0);
    assert_eq!(heap.dead_members().expect("not forked"), [], "no word names it any more");
}

/// Regression: blocks also stayed in flight if another member had recovered the receiver.
#[test]
fn sent_blocks_return_after_recovery_by_another_member() {
    let heap = heap(MIB);
    leave_two_in_a_lane(&heap, "else");
    dies_after(&heap, |own| own.recover_and_trim().is_ok_and(|recovery| recovery.blocks == 1));
    assert_eq!(sound(&heap).in_use(), 2 * 1_024);
    drop(heap.alloc(30_000).expect("space"));
    assert_eq!(sound(&heap).in_use(), 0);
}

/// Regression: blocks of a sender that died after its receiver had dropped its only inbox stayed in
/// flight until the receiver called `reclaim_received`. Blocks whose parcels the program itself
/// carries still stay in flight, because the program may read the parcels later.
#[test]
fn posted_blocks_without_inbox_are_freed_after_sender_dies() {
    let heap = heap(MIB);
    let to = heap.member();
    let dies = || {
        dies_after(&heap, |own| {
            let block = |len| own.alloc(len).ok();
            let posted = (|| block(10)?.post(to).ok())().is_some();
            posted && (|| block(1_000)?.hand_over(to).ok())().is_some()
        });
    };
    dies();
    assert_eq!(heap.recover_and_trim().expect("recovered").blocks, 0, "an inbox may still come");
    let inbox = heap.inbox(Mailbox::unbound().expect("a mailbox")).expect("ours");
    heap.recover_and_trim().expect("recovered");
    assert_eq!(sound(&heap).in_use(), 64 + 1_024);
    drop(inbox);
    assert_eq!(sound(&heap).in_use(), 1_024);
    dies();
    assert_eq!(heap.recover_and_trim().expect("recovered").blocks, 1);
    let dead = heap.dead_members().expect("not forked");
    assert_eq!((dead.len(), heap.reclaim_received(&dead).expect("not forked")), (2, 2));
    assert_eq!(sound(&heap).in_use(), 0);
}

/// Regression: a lane that could not be read to its end, because no descriptor was available for
/// its next chunk, counted as empty. The blocks that a dead sender had put into it were freed, and
/// so lost.
#[test]
fn blocks_of_dead_sender_arrive_once_descriptors_are_free() {
    const ALL: usize = 20_000;
    let heap = heap(16 * MIB);
    let address = address("short");
    let ((reader, writer), (waits, go), (ended, ends)) =
        (pipe().expect("pipe"), pipe().expect("pipe"), pipe().expect("pipe"));
    let receives = |own: &Heap| -> Option<()> {
        let mut inbox = own.inbox(Mailbox::bind(address.as_str()).ok()?).ok()?;
        write_number(&writer, own.member().to_u64())?;
        drop(inbox.recv().ok()?);
        let before = getrlimit(Resource::Nofile);
        // The thread that receives a chunk has its own descriptor table with one entry, so it
        // cannot receive a second chunk.
        setrlimit(Resource::Nofile, Rlimit { current: Some(1), ..before }).ok()?;
        write_number(&go, 0)?;
        read_number(&ended)?;
        let mut read = 1;
        for _ in 0..3 {
            while inbox.try_recv().is_ok() {
                read += 1;
            }
            own.recover_and_trim().ok()?;
        }
        assert!(read < ALL, "all blocks fit into the first chunk");
        setrlimit(Resource::Nofile, before).ok()?;
        for _ in 0..60_000 {
            while inbox.try_recv().is_ok() {
                read += 1;
            }
            if read + inbox.skipped() as usize >= ALL {
                break;
            }
            sleep(Duration::from_millis(1));
        }
        assert_eq!((read, inbox.skipped()), (ALL, 0));
        Some(())
    };
    let sends = |own: &Heap, to| -> Option<()> {
        let mut outbox = own.outbox(Sender::connect(address.as_str()).ok()?, to).ok()?;
        for number in 0..ALL {
            outbox.send(own.alloc(10).ok()?).ok()?;
            if number == 0 {
                read_number(&waits)?;
            }
        }
        std::mem::forget(outbox);
        Some(())
    };
    scope(|threads| {
        let child = threads.spawn(|| dies_after(&heap, |own| receives(own).is_some()));
        let to = Member::from_u64(read_number(&reader).expect("a member"));
        dies_after(&heap, |own| sends(own, to).is_some());
        write_number(&ends, 0).expect("it listens");
        child.join().expect("the child succeeds");
    });
    heap.recover_and_trim().expect("recovered");
    assert_eq!(sound(&heap).in_use(), 0);
}

/// Regression: if one lane ended and another began between two checks, the number of lanes was the
/// same, and the inbox did not recover the dead sender.
#[test]
fn inbox_notices_ended_lane_despite_new_lane() {
    let heap = heap(MIB);
    let address = address("as-many");
    let mut inbox = heap.inbox(Mailbox::bind(address.as_str()).expect("bound")).expect("ours");
    let to = heap.member();
    let (reader, writer) = pipe().expect("pipe");
    let (waits, go) = pipe().expect("pipe");
    let sends = |own: &Heap| -> Option<()> {
        let mut outbox = own.outbox(Sender::connect(address.as_str()).ok()?, to).ok()?;
        outbox.send(own.alloc(10).ok()?).ok()?;
        write_number(&writer, own.member().to_u64())?;
        std::mem::forget(outbox);
        read_number(&waits).map(drop)
    };
    scope(|threads| {
        let child = threads.spawn(|| dies_after(&heap, |own| sends(own).is_some()));
        drop(inbox.recv().expect("it sends one"));
        let first = Member::from_u64(read_number(&reader).expect("a member"));
        for _ in 0..3 {
            assert!(inbox.try_recv().is_err());
        }
        write_number(&go, 0).expect("it listens");
        child.join().expect("the child succeeds");
        // Only the mailbox notices that one lane ended and another began; it has one lane again.
        let _second = Sender::connect(address.as_str()).expect("we listen");
        while inbox.mailbox.departures() == 0 || inbox.mailbox.sender_count() != 1 {
            assert!(inbox.mailbox.try_recv().is_err());
        }
        assert!(heap.is_alive(first), "not recovered yet");
        assert!(inbox.try_recv().is_err());
        assert!(!heap.is_alive(first));
    });
}

/// Regression: a dead member that a word still named was recovered again at each check, and each
/// time all arenas read all their words.
#[test]
fn recovery_reports_each_death_once() {
    let heap = heap(MIB);
    let me = heap.member();
    let before = deaths(&heap);
    dies_after(&heap, |own| own.alloc(10).is_ok_and(|block| block.hand_over(me).is_ok()));
    for _ in 0..3 {
        heap.recover_and_trim().expect("recovered");
        assert_eq!(
            (deaths(&heap), heap.dead_members().map(|dead| dead.len())),
            (before + 1, Ok(1))
        );
    }
    // The recoverer may have died before it stored that the death was reported.
    let dead = heap.dead_members().expect("not forked");
    heap.core.space.member(dead[0].slot()).counted.store(0, Ordering::Relaxed);
    heap.recover_and_trim().expect("recovered");
    assert_eq!(deaths(&heap), before + 2);
    assert_eq!(heap.reclaim_received(&dead).expect("not forked"), 1);
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

static LATE_BLOCKS: AtomicU64 = AtomicU64::new(0);

/// Allocates blocks when it is dropped, at the end of its thread.
struct Late(Arc<Heap>);

impl Drop for Late {
    fn drop(&mut self) {
        // A panic here would abort the process.
        let blocks: Vec<_> = (0..100).filter_map(|_| self.0.alloc(100).ok()).collect();
        LATE_BLOCKS.fetch_add(blocks.len() as u64, Ordering::Relaxed);
    }
}

/// Regression: an allocation in a thread-local value's destructor, after the thread had abandoned
/// its arena, took another arena each time and kept it. After 2,048 allocations of this kind, no
/// arena was left.
#[test]
fn allocation_after_thread_end_borrows_arena() {
    let heap = Arc::new(heap(MIB));
    for _ in 0..3 {
        let late = Late(heap.clone());
        std::thread::spawn(move || {
            // The value is created before the thread's arena, because the value created first is
            // dropped last.
            LATE.with(|place| *place.borrow_mut() = Some(late));
            LATE.with(|late| drop(late.borrow().as_ref().map(|late| late.0.alloc(10))));
        })
        .join()
        .expect("no panic");
    }
    let own = |index: &usize| heap.core.owner_of_arena(*index) == Some(heap.member().slot());
    assert_eq!((0..layout::ARENAS).filter(own).count(), 1);
    assert_eq!(LATE_BLOCKS.load(Ordering::Relaxed), 300);
    assert_eq!(sound(&heap).in_use(), 0);
}

/// Regression: a slab whose memory was being allocated or returned counted as occupied, so a heap
/// with free space returned `Full`.
#[test]
fn alloc_waits_for_slabs_changing_hands() {
    for (state, len) in [(SlabState::Claimed, 4 * SLAB), (SlabState::Punching, 30_000)] {
        let heap = heap(4 * SLAB);
        let arena = heap.alloc(1).map(|block| heap.core.owner(block.granule() / GRANULES).arena());
        let word = SlabWord::new(state, arena.expect("space"), 0).0;
        heap.recover_and_trim().expect("recovered");
        let owners = || (0..4).map(|slab| &heap.core.space.slab(slab).owner);
        let set = |word: u64| owners().for_each(|owner| owner.store(word, Ordering::Release));
        set(word);
        assert_eq!(heap.core.claim_slabs(0, 4), Ok(SlabSearch::Later));
        assert_eq!(heap.core.claim_slab(0, SizeClass::of(len)), Ok(SlabSearch::Later));
        // If the other thread is not scheduled in time, `Full` is correct, but that does not happen
        // a hundred times in a row.
        let found = (0..100).any(|_| {
            set(word);
            scope(|threads| {
                threads.spawn(|| {
                    sleep(Duration::from_millis(2));
                    set(SlabWord::EMPTY.0);
                });
                let found = heap.alloc(len).is_ok();
                found && heap.recover_and_trim().is_ok()
            })
        });
        assert!(found, "full");
        // No member owns that arena, so `claim_slabs` does not wait for its slabs.
        set(SlabWord::new(state, layout::ARENAS - 1, 0).0);
        assert_eq!(heap.core.claim_slabs(0, 4), Ok(SlabSearch::None));
        set(SlabWord::EMPTY.0);
    }
}

/// Sends one block, once the receiver has accepted the connection.
fn send<'a>(heap: &'a Heap, outbox: &mut Outbox<'a>, inbox: &mut Inbox<'a>) -> Result<()> {
    loop {
        assert!(inbox.try_recv().is_err(), "nothing was sent");
        match outbox.try_send(heap.alloc(10)?).map_err(|(error, _)| error) {
            Err(HeapError::Mailbox(crate::Error::WouldBlock)) => {}
            answer => return answer,
        }
    }
}

/// Regression: blocks were sent to the process at the lane's other end although the outbox named
/// another member, and only that member could have accepted them.
#[test]
fn outbox_to_another_process_fails_with_wrong_member() {
    let heap = heap(MIB);
    let address = address("named");
    let mut inbox = heap.inbox(Mailbox::bind(address.as_str()).expect("bound")).expect("ours");
    let (reader, writer) = pipe().expect("pipe");
    let (waits, go) = pipe().expect("pipe");
    let waits = |own: &Heap| {
        write_number(&writer, own.member().to_u64()).and_then(|()| read_number(&waits))
    };
    scope(|threads| {
        let child = threads.spawn(|| dies_after(&heap, |own| waits(own).is_some()));
        let other = Member::from_u64(read_number(&reader).expect("a member"));
        let lane = || Sender::connect(address.as_str()).expect("we listen");
        let mut wrong = heap.outbox(lane(), other).expect("not forked");
        let mut right = heap.outbox(lane(), heap.member()).expect("not forked");
        let error = send(&heap, &mut wrong, &mut inbox).expect_err("another member");
        let me = std::process::id();
        assert!(
            matches!(error, HeapError::WrongMember { slot: 1, found, .. } if found == me),
            "{error}"
        );
        send(&heap, &mut right, &mut inbox).expect("this process");
        drop(inbox.recv().expect("it was sent"));
        write_number(&go, 0).expect("it listens");
        child.join().expect("the child succeeds");
    });
    heap.recover_and_trim().expect("recovered");
    assert_eq!(sound(&heap).in_use(), 0);
}

/// Regression: a member that recovered a dead member because it needed space kept all slabs of the
/// dead member.
#[test]
fn slabs_of_dead_member_become_available_to_all() {
    let heap = heap(MIB);
    dies_after(&heap, |heap| {
        let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(64).ok()).collect();
        let all = blocks.len() == MIB / 64;
        std::mem::forget(blocks);
        all
    });
    let _ours = heap.alloc(64).expect("a slab of the dead member");
    dies_after(&heap, |other| other.alloc(64).is_ok());
}
