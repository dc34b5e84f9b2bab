//! Models of going to sleep: no end sleeps while a message or free space is available to it.
//!
//! In both protocols, each end stores its own word and then loads the other end's word (Dekker's
//! algorithm). At least one end must see the other's store. In these models, the barrier between
//! the two steps is a full fence on both sides. This is exactly the symmetric mode. It also stands
//! for the asymmetric mode, in which the `membarrier` call of the end that goes to sleep executes
//! the *other* end's fence. That fence takes effect at a point of the other end's program that is
//! either after its store or before its load. Loom cannot express this. The model's fence is
//! between the store and the load, which covers both cases. `sys::membarrier` and
//! `docs/internals/layout.md` argue that the kernel and `sys::membarrier::light` provide such a
//! fence; the models do not show this.

use std::sync::Arc;

use loom::thread;

use super::check;
use crate::lane::position;
use crate::lane::region::models::ModelRegion;
use crate::lane::{FreeSpace, LaneReader, LaneWriter, Peeked};
use crate::sync::weakened::{InjectedFault, fault, models};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

const LOG2: u32 = 8;
/// Message length in bytes at which two messages fill the ring.
const LONG: usize = 40;

/// Executes the barrier of one end, unless the model omits it.
fn barrier(missing: bool) {
    if !missing {
        // SYNC doorbell: pairs with the same fence at the other end; the model is the proof.
        fence(Ordering::SeqCst);
    }
}

/// Performs the steps of `Sender::send` from the header store to the end. Returns `true` if it rang
/// the doorbell.
fn send_and_ring(mut writer: LaneWriter<ModelRegion>, sleeping: &AtomicU32) -> bool {
    writer.push(b"contents");
    barrier(matches!(fault(), InjectedFault::WakerUnfenced));
    sleeping.load(Ordering::Relaxed) != 0
}

/// Performs the steps of `Mailbox::sleep` that precede its wait. Returns one flag per lane, which
/// is `true` if the lane had a record.
fn announce_and_look(readers: &mut [LaneReader<ModelRegion>], sleeping: &AtomicU32) -> Vec<bool> {
    sleeping.store(1, Ordering::Relaxed);
    barrier(matches!(fault(), InjectedFault::SleeperUnfenced));
    let look =
        |reader: &mut LaneReader<ModelRegion>| reader.look().expect("valid") != Peeked::Nothing;
    readers.iter_mut().map(look).collect()
}

/// Runs one receiver that goes to sleep, and `senders` senders with one message each.
fn mail_for_a_sleeper(senders: usize) {
    let sleeping = Arc::new(AtomicU32::new(0));
    let rings: Vec<ModelRegion> = (0..senders).map(|_| ModelRegion::new(1 << LOG2)).collect();
    let begin =
        |ring: &ModelRegion| LaneReader::new(ring.clone(), LOG2, 0, 0).expect("a valid position");
    let mut readers: Vec<_> = rings.iter().map(begin).collect();
    let sending: Vec<_> = rings
        .into_iter()
        .map(|ring| {
            let (writer, sleeping) = (LaneWriter::new(ring, LOG2), sleeping.clone());
            thread::spawn(move || send_and_ring(writer, &sleeping))
        })
        .collect();
    let seen = announce_and_look(&mut readers, &sleeping);
    let rung: Vec<bool> = sending.into_iter().map(|one| one.join().expect("no panic")).collect();
    // The receiver wakes at any ring, and sleeps only if it saw no record in any lane.
    if !seen.contains(&true) {
        assert!(!rung.contains(&false), "a sleeping receiver missed a message");
    }
}

/// Runs a receiver that waits twice under the `numbers`, and a sender that sends two messages and
/// rings at most once per number.
fn mail_for_numbered_waits(numbers: [u32; 2]) {
    let sleeping = Arc::new(AtomicU32::new(0));
    let ring = ModelRegion::new(1 << LOG2);
    let mut reader = LaneReader::new(ring.clone(), LOG2, 0, 0).expect("a valid position");
    let mut writer = LaneWriter::new(ring, LOG2);
    // The event that the receiver's set holds, under a lock of the kernel, until a wait takes it.
    let event = Arc::new(AtomicU32::new(0));
    let sending = {
        let (sleeping, event) = (sleeping.clone(), event.clone());
        thread::spawn(move || {
            let mut rung = 0;
            for _ in 0..2 {
                writer.push(b"contents");
                barrier(false);
                let wait = sleeping.load(Ordering::Relaxed);
                if wait != 0 && wait != rung {
                    event.swap(1, Ordering::AcqRel);
                    rung = wait;
                }
            }
        })
    };
    let mut received = 0;
    let mut slept = None;
    for number in numbers {
        // These are the steps of `Mailbox::sleep`.
        sleeping.store(number, Ordering::Relaxed);
        barrier(false);
        while let Peeked::Message(length) = reader.look().expect("valid") {
            reader.advance(length);
            received += 1;
        }
        // The kernel ends the wait and takes the event, or the receiver sleeps until there is one.
        if event.swap(0, Ordering::AcqRel) == 0 {
            slept = Some(number);
            break;
        }
        sleeping.store(0, Ordering::Relaxed);
    }
    sending.join().expect("no panic");
    // After the last wait, the receiver would check again.
    let woken = slept.is_none() || event.load(Ordering::Acquire) == 1;
    assert!(woken || received == 2, "a sleeping receiver missed a message");
}

models! {
    ring_once_per_numbered_wait_misses_no_message:
        check(InjectedFault::None, || mail_for_numbered_waits([1, 2]));
    wait_with_number_of_last_wait_loses_wake_up:
        check(InjectedFault::None, || mail_for_numbered_waits([1, 1])) => "missed a message";
}

#[test]
fn sleeping_receiver_misses_no_message() {
    check(InjectedFault::None, || mail_for_a_sleeper(1));
    check(InjectedFault::None, || mail_for_a_sleeper(2));
}

models! {
    sender_without_fence_loses_wake_up:
        check(InjectedFault::WakerUnfenced, || mail_for_a_sleeper(1)) => "missed a message";
    receiver_without_fence_loses_wake_up:
        check(InjectedFault::SleeperUnfenced, || mail_for_a_sleeper(1)) => "missed a message";
}

/// Runs a sender that leaves two empty chunks and a message in the third, and a receiver that
/// follows up to `looked_through` changes of chunks before it sleeps.
fn mail_behind_empty_chunks(looked_through: usize) {
    let sleeping = Arc::new(AtomicU32::new(0));
    let chunks: Vec<ModelRegion> = (0..3).map(|_| ModelRegion::new(1 << LOG2)).collect();
    let mut reader = LaneReader::new(chunks[0].clone(), LOG2, 0, 0).expect("a valid position");
    let mut passed = chunks[1..].to_vec().into_iter();
    let sending = {
        let sleeping = sleeping.clone();
        thread::spawn(move || {
            let mut chunks = chunks.into_iter();
            let mut writer = LaneWriter::new(chunks.next().expect("the first"), LOG2);
            chunks.for_each(|chunk| writer.go_on_in(chunk, LOG2));
            send_and_ring(writer, &sleeping)
        })
    };
    // These are the steps of `Mailbox::sleep` that precede its wait, with the steps of
    // `InboundLane::follow` in the middle.
    sleeping.store(1, Ordering::Relaxed);
    barrier(matches!(fault(), InjectedFault::SleeperUnfenced));
    let mut found = reader.look().expect("valid");
    for _ in 0..looked_through {
        if let Peeked::Next(log2) = found {
            reader.follow(passed.next().expect("passed before"), log2);
            found = reader.look().expect("valid");
        }
    }
    let rung = sending.join().expect("no panic");
    let seen = matches!(found, Peeked::Message(_));
    assert!(seen || rung, "a sleeping receiver missed a message");
}

models! {
    message_after_empty_chunks_is_not_missed:
        check(InjectedFault::None, || mail_behind_empty_chunks(2));
    check_of_only_one_empty_chunk_loses_wake_up:
        check(InjectedFault::None, || mail_behind_empty_chunks(1)) => "missed a message";
}

/// Runs a sender that waits for space in a full ring, and a receiver that frees space.
fn space_for_a_sleeper() {
    let (waiting, place) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let ring = ModelRegion::new(1 << LOG2);
    let mut reader = LaneReader::new(ring.clone(), LOG2, 0, 0).expect("a valid position");
    let mut writer = LaneWriter::new(ring, LOG2);
    writer.push(&[1; LONG]);
    writer.push(&[2; LONG]);
    let sending = {
        let (waiting, place) = (waiting.clone(), place.clone());
        thread::spawn(move || {
            // These are the steps of `Sender::sleep` that precede its wait.
            waiting.store(1, Ordering::Relaxed);
            barrier(matches!(fault(), InjectedFault::SleeperUnfenced));
            writer.believe(position::read(&place)).expect("an honest receiver");
            writer.make_space(LONG) == FreeSpace::Here
        })
    };
    // Each pass performs the steps of `InboundLane::ack` and `notify_space`. The third message
    // needs the space of the first two.
    for _ in 0..2 {
        assert_eq!(reader.look(), Ok(Peeked::Message(LONG)));
        reader.advance(LONG);
        position::publish(&place, reader.position());
    }
    barrier(matches!(fault(), InjectedFault::WakerUnfenced));
    let notified = waiting.load(Ordering::Relaxed) != 0;
    let found = sending.join().expect("no panic");
    assert!(found || notified, "a sleeping sender missed free space");
}

models! {
    waiting_sender_misses_no_free_space: check(InjectedFault::None, space_for_a_sleeper);
    receiver_without_fence_leaves_sender_asleep:
        check(InjectedFault::WakerUnfenced, space_for_a_sleeper) => "missed free space";
    waiting_sender_without_fence_stays_asleep:
        check(InjectedFault::SleeperUnfenced, space_for_a_sleeper) => "missed free space";
}
