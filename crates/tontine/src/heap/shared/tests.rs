//! Tests of a heap by one process and its forked children.

#![allow(unsafe_code, reason = "children join the heap, and write beyond the ends of blocks")]

use std::collections::BTreeMap;

use super::layout::SLAB;
use super::*;
use crate::sys::child::in_child;

pub(super) const MIB: usize = 1 << 20;

pub(super) fn heap(bytes: usize) -> Heap {
    Heap::create(bytes).expect("there is memory")
}

pub(super) fn sound(heap: &Heap) -> HeapReport {
    let report = heap.check().expect("not forked");
    assert_eq!(report.faults, [], "{report}");
    report
}

#[test]
fn allocated_blocks_are_distinct_and_reusable() {
    let heap = heap(MIB);
    let mut blocks = Vec::new();
    for len in [0, 1, 64, 65, 100, 1_000, 32 << 10, (32 << 10) + 1, 64 << 10, 200_000] {
        let mut block = heap.alloc(len).expect("there is space");
        assert_eq!((block.len(), block.as_ptr().addr() % 64), (len, 0));
        block.fill(blocks.len() as u8);
        blocks.push(block);
    }
    for (byte, block) in blocks.iter().enumerate() {
        assert!(block.iter().all(|found| *found == byte as u8));
    }
    assert!(sound(&heap).in_use() > 300_000);
    drop(blocks);
    assert_eq!(sound(&heap).in_use(), 0);
    heap.recover_and_trim().expect("nothing to do");
    assert_eq!(sound(&heap).committed(), 0);
}

#[test]
fn full_shared_heap_returns_full_until_block_is_freed() {
    let heap = heap(4 * SLAB);
    for len in [64, 3_000, 32 << 10, 64 << 10] {
        let mut blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(len).ok()).collect();
        assert_eq!(blocks.len(), 4 * SizeClass::of(len).blocks(), "{len}");
        let error = heap.alloc(len).expect_err("it is full");
        assert!(matches!(error, HeapError::Full { max: 0x40000, .. }), "{error}");
        sound(&heap);
        blocks.pop();
        drop(heap.alloc(len).expect("one was freed"));
        drop(blocks);
        assert_eq!(sound(&heap).in_use(), 0);
    }
}

/// Regression: a thread that had freed large blocks kept their slabs for its next large blocks, so
/// that the allocation of a small block failed with `Full`.
#[test]
fn freed_large_blocks_serve_small_blocks() {
    let heap = heap(4 * SLAB);
    for slabs in [1, 2, 4] {
        let large: Vec<_> = std::iter::from_fn(|| heap.alloc(slabs * SLAB).ok()).collect();
        assert_eq!(large.len(), 4 / slabs);
        drop(large);
        let small: Vec<_> = std::iter::from_fn(|| heap.alloc(30_000).ok()).collect();
        assert_eq!(small.len(), 8);
    }
    sound(&heap);
}

#[test]
fn handle_claimed_twice_is_stale() {
    let heap = heap(MIB);
    let mut block = heap.alloc(100).expect("there is space");
    block[0] = 42;
    let handle = block.into_handle();
    let block = heap.claim(handle).expect("it is ours");
    assert_eq!((block[0], block.len()), (42, 128));
    let twice = heap.claim(handle).expect_err("it was claimed").to_string();
    assert!(twice.contains("is stale") && twice.contains("pid "), "{twice}");
    let handle = block.into_handle();
    heap.free(handle).expect("it is ours");
    let twice = heap.free(handle).expect_err("it is free").to_string();
    assert!(twice.contains("the block is free (generation"), "{twice}");
    for (off, why) in [(1, "multiple of 64"), (64, "inside a block"), (1 << 40, "multiple of 64")] {
        let wrong = Handle { offset: handle.offset + off, ..handle };
        let error = heap.claim(wrong).expect_err("no block").to_string();
        assert!(error.contains(why), "{error}");
    }
    let empty = Handle { offset: handle.offset + (8 * SLAB) as u64, ..handle };
    let error = heap.claim(empty).expect_err("no block").to_string();
    assert!(error.contains("the slab there has no blocks"), "{error}");
}

#[test]
fn block_freed_by_another_thread_is_free() {
    let heap = heap(16 * MIB);
    let (send, receive) = std::sync::mpsc::sync_channel::<Block<'_>>(100);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (number, block) in receive.into_iter().enumerate() {
                assert_eq!(block[0], number as u8);
            }
        });
        for number in 0..200_000 {
            let mut block = heap.alloc(64 + number % 700).expect("it is freed in time");
            block[0] = number as u8;
            send.send(block).expect("the other thread receives");
        }
        drop(send);
    });
    assert_eq!(sound(&heap).in_use(), 0);
}

#[test]
fn slabs_of_ended_thread_serve_another_thread() {
    let heap = heap(4 * SLAB);
    let kept = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(1_000).ok()).collect();
            assert_eq!(blocks.len(), 256);
            blocks.truncate(3);
            blocks
        });
        thread.join().expect("no panic")
    });
    let blocks: Vec<_> = std::iter::from_fn(|| heap.alloc(1_000).ok()).collect();
    assert_eq!(blocks.len() + kept.len(), 256);
    sound(&heap);
}

/// Runs `body` in a child that joins the heap and calls `_exit`, as if it were killed.
pub(super) fn dies_after(heap: &Heap, body: impl FnOnce(&Heap) -> bool) {
    assert!(in_child(|| {
        // SAFETY: the child has only the inherited descriptor, which stays open.
        let Ok(own) = (unsafe { heap.rejoin() }) else { return false };
        let well = body(&own);
        std::mem::forget(own);
        well
    }));
}

#[test]
fn blocks_of_dead_member_are_freed() {
    let heap = heap(MIB);
    let ours = heap.alloc(100).expect("there is space");
    dies_after(&heap, |heap| {
        let blocks: Vec<_> = (0..5_000).filter_map(|_| heap.alloc(100).ok()).collect();
        let large = heap.alloc(200_000).ok();
        let some = blocks.len() == 5_000 && large.is_some();
        std::mem::forget((blocks, large));
        some
    });
    assert!(heap.check().expect("not forked").in_use() > 700_000);
    let recovery = heap.recover_and_trim().expect("dead members are recovered");
    assert_eq!((recovery.members, recovery.blocks), (1, 5_001));
    let report = sound(&heap);
    assert_eq!(report.in_use(), 128);
    drop(ours);
    assert_eq!(heap.recover_and_trim().expect("nothing to do").members, 0);
    // The whole heap is available again.
    let all: Vec<_> = std::iter::from_fn(|| heap.alloc(64 << 10).ok()).collect();
    assert_eq!(all.len(), 16);
}

#[test]
fn handed_over_block_outlives_dead_sender() {
    let heap = heap(MIB);
    let me = heap.member();
    let mut pipe = std::io::pipe().expect("pipe");
    dies_after(&heap, |heap| {
        use std::io::Write as _;
        let mut send = || -> Option<()> {
            for number in 0..100 {
                let mut block = heap.alloc(300).ok()?;
                block.fill(number);
                let parcel = block.hand_over(me).ok()?;
                pipe.1.write_all(&parcel.to_bytes()).ok()?;
            }
            // The child holds two blocks at its end, and never sends the parcels of two others.
            std::mem::forget((heap.alloc(300).ok()?, heap.alloc(300).ok()?));
            for _ in 0..2 {
                let _ = heap.alloc(300).ok()?.hand_over(me).ok()?;
            }
            Some(())
        };
        send().is_some()
    });
    assert_eq!(heap.recover_and_trim().expect("recovered").blocks, 2);
    let dead = heap.dead_members().expect("not forked");
    let mut blocks = BTreeMap::new();
    for number in 0..100 {
        use std::io::Read as _;
        let mut bytes = [0; Parcel::SIZE];
        pipe.0.read_exact(&mut bytes).expect("a parcel");
        let parcel = Parcel::from_bytes(bytes);
        let block = heap.accept(parcel).expect("it was sent to us");
        assert!(block.len() == 300 && block.iter().all(|byte| *byte == number));
        let twice = heap.accept(parcel).expect_err("it was accepted");
        assert!(matches!(twice, HeapError::Stale { .. }), "{twice}");
        blocks.insert(number, block);
    }
    assert_eq!(heap.reclaim_received(&dead).expect("not forked"), 2);
    drop(blocks);
    assert_eq!(sound(&heap).in_use(), 0);
    // No word names the dead member any more: its slot is free.
    heap.recover_and_trim().expect("recovered");
    dies_after(&heap, |heap| heap.member().slot() == 1);
}

#[test]
fn block_sent_to_dead_member_returns_to_sender() {
    let heap = heap(MIB);
    let (mut read, mut write) = std::io::pipe().expect("pipe");
    dies_after(&heap, |heap| {
        use std::io::Write as _;
        write.write_all(&heap.member().to_u64().to_le_bytes()).is_ok()
    });
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut read, &mut bytes).expect("a member");
    let child = Member::from_u64(u64::from_le_bytes(bytes));
    // The child counts as alive until a member has recovered it.
    assert!(heap.is_alive(child));
    let first = heap.alloc(10).expect("space").hand_over(child).expect("it counts as alive");
    let _second = heap.alloc(10).expect("space").hand_over(child).expect("it counts as alive");
    heap.recover_and_trim().expect("recovered");
    assert!(!heap.is_alive(child));
    drop(heap.take_back(first).expect("not accepted"));
    assert_eq!(heap.reclaim_sent(child).expect("not forked"), 1);
    let (error, block) = heap.alloc(10).expect("space").hand_over(child).expect_err("it is dead");
    assert!(matches!(error, HeapError::MemberDead { slot: 1 }), "{error}");
    drop(block);
    assert_eq!(sound(&heap).in_use(), 0);
}

#[test]
fn canary_error_names_overrun_block() {
    let heap = HeapOptions::new(MIB).canaries(true).create().expect("there is memory");
    for (len, beyond) in [(100, 0), (100, 27), (112, 0), (112, 8), (112, 15), (60_000, 0)] {
        let mut block = heap.alloc(len).expect("space");
        let offset = block.offset();
        block.check_canary().expect("nothing was written");
        // SAFETY: the byte is within the mapping; the write is the mistake that a canary detects.
        unsafe { *block.as_mut_ptr().add(len + beyond) ^= 0x11 };
        let report = heap.check().expect("not forked");
        assert_eq!(report.faults.len(), 1, "{report}");
        let error = block.free().expect_err("it was overrun");
        let pid = std::process::id();
        assert!(
            matches!(error, HeapError::Overrun { offset: at, requested, pid: whose, .. }
                if (at, requested, whose) == (offset, len, pid)),
            "{len} + {beyond}: {error}"
        );
    }
    assert_eq!(sound(&heap).in_use(), 0);
    let handle = heap.alloc(33).expect("space").into_handle();
    assert_eq!(heap.claim(handle).expect("ours").len(), 33, "the requested length");
}

/// Returns an address for a mailbox that no other test uses.
pub(super) fn address(name: &str) -> String {
    format!("@tontine-heap-{name}-{}", std::process::id())
}

#[test]
fn mailbox_passes_blocks_without_copy() {
    use crate::mailbox::{Mailbox, Sender};
    // All 20 MB fit, because the child may send every block before the first is received.
    let heap = heap(64 * MIB);
    let address = address("copy");
    let mut inbox = heap.inbox(Mailbox::bind(address.as_str()).expect("bound")).expect("ours");
    let to = heap.member();
    // The child sends blocks, and dies while it holds one and some are in its lane.
    let sends = |own: &Heap| -> Option<()> {
        let sender = Sender::connect(address.as_str()).ok()?;
        let mut outbox = own.outbox(sender, to).ok()?;
        for number in 0..1_000_usize {
            let mut block = own.alloc(1 + number * 40).ok()?;
            block.fill(number as u8);
            outbox.send(block).ok()?;
        }
        std::mem::forget((own.alloc(100).ok()?, outbox));
        Some(())
    };
    let child = std::thread::scope(|scope| {
        let sent = scope.spawn(|| dies_after(&heap, |own| sends(own).is_some()));
        for number in 0..1_000_usize {
            let (block, _) = inbox.recv().expect("the next one");
            assert_eq!(block.len(), 1 + number * 40);
            assert!(block.iter().all(|byte| *byte == number as u8));
        }
        sent.join()
    });
    child.expect("the child succeeds");
    assert_eq!(inbox.try_recv().err(), Some(crate::Error::WouldBlock.into()));
    heap.recover_and_trim().expect("recovered");
    assert_eq!((inbox.skipped(), sound(&heap).in_use()), (0, 0));
}

#[test]
fn outbox_takes_back_blocks_of_dead_receiver() {
    use crate::mailbox::{Mailbox, Sender};
    let heap = heap(16 * MIB);
    let address = address("back");
    let (mut read, write) = std::io::pipe().expect("pipe");
    let receives = |own: &Heap| -> Option<()> {
        use std::io::Write as _;
        let mut inbox = own.inbox(Mailbox::bind(address.as_str()).ok()?).ok()?;
        (&write).write_all(&own.member().to_u64().to_le_bytes()).ok()?;
        for _ in 0..10 {
            std::mem::forget(inbox.recv().ok()?);
        }
        std::mem::forget(inbox);
        Some(())
    };
    std::thread::scope(|scope| {
        let child = scope.spawn(|| dies_after(&heap, |own| receives(own).is_some()));
        let mut bytes = [0; 8];
        std::io::Read::read_exact(&mut read, &mut bytes).expect("a member");
        let to = Member::from_u64(u64::from_le_bytes(bytes));
        let sender = Sender::connect(address.as_str()).expect("it listens");
        let mut outbox = heap.outbox(sender, to).expect("ours");
        let mut sent = 0;
        let refused = loop {
            match outbox.send(heap.alloc(1_000).expect("space")) {
                Ok(()) => sent += 1,
                Err((error, block)) => break (error, block.len()),
            }
            if sent > 10 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        child.join().expect("the child succeeds");
        assert!(
            matches!(refused.0, HeapError::Mailbox(_) | HeapError::MemberDead { .. }),
            "{}",
            refused.0
        );
        assert_eq!(refused.1, 1_000);
        let unread = outbox.take_unread().expect("it is dead");
        assert_eq!(unread.len(), sent - 10);
        drop(unread);
        assert_eq!(heap.recover_and_trim().expect("recovered").blocks, 10, "the child's blocks");
    });
    assert_eq!(sound(&heap).in_use(), 0);
}

#[test]
fn arrays_grow_and_are_handed_over_as_blocks() {
    for canaries in [false, true] {
        let heap = HeapOptions::new(16 * MIB).canaries(canaries).create().expect("there is memory");
        let mut array = Array::<u64>::new(&heap).expect("space");
        for number in 0..100_000 {
            array.push(number).expect("space");
        }
        assert_eq!(array.pop(), Some(99_999));
        array.truncate(70_000);
        array[3] = 42;
        let mut array = Array::<u64>::from_block(&heap, array.into_block());
        assert_eq!((array.len(), array[3], array[69_999]), (70_000, 42, 69_999));
        assert!(array.capacity() >= 100_000);
        let too_many = vec![0; 4 * MIB];
        let error = array.extend_from_slice(&too_many).expect_err("no space");
        assert!(matches!(error, HeapError::Full { .. }), "{error}");
        assert_eq!(array.len(), 70_000);
        sound(&heap);
        drop(array);
        assert_eq!(sound(&heap).in_use(), 0);
    }
}

#[test]
fn published_block_is_readable_until_withdrawn() {
    let heap = heap(MIB);
    let mut block = heap.alloc(40).expect("space");
    block.copy_from_slice(&[7; 40]);
    let unpublished = Handle { offset: block.offset(), generation: 0 };
    assert!(heap.load(unpublished, 0).is_err(), "not published yet");
    let published = block.publish().expect("it is sound");
    let handle = published.handle();
    heap.set_root(Some(handle)).expect("not forked");
    dies_after(&heap, |heap| {
        let Ok(Some(root)) = heap.root() else { return false };
        let mut bytes = [0; 40];
        heap.read(root, &mut bytes) == Ok(40)
            && bytes == [7; 40]
            && heap.load(root, 4) == Ok(u64::from_ne_bytes([7; 8]))
            && heap.claim(root).is_err()
            && heap.free(root).is_err()
    });
    published.store(0, 99);
    assert_eq!((heap.load(handle, 0), published.load(0)), (Ok(99), 99));
    let block = published.withdraw();
    assert_eq!((block[0], block[8]), (99, 7));
    let stale = heap.read(handle, &mut [0; 8]).expect_err("withdrawn");
    assert!(matches!(stale, HeapError::Stale { .. }), "{stale}");
}

#[test]
fn role_successor_receives_published_blocks() {
    let role = std::num::NonZeroU32::new(5).expect("not 0");
    let heap = heap(MIB);
    dies_after(&heap, |heap| {
        let Ok(none) = heap.take_over_role(role) else { return false };
        let all = (0..100).map(|number| {
            let block = heap.alloc_zeroed(64).ok()?.publish().ok()?;
            block.store(0, number);
            if number == 17 {
                heap.set_root(Some(block.handle())).ok()?;
            }
            std::mem::forget(block);
            Some(())
        });
        // The child does not publish this block.
        let count = all.flatten().count();
        std::mem::forget(heap.alloc(64).ok());
        none.is_empty() && count == 100
    });
    let root = heap.root().expect("not forked").expect("it was set");
    assert_eq!(heap.recover_and_trim().expect("recovered").blocks, 1, "the unpublished block");
    assert_eq!(heap.load(root, 0), Ok(17), "the handle is still valid");
    // If a successor dies after it has taken over, the next successor receives all blocks.
    dies_after(&heap, |heap| {
        let Ok(taken) = heap.take_over_role(role) else { return false };
        let all = taken.len() == 100;
        std::mem::forget(taken);
        all
    });
    let taken = heap.take_over_role(role).expect("no other member has it");
    let mut numbers: Vec<_> = taken.iter().map(|block| block.load(0)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert_eq!(heap.load(root, 0), Ok(17), "the handle is still valid");
    dies_after(&heap, |heap| {
        let refused = heap.take_over_role(role).err().map(|error| error.to_string());
        refused.is_some_and(|error| error.contains("which lives"))
    });
    drop(taken);
    assert!(heap.load(root, 0).is_err());
    heap.recover_and_trim().expect("recovered");
    assert_eq!(sound(&heap).in_use(), 0);
}

/// A forged handle with the offset and generation of a block in use is stale.
#[test]
fn forged_handle_of_held_block_is_stale() {
    let heap = heap(MIB);
    let block = heap.alloc(64).expect("space");
    for generation in 0..3 {
        let made_up = Handle { offset: block.offset(), generation };
        assert!(matches!(heap.claim(made_up), Err(HeapError::Stale { .. })));
        assert!(matches!(heap.free(made_up), Err(HeapError::Stale { .. })));
    }
    for len in [usize::MAX, usize::MAX - 20, 2 * MIB] {
        assert!(
            matches!(heap.alloc(len), Err(HeapError::Full { requested, .. }) if requested == len)
        );
    }
}

/// `reclaim_received` does not free the blocks of a member that now has the slot of a dead member.
#[test]
fn reclaim_received_spares_new_member_in_slot() {
    let heap = heap(MIB);
    let parcel = heap.alloc(64).expect("space").hand_over(heap.member()).expect("it lives");
    let earlier = Member::new(heap.member().slot(), heap.member().epoch() - 1);
    assert_eq!(heap.core.reclaim_received(&[earlier, heap.member()], false), 0);
    drop(heap.accept(parcel).expect("not freed"));
}

#[test]
fn block_length_survives_resize_and_handover() {
    let heap = heap(4 << 20);
    for len in [0, 1, 32_768, 32_769, 65_534, 65_535, 65_536, 1 << 20] {
        let mut block = heap.alloc(len).expect("space");
        assert_eq!(
            (block.len(), format!("{block:?}").contains(&format!("len: {len} "))),
            (len, true)
        );
        block.resize(len / 2);
        assert_eq!(block.len(), len / 2);
        block.resize(len);
        let parcel = block.hand_over(heap.member()).expect("it lives");
        assert_eq!(heap.accept(parcel).expect("ours").len(), len);
    }
}

#[test]
fn block_from_raw_pointer_keeps_length_and_bytes() {
    let heap = heap(4 << 20);
    for len in [1, 100, 65_535, 100_000] {
        let mut block = heap.alloc(len).expect("space");
        block.fill(7);
        let offset = block.offset();
        let raw = block.into_raw();
        assert_eq!(raw.len(), len);
        // SAFETY: the pointer is from `into_raw`, and is turned into a block once.
        let block = unsafe { Block::from_raw_in(raw, &heap) };
        assert_eq!((block.offset(), block.len()), (offset, len));
        assert!(block.iter().all(|byte| *byte == 7));
    }
    assert_eq!(sound(&heap).in_use(), 0);
}

#[test]
fn recover_keeps_slabs_of_dead_member_for_next_blocks() {
    let heap = heap(4 * MIB);
    dies_after(&heap, |heap| {
        let blocks: Vec<_> = (0..10_000).filter_map(|_| heap.alloc(100).ok()).collect();
        let all = blocks.len() == 10_000;
        std::mem::forget(blocks);
        all
    });
    let committed = sound(&heap).committed();
    let recovery = heap.recover().expect("it can be recovered");
    assert_eq!(
        (recovery.members, recovery.blocks, recovery.given_back),
        (1, 10_000, 0),
        "{recovery:?}"
    );
    assert_eq!(recovery.kept, 20, "{recovery:?}");
    assert_eq!(sound(&heap).committed(), committed, "no memory was returned");
    let blocks: Vec<_> = (0..1_000).map(|_| heap.alloc(1_000).expect("space")).collect();
    assert_eq!(sound(&heap).committed(), committed, "the kept slabs are used");
    drop(blocks);
    heap.recover_and_trim().expect("dead members are recovered");
    assert_eq!((sound(&heap).committed(), sound(&heap).in_use()), (0, 0));
}
