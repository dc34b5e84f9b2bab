//! A lane of a local sender to a mailbox of a peer: [`ImportLane`], and its records.

use std::time::{Duration, Instant};

use tontine::mailbox::{Relay, SenderId};

use super::Import;
use crate::outgoing::{FrameFiller, OutgoingLane};
use crate::status::LaneState;

/// The lane of a local sender to a mailbox of a peer.
pub(super) struct ImportLane {
    pub(super) machine: OutgoingLane,
    pub(super) pid: Option<u32>,
    /// End of the last record that was read.
    pub(super) last_end: u64,
    pub(super) due: Option<Instant>,
    pub(super) interval: Duration,
    /// The lane is in [`Imports::blocked`].
    pub(super) is_blocked: bool,
    /// The end that was reported to the sender.
    pub(super) reported_end: Option<LaneState>,
}

/// Result of [`fill`].
pub(super) enum FillResult {
    /// The lane's next frame.
    Frame,
    /// The lane has no further record.
    Nothing,
    /// The next record does not fit into what the other gateway has granted.
    NoSpace,
}

/// Builds the lane's next frame.
pub(super) fn fill(
    import: &mut Import,
    sender: SenderId,
    lane: &mut ImportLane,
    frame: &mut Vec<u8>,
) -> FillResult {
    let mut filler = FrameFiller::new(&lane.machine, frame);
    let mut last_end = lane.last_end;
    let mut refused = false;
    loop {
        let read = import.relay.read_ahead(sender, |record| {
            let copy = |range, into: &mut Vec<u8>| record.append_to(range, into);
            let whole = filler.offer(record.position(), record.end(), record.len(), copy);
            if whole {
                last_end = last_end.max(record.end());
            }
            refused = !whole;
            whole
        });
        match read {
            Ok(1..) if !refused => {}
            Ok(_) => break,
            Err(error) => {
                tracing::warn!("a lane to {} cannot be read: {error}", import.name);
                break;
            }
        }
    }
    lane.last_end = last_end;
    let Some(position) = filler.finish() else {
        return if refused { FillResult::NoSpace } else { FillResult::Nothing };
    };
    // Stored before the frame leaves: what a sender counts as unsent was never sent.
    import.relay.mark_sent(sender, position);
    lane.machine.on_sent(position);
    FillResult::Frame
}

/// Reads a lane up to `position`: an earlier gateway of this host has sent what lies before.
pub(super) fn read_up_to(relay: &mut Relay, sender: SenderId, position: u64) {
    while relay.lane(sender).is_some_and(|lane| lane.read < position) {
        let read = relay.read_ahead(sender, |record| record.end() <= position);
        if !matches!(read, Ok(1..)) {
            return;
        }
    }
}
