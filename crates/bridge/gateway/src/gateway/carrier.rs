//! The link of a gateway, and the frames that wait for space in it: [`Carrier`].

use std::collections::VecDeque;

use crate::frame::{FrameError, Header};
use crate::link::{HostId, Link, Queued};

/// Maximum number of frames to one peer that wait for space in the link. The protocol repeats what
/// is dropped beyond.
const MAX_WAITING: usize = 4096;

/// The link, with the frames that it had no space for.
pub(super) struct Carrier<L> {
    pub(super) link: L,
    /// The frame that is being built.
    pub(super) frame: Vec<u8>,
    pub(super) outboxes: Vec<PeerOutbox>,
}

/// The frames to one peer, and their counters.
#[derive(Default)]
pub(super) struct PeerOutbox {
    waiting: VecDeque<Vec<u8>>,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) faults: u64,
    warned: bool,
    /// The link had no connection for the last frame.
    is_down: bool,
}

impl PeerOutbox {
    /// Counts a frame that arrived.
    pub(super) fn count(&mut self, read: &Result<(Header, &[u8]), FrameError>) {
        match read {
            Ok(_) => self.received += 1,
            Err(error) => {
                self.faults += 1;
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!("an invalid frame arrived and was dropped: {error}");
                }
            }
        }
    }
}

impl<L: Link> Carrier<L> {
    pub(super) fn new(link: L, peers: usize) -> Self {
        let outboxes = std::iter::repeat_with(PeerOutbox::default).take(peers).collect();
        Self { link, frame: Vec::new(), outboxes }
    }

    /// Sends one frame.
    pub(super) fn send(&mut self, to: HostId, header: &Header, payload: &[u8]) {
        header.write(payload, &mut self.frame);
        self.send_built(to);
    }

    /// Sends the frame that was built. If the link has no space, the frame waits; if there is no
    /// connection, it is lost.
    pub(super) fn send_built(&mut self, to: HostId) {
        let Some(outbox) = self.outboxes.get_mut(to.0 as usize) else { return };
        if outbox.waiting.is_empty() {
            let queued = self.link.try_send(to, &mut self.frame);
            outbox.is_down = queued == Queued::Down;
            match queued {
                Queued::Yes => outbox.sent += 1,
                Queued::Full => outbox.waiting.push_back(std::mem::take(&mut self.frame)),
                Queued::Down => {}
            }
        } else if outbox.waiting.len() < MAX_WAITING {
            outbox.waiting.push_back(std::mem::take(&mut self.frame));
        }
    }

    /// Returns `true` while frames to the peer wait for space, or are lost because there is no
    /// connection. Each ping tries again.
    pub(super) fn is_blocked(&self, to: HostId) -> bool {
        let blocked = |outbox: &PeerOutbox| outbox.is_down || !outbox.waiting.is_empty();
        self.outboxes.get(to.0 as usize).is_some_and(blocked)
    }

    /// Sends the frames that wait, as far as the link has space.
    pub(super) fn flush(&mut self, to: HostId) {
        let Some(outbox) = self.outboxes.get_mut(to.0 as usize) else { return };
        outbox.is_down = false;
        while let Some(frame) = outbox.waiting.front_mut() {
            match self.link.try_send(to, frame) {
                Queued::Full => return,
                Queued::Yes => outbox.sent += 1,
                Queued::Down => {}
            }
            outbox.waiting.pop_front();
        }
    }
}
