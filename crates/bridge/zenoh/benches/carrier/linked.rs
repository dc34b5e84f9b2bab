//! The protocol in the programs themselves, without gateways: records in the memory of one, over
//! [`tontine_gateway::outgoing`], [`tontine_zenoh::ZenohLink`] and [`tontine_gateway::incoming`],
//! to the other, which acknowledges each record as it arrives.

use std::time::Instant;

use tontine_gateway::frame::{FrameKind, Header, MAX_PAYLOAD};
use tontine_gateway::incoming::{IncomingLane, Reply};
use tontine_gateway::link::{Link, LinkEvent, Queued};
use tontine_gateway::outgoing::{FrameFiller, OutgoingLane};
use tontine_zenoh::ZenohLink;

use crate::link::{PEER, link, send, wait};
use crate::{DURATION, SHORT, median_round_trip, megabytes};

/// Bytes of a record in its lane.
const RECORD: u64 = SHORT as u64 + 8;
/// Bytes that the far program grants, as a gateway does.
const GRANT: u64 = 8 << 20;
/// Records that are written before a frame is filled: those that fill it.
const BATCH: u64 = (MAX_PAYLOAD as u64).div_ceil(RECORD);
/// Maximum number of events between two frames or answers.
const EVENTS: usize = 64;

/// The sending program: its records, the lane and the link.
struct LinkedSender {
    link: ZenohLink,
    lane: OutgoingLane,
    /// The records that are not acknowledged, at their positions modulo the length.
    ring: Vec<u8>,
    /// The position after the last record.
    written: u64,
    frame: Vec<u8>,
}

impl LinkedSender {
    fn open(endpoint: &str) -> Self {
        let lane = OutgoingLane::new(1, 0, 0, SHORT as u64);
        let link = link("near", "far", endpoint);
        let ring = vec![0; (2 * GRANT / RECORD * RECORD) as usize];
        let mut sender = Self { link, lane, ring, written: 0, frame: Vec::new() };
        sender.lane.hello().write(&[], &mut sender.frame);
        send(&mut sender.link, &mut sender.frame);
        while !sender.lane.is_open() {
            sender.read(true);
        }
        sender
    }

    /// Writes a record, if there is space.
    fn write(&mut self) -> bool {
        if self.written + RECORD - self.lane.acknowledged() > self.ring.len() as u64 {
            return false;
        }
        let at = (self.written % self.ring.len() as u64) as usize + 8;
        self.ring[at..at + SHORT].fill(7);
        self.written += RECORD;
        true
    }

    /// Sends a frame with records that were not sent yet. Returns `false` if it cannot.
    fn pump(&mut self) -> bool {
        let Some((next, _)) = self.lane.window().filter(|(next, _)| *next < self.written) else {
            return false;
        };
        let mut filler = FrameFiller::new(&self.lane, &mut self.frame);
        let mut position = next / RECORD * RECORD;
        while position < self.written {
            let at = (position % self.ring.len() as u64) as usize + 8;
            let record = &self.ring[at..at + SHORT];
            let copy = |range, into: &mut Vec<u8>| into.extend_from_slice(&record[range]);
            if !filler.offer(position, position + RECORD, SHORT, copy) {
                break;
            }
            position += RECORD;
        }
        let Some(end) = filler.finish() else { return false };
        self.lane.on_sent(end);
        while self.link.try_send(PEER, &mut self.frame) == Queued::Full {
            self.read(true);
        }
        true
    }

    /// Processes answers. If there are none, and `waits`, waits for the next event.
    fn read(&mut self, waits: bool) {
        for count in 0..EVENTS {
            match self.link.poll() {
                Some(LinkEvent::Frame { bytes, .. }) => {
                    let (status, _) = Header::read(bytes).expect("a frame");
                    let progress = self.lane.on_status(&status, 0).expect("an honest status");
                    assert!(!progress.rewound && !progress.greet, "a frame was lost");
                }
                Some(_) => {}
                None if waits && count == 0 => return wait(&self.link),
                None => return,
            }
        }
    }

    fn settle(&mut self) {
        while self.lane.acknowledged() < self.written {
            while self.pump() {}
            self.read(true);
        }
    }
}

/// Returns the rate of the records' bytes, from the first record written to the last acknowledged.
pub(crate) fn throughput(endpoint: &str) -> f64 {
    let mut sender = LinkedSender::open(endpoint);
    let start = Instant::now();
    while start.elapsed() < DURATION {
        let full = (0..BATCH).any(|_| !sender.write());
        let pumped = sender.written - sender.lane.sent() >= BATCH * RECORD && sender.pump();
        sender.read(full && !pumped);
    }
    sender.settle();
    megabytes(sender.written / RECORD * SHORT as u64, start)
}

/// Returns the median duration from a record written to the same record acknowledged.
pub(crate) fn round_trip(endpoint: &str) -> f64 {
    let mut sender = LinkedSender::open(endpoint);
    median_round_trip(|| {
        assert!(sender.write());
        sender.settle();
    })
}

/// Acknowledges all records.
pub(crate) fn owner(endpoint: &str) {
    let mut link = link("far", "near", endpoint);
    let mut lane: Option<IncomingLane> = None;
    let mut answer = Vec::new();
    loop {
        let mut reply = Reply::Nothing;
        for _ in 0..EVENTS {
            let bytes = match link.poll() {
                Some(LinkEvent::Frame { bytes, .. }) => bytes,
                Some(_) => continue,
                None => break,
            };
            let (header, payload) = Header::read(bytes).expect("a frame");
            if header.kind == FrameKind::Hello {
                lane = Some(IncomingLane::new(&header, 1, GRANT));
                reply = Reply::Status;
            } else if let Some(lane) = &mut lane {
                let mut acknowledged = 0;
                let deliver = |record: &[u8], end| {
                    acknowledged = end;
                    std::hint::black_box(record);
                    true
                };
                reply = reply.max(lane.on_data(&header, payload, deliver).expect("honest data"));
                lane.on_acked(acknowledged);
            }
        }
        match &lane {
            Some(lane) if reply >= Reply::Status => {
                lane.status(reply).write(&[], &mut answer);
                send(&mut link, &mut answer);
            }
            _ => wait(&link),
        }
    }
}
