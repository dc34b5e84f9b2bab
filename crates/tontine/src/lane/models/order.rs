//! Models of causal order: a scan delivers no message before one that was sent before it.
//!
//! The models follow the steps of `receiver::order`: a scan reads the clock, looks at every lane,
//! and delivers the message with the smallest stamp less than that time. The lane then has a turn:
//! its fast path delivers the messages that precede the other lanes'.

use std::sync::Arc;

use loom::thread;

use super::check;
use crate::lane::reader::StampedTurn;
use crate::lane::region::models::ModelRegion;
use crate::lane::{LaneReader, LaneWriter, Peeked};
use crate::sync::weakened::InjectedFault;
use crate::sync::{AtomicU32, Ordering, clock};

const LOG2: u32 = 8;

/// A fault of the receiver that the model must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanFault {
    None,
    /// The scan reads the clock once it has looked at the lanes.
    LateClock,
    /// The scan delivers messages of any stamp.
    NoLimit,
    /// The turn of a lane has messages of any stamp before the scan.
    LongTurn,
}

/// Makes one scan. Returns the lane of the message that it delivers.
fn scan(readers: &mut [LaneReader<ModelRegion>], fault: ScanFault) -> Option<usize> {
    let mut time = clock::now();
    let mut look = |reader: &mut LaneReader<ModelRegion>| match reader.look().expect("valid") {
        Peeked::Message(_) => reader.stamp(),
        _ => None,
    };
    let stamps: Vec<_> = readers.iter_mut().map(&mut look).collect();
    match fault {
        ScanFault::None | ScanFault::LongTurn => {}
        ScanFault::LateClock => time = clock::now(),
        ScanFault::NoLimit => time = u64::MAX,
    }
    let stamped = stamps.iter().zip(0..).filter_map(|(stamp, lane)| Some(((*stamp)?, lane)));
    let mut stamped: Vec<_> = stamped.filter(|(stamp, _)| *stamp < time).collect();
    stamped.sort_unstable();
    let next = stamped.get(1).map(|(stamp, _)| *stamp);
    let next = next.filter(|_| fault != ScanFault::LongTurn);
    let (_, lane) = *stamped.first()?;
    readers[lane].begin_turn(StampedTurn::new(time, next, u64::MAX));
    Some(lane)
}

/// Runs two senders, the second of which sends once it knows that the first has sent, and a
/// receiver that makes two scans.
fn second_follows_first(fault: ScanFault) {
    let rings: Vec<ModelRegion> = (0..2).map(|_| ModelRegion::new(1 << LOG2)).collect();
    let has_sent = Arc::new(AtomicU32::new(0));
    let writer = |ring: &ModelRegion| {
        let mut writer = LaneWriter::new(ring.clone(), LOG2);
        writer.set_stamps(true);
        writer
    };
    let (mut first, mut second) = (writer(&rings[0]), writer(&rings[1]));
    // The second lane is looked at last, when its message is most likely visible.
    let begin = |ring: &ModelRegion| LaneReader::new(ring.clone(), LOG2, 0, 0).expect("valid");
    let mut readers: Vec<_> = rings.iter().map(begin).collect();
    let announced = Arc::clone(&has_sent);
    let one = thread::spawn(move || {
        first.push(b"first");
        announced.store(1, Ordering::Release);
    });
    let other = thread::spawn(move || {
        if has_sent.load(Ordering::Acquire) == 1 {
            second.push(b"second");
        }
    });
    let delivered: Vec<_> = (0..2).filter_map(|_| scan(&mut readers, fault)).collect();
    assert_ne!(delivered.first(), Some(&1), "the second message came before the first");
    one.join().expect("no panic");
    other.join().expect("no panic");
}

/// Like [`second_follows_first`], but the second sender has sent a message before, and the receiver
/// makes one scan and continues the turn of that message's lane.
fn turn_follows_first(fault: ScanFault) {
    let rings: Vec<ModelRegion> = (0..2).map(|_| ModelRegion::new(1 << LOG2)).collect();
    let has_sent = Arc::new(AtomicU32::new(0));
    let writer = |ring: &ModelRegion| {
        let mut writer = LaneWriter::new(ring.clone(), LOG2);
        writer.set_stamps(true);
        writer
    };
    let (mut first, mut second) = (writer(&rings[0]), writer(&rings[1]));
    second.push(b"early");
    let begin = |ring: &ModelRegion| LaneReader::new(ring.clone(), LOG2, 0, 0).expect("valid");
    let mut readers: Vec<_> = rings.iter().map(begin).collect();
    let announced = Arc::clone(&has_sent);
    let one = thread::spawn(move || {
        first.push(b"first");
        announced.store(1, Ordering::Release);
    });
    let other = thread::spawn(move || {
        if has_sent.load(Ordering::Acquire) == 1 {
            second.push(b"second");
        }
    });
    assert_eq!(scan(&mut readers, fault), Some(1), "the early message is the oldest");
    readers[1].advance(b"early".len());
    let looked = readers[1].look_within::<true>(0, 0).expect("valid");
    assert_eq!(looked, Peeked::Nothing, "the second message came before the first");
    one.join().expect("no panic");
    other.join().expect("no panic");
}

#[test]
fn turn_ends_before_message_that_follows_another() {
    check(InjectedFault::None, || turn_follows_first(ScanFault::None));
}

#[test]
#[should_panic(expected = "the second message came before the first")]
fn turn_without_next_message_is_detected() {
    check(InjectedFault::None, || turn_follows_first(ScanFault::LongTurn));
}

#[test]
fn scan_delivers_in_causal_order() {
    check(InjectedFault::None, || second_follows_first(ScanFault::None));
}

#[test]
#[should_panic(expected = "the second message came before the first")]
fn clock_read_after_lanes_is_detected() {
    check(InjectedFault::None, || second_follows_first(ScanFault::LateClock));
}

#[test]
#[should_panic(expected = "the second message came before the first")]
fn scan_without_time_limit_is_detected() {
    check(InjectedFault::None, || second_follows_first(ScanFault::NoLimit));
}
