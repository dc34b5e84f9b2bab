//! Tests of whole lane protocols under many random schedules that include deaths.
//!
//! Senders and a receiver ([`ends`]) grow, return memory, close, die and hand over. The operating
//! system is modelled: a [`VecDeque`](std::collections::VecDeque) replaces the queue of the socket,
//! a few words replace the control page, and a flag that is set when a thread has stopped replaces
//! the liveness word. At each access to shared state, shuttle may switch threads, and a thread may
//! die ([`pace`]). `models`, not this module, covers weak memory.

mod ends;
mod pace;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::sync::Ordering;
use ends::{HandoverSlot, MESSAGES, ScheduledMailbox, ScheduledSender, message};
use pace::{PacedThread, lives};

/// Returns the numbers of the `messages` that `sender` sent.
fn numbers(messages: &[Vec<u8>], sender: u32) -> Vec<u32> {
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let from = |bytes: &[u8]| u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let own = messages.iter().filter(|message| from(message) == sender);
    own.map(|bytes| {
        assert_eq!(*bytes, message(sender, number(bytes)), "a torn message");
        number(bytes)
    })
    .collect()
}

fn begin_senders(
    count: u32,
    pace: fn() -> PacedThread,
    door: &Arc<HandoverSlot>,
) -> Vec<SendingSchedule> {
    (0..count)
        .map(|name| {
            let (pace, door) = (pace(), door.clone());
            let sent: Arc<AtomicU32> = Arc::default();
            let counted = sent.clone();
            let handle = thread::spawn(move || {
                let back = lives(|| ScheduledSender::connect(name, pace, &door, counted).run());
                door.ended.fetch_add(1, Ordering::Relaxed);
                back
            });
            SendingSchedule { sent, handle }
        })
        .collect()
}

struct SendingSchedule {
    sent: Arc<AtomicU32>,
    /// Returns the messages that the sender took back, or `None` if the sender died.
    handle: thread::JoinHandle<Option<Vec<Vec<u8>>>>,
}

/// Runs two senders, and one receiver that closes after a random number of messages.
fn growth_and_close() {
    let door = Arc::new(HandoverSlot::default());
    let sending = begin_senders(2, PacedThread::immortal, &door);
    let most = thread_rng().gen_range(1..=2 * MESSAGES as usize);
    let mut receiver = ScheduledMailbox::new(PacedThread::immortal(), &door);
    receiver.run(2, most);
    // The receiver must not close before both senders are accepted.
    while receiver.lanes.len() < 2 {
        receiver.accept();
        thread::yield_now();
    }
    receiver.close();
    let acknowledged = receiver.taken.lock().expect("no panic").acknowledged.clone();
    for (name, one) in (0..).zip(sending) {
        let back = one.handle.join().expect("no panic").expect("immortal");
        let mut whole = numbers(&acknowledged, name);
        whole.extend(numbers(&back, name));
        let sent = one.sent.load(Ordering::Relaxed);
        assert_eq!(whole, (0..sent).collect::<Vec<_>>(), "sender {name}: lost or duplicated");
    }
}

/// Runs two receivers that die, one after the other, and a third receiver that survives.
fn succession() {
    let door = Arc::new(HandoverSlot::default());
    let sending = begin_senders(2, PacedThread::immortal, &door);
    let mut reigns = Vec::new();
    for pace in [PacedThread::mortal(), PacedThread::mortal(), PacedThread::immortal()] {
        let mut receiver = ScheduledMailbox::new(pace, &door);
        // Each receiver runs until it dies or until all messages have arrived.
        let died = lives(|| receiver.run(2, usize::MAX)).is_none();
        receiver.mark_dead();
        reigns.push(receiver.taken);
        if !died {
            break;
        }
    }
    for (name, one) in (0..).zip(sending) {
        let back = one.handle.join().expect("no panic").expect("immortal");
        assert!(back.is_empty(), "a message was not received");
        let mut acknowledged = 0;
        for taken in &reigns {
            let taken = taken.lock().expect("no panic");
            let delivered = numbers(&taken.delivered, name);
            let count = delivered.len() as u32;
            // Messages are delivered in order, starting with the first unacknowledged message. At
            // most one more message is delivered than acknowledged.
            assert_eq!(delivered, (acknowledged..acknowledged + count).collect::<Vec<_>>());
            let done = numbers(&taken.acknowledged, name).len() as u32;
            assert!(count - done <= 1, "{count} delivered, {done} acknowledged");
            acknowledged += done;
        }
        assert_eq!(acknowledged, MESSAGES);
    }
}

/// Runs two senders that die at random steps.
fn dying_senders() {
    let door = Arc::new(HandoverSlot::default());
    let sending = begin_senders(2, PacedThread::mortal, &door);
    let mut receiver = ScheduledMailbox::new(PacedThread::immortal(), &door);
    receiver.run(2, usize::MAX);
    let delivered = &receiver.taken.lock().expect("no panic").delivered;
    for (name, one) in (0..).zip(sending) {
        one.handle.join().expect("no panic");
        let sent = one.sent.load(Ordering::Relaxed);
        assert_eq!(numbers(delivered, name), (0..sent).collect::<Vec<_>>());
    }
}

/// Runs `body` under both schedulers: one switches uniformly at random, the other switches rarely
/// and at unfavourable points.
fn explore(body: fn()) {
    shuttle::check_random(body, 150);
    shuttle::check_pct(body, 150, 3);
}

#[test]
fn closed_lane_loses_no_message() {
    explore(growth_and_close);
}

#[test]
fn successor_continues_at_last_acknowledgement() {
    explore(succession);
}

#[test]
fn dead_sender_leaves_whole_messages() {
    explore(dying_senders);
}
