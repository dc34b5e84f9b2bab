//! The order of messages of different senders: [`CausalOrder`].
//!
//! A receiver with [`Order::Causal`](crate::mailbox::Order) works in *scans*. A scan reads the
//! clock, accepts every waiting connection, and then looks at the first message of every lane.
//! Messages that were stamped before this time are received in the order of their stamps, without
//! another scan; later ones wait for the next.
//!
//! Why this keeps the order: let a message A be sent before a message B, so that B's sender knew,
//! directly or through others, that the call that sent A had returned.
//!
//! 1. A's header was visible to every processor before B was stamped, and A's stamp is less than
//!    B's ([`clock`]).
//! 2. If a scan at time T delivers B, B's stamp is less than T, so B was stamped before the scan
//!    read the clock. The scan looked at the lanes after that, and its bound lets each lane deliver
//!    all that was in it then. So A is among the messages of this scan, or was received earlier.
//! 3. The message with the smallest stamp of a scan is received first, so A precedes B. A
//!    message that becomes visible after its lane was looked at, with a stamp less than T, was not
//!    yet sent when the scan read the clock, so nothing sent after it has a stamp less than T.
//!
//! A false stamp moves only its own sender's messages: an old one to the front of its scan, one in
//! the future to the end of the next. Neighbours: [`super::lanes`] holds the lanes,
//! [`super::waiting`] finds out that some lane has a message.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Mailbox;
use super::inbound::{InboundLane, LaneScan};
use super::lanes::TakenMessage;
use super::message::SenderId;
use crate::lane::reader::StampedTurn;
use crate::lane::record::stamp_age;
use crate::mailbox::wire::MOST_CHUNKS;
use crate::sync::clock;

/// Maximum number of scans before the lanes are looked at again. A message that one scan finds too
/// late is early enough for the next.
const SCANS: u32 = 2;

/// The messages of the last scan that are not received yet.
#[derive(Debug, Default)]
pub(super) struct CausalOrder {
    /// Time of the last scan.
    time: u64,
    /// The first message of each lane that has one: the stamp and the lane.
    heads: BinaryHeap<Reverse<(u64, SenderId)>>,
    /// The lane of the message received last, whose next message is not in `heads` yet.
    last: Option<SenderId>,
}

impl CausalOrder {
    /// Adds the lane's first message if it belongs to the last scan.
    fn push(&mut self, lane: &mut InboundLane) {
        if lane.reader.position() < lane.scan_end
            && let LaneScan::Message(_) = look(lane)
            && let Some(stamp) = stamp_before(self.time, lane)
        {
            self.heads.push(Reverse((stamp, lane.id)));
        }
    }
}

impl Mailbox {
    /// Returns the message to receive, if a check has `found` one in some lane: this message, or in
    /// causal order the first message of a scan.
    #[inline]
    pub(super) fn in_order(&mut self, found: Option<TakenMessage>) -> Option<TakenMessage> {
        if self.order.is_none() { found } else { found.and_then(|_| self.scan()) }
    }

    /// Returns the next message of the last scan.
    pub(super) fn next_of_scan(&mut self) -> Option<TakenMessage> {
        let order = self.order.as_mut()?;
        if let Some(lane) = order.last.take().and_then(|last| self.lanes.named(last)) {
            order.push(lane);
        }
        let most = self.lanes.pace.turn();
        while let Some(Reverse((_, id))) = order.heads.pop() {
            // The lane may have been removed since.
            if let Some(lane) = self.lanes.named(id)
                && let LaneScan::Message(length) = look(lane)
            {
                order.last = Some(id);
                // The messages of this lane that precede those of all other lanes are its turn.
                let next = order.heads.peek().map(|Reverse((stamp, _))| *stamp);
                // The fast path does not check whether an earlier owner may have had a message.
                let most = if lane.redelivered() > 0 { 1 } else { most };
                lane.reader.begin_turn(StampedTurn::new(order.time, next, lane.scan_end));
                self.lanes.pass_turn(id.slot, most);
                return Some(TakenMessage { slot: id.slot, length });
            }
        }
        // The fast path must not receive the lane's next message, which may have passed its stamp.
        self.lanes.end_turn();
        None
    }

    /// Makes a scan, and returns its first message.
    fn scan(&mut self) -> Option<TakenMessage> {
        for _ in 0..SCANS {
            let time = clock::now();
            self.accept_waiting();
            let order = self.order.as_mut()?;
            *order = CausalOrder { time, heads: std::mem::take(&mut order.heads), last: None };
            order.heads.clear();
            for lane in self.lanes.all() {
                lane.begin_scan();
                order.push(lane);
            }
            if let Some(taken) = self.next_of_scan() {
                return Some(taken);
            }
        }
        None
    }
}

/// Looks at a lane's first message, across as many empty chunks as an honest sender leaves. A
/// violation is found again by the check that removes the lane.
fn look(lane: &mut InboundLane) -> LaneScan<usize> {
    for _ in 0..MOST_CHUNKS {
        match lane.look() {
            Ok(LaneScan::Again) => {}
            found => return found.unwrap_or(LaneScan::Nothing),
        }
    }
    LaneScan::Nothing
}

/// Returns the stamp of the lane's first message if it is before `time`. A message without a stamp
/// was handed over from a receiver that wanted none, and comes first.
fn stamp_before(time: u64, lane: &mut InboundLane) -> Option<u64> {
    let Some(stamp) = lane.reader.stamp() else { return Some(0) };
    let seen = lane.late_at.replace(lane.reader.position());
    // If a scan read the clock after an earlier one had seen the message, the stamp is false.
    let past = stamp_age(time, stamp).map(|age| time.saturating_sub(age));
    past.or_else(|| (seen == lane.late_at).then_some(time))
}
