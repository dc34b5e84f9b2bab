//! Received frames and hints, from Zenoh's threads to the gateway: [`ReceiveQueues`].
//!
//! Each peer has a queue of its own, bounded in memory, so that a peer that floods this host delays
//! only its own frames. If the queue is full, the thread of Zenoh waits for a short time, which
//! slows the peer down; then the frame is dropped, and so are the next ones until there is space.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use tontine_gateway::frame::MAX_FRAME;
use zenoh::bytes::ZBytes;

/// Maximum memory in bytes of the received frames of one peer.
pub(crate) const MAX_RECEIVED: usize = 4 << 20;
/// Memory in bytes of a frame that stays in Zenoh's buffer, which other frames may share.
const KEPT_COST: usize = 64 << 10;
/// Frames up to this length are copied, so that they do not keep Zenoh's buffer.
const MAX_COPIED: usize = 16 << 10;
/// Memory in bytes of a frame in addition to its bytes.
const OVERHEAD: usize = 128;
/// Maximum wait of Zenoh's thread for space. It is shorter than the wait after which the peer's
/// Zenoh closes the connection.
const FULL_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum number of buffers that are kept for reuse, and their maximum length: a short frame does
/// not occupy a long buffer.
const MAX_SPARE: (usize, usize) = (64, 1 << 10);
/// Maximum number of tokens of one peer. Each instance of its gateway has one, and that of a killed
/// instance may live for a lease.
const MAX_TOKENS: usize = 16;
/// Maximum length of the name of an instance, which is a number of 128 bits.
const MAX_INSTANCE: usize = 32;

/// A received frame.
#[derive(Debug)]
pub(crate) enum ReceivedFrame {
    /// The frame is in a buffer of Zenoh, and contiguous.
    Kept(ZBytes),
    /// The frame was copied.
    Copied(Vec<u8>),
}

impl ReceivedFrame {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes.slices().next().unwrap_or_default(),
            Self::Copied(bytes) => bytes,
        }
    }

    fn cost(&self) -> usize {
        match self {
            Self::Kept(_) => KEPT_COST,
            Self::Copied(bytes) => bytes.capacity() + OVERHEAD,
        }
    }
}

/// An event for the gateway, with the number of its peer.
#[derive(Debug)]
pub(crate) enum ReceiveEvent {
    Up,
    Down,
    Writable,
    Frame(ReceivedFrame),
}

/// Frames that were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DropCounts {
    /// The key names an unknown host, or another receiver.
    pub(crate) strangers: u64,
    /// The frame is longer than any gateway sends.
    pub(crate) oversized: u64,
    /// The gateway did not take the peer's frames in time.
    pub(crate) overflowed: u64,
}

/// Queues between Zenoh's threads and the gateway.
pub(crate) struct ReceiveQueues {
    state: Mutex<QueuesState>,
    space: Condvar,
    event: OwnedFd,
}

struct QueuesState {
    peers: Vec<PeerQueue>,
    /// The peers that may have events, each once, in the order of their turns.
    ready: VecDeque<usize>,
    /// The descriptor is readable.
    signalled: bool,
    closing: bool,
    spare: Vec<Vec<u8>>,
    counts: DropCounts,
}

#[derive(Default)]
struct PeerQueue {
    frames: VecDeque<ReceivedFrame>,
    cost: usize,
    /// A frame was dropped after a wait, and there has been no space since then.
    overflowing: bool,
    /// Tokens of the peer's gateways that live.
    tokens: Vec<String>,
    /// There is such a token. Written under the lock.
    is_up: Arc<AtomicBool>,
    /// The gateway was notified that the peer is up.
    notified_up: bool,
    /// All tokens ended since the gateway was notified that the peer is up.
    ended: bool,
    writable: bool,
    /// The peer is among the ready ones.
    is_ready: bool,
}

impl ReceiveQueues {
    pub(crate) fn new(peers: usize) -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let peers = std::iter::repeat_with(PeerQueue::default).take(peers).collect();
        let state = QueuesState {
            peers,
            ready: VecDeque::new(),
            signalled: false,
            closing: false,
            spare: Vec::new(),
            counts: DropCounts::default(),
        };
        Ok(Self { state: Mutex::new(state), space: Condvar::new(), event })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn counts(&self) -> DropCounts {
        self.lock().counts
    }

    /// Counts a frame whose key names no peer, or another receiver.
    pub(crate) fn count_stranger(&self) {
        self.lock().counts.strangers += 1;
    }

    /// Queues a frame. Waits for a short time if the queue is full, then drops the frame.
    pub(crate) fn receive(&self, peer: usize, bytes: &ZBytes) {
        let mut state = self.lock();
        if bytes.len() > MAX_FRAME {
            state.counts.oversized += 1;
            return;
        }
        let mut slices = bytes.slices();
        let first = slices.next().unwrap_or_default();
        let frame = if first.len() == bytes.len() && first.len() > MAX_COPIED {
            ReceivedFrame::Kept(bytes.clone())
        } else {
            let is_short = bytes.len() <= MAX_SPARE.1;
            let mut copy = if is_short { state.spare.pop() } else { None }.unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(first);
            slices.for_each(|slice| copy.extend_from_slice(slice));
            ReceivedFrame::Copied(copy)
        };
        let cost = frame.cost();
        let deadline = Instant::now() + FULL_TIMEOUT;
        while state.peers[peer].cost + cost > MAX_RECEIVED && !state.closing {
            let wait = deadline.saturating_duration_since(Instant::now());
            if state.peers[peer].overflowing || wait.is_zero() {
                state.peers[peer].overflowing = true;
                state.counts.overflowed += 1;
                return;
            }
            let woken = self.space.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let queue = &mut state.peers[peer];
        queue.overflowing = false;
        queue.cost += cost;
        queue.frames.push_back(frame);
        self.signal(&mut state, peer);
    }

    /// Returns a flag that is set while the peer has a gateway. A hint: no other memory depends on
    /// it.
    pub(crate) fn presence(&self, peer: usize) -> Arc<AtomicBool> {
        self.lock().peers[peer].is_up.clone()
    }

    /// Returns `true` if a peer has a gateway.
    pub(crate) fn is_any_up(&self) -> bool {
        self.lock().peers.iter().any(|peer| !peer.tokens.is_empty())
    }

    /// Notes the token of a gateway.
    pub(crate) fn add_token(&self, peer: usize, instance: &str) {
        let mut state = self.lock();
        let queue = &mut state.peers[peer];
        let is_known = queue.tokens.iter().any(|token| token == instance);
        let fits = instance.len() <= MAX_INSTANCE && queue.tokens.len() < MAX_TOKENS;
        if fits && !is_known {
            queue.tokens.push(instance.to_owned());
            queue.is_up.store(true, Relaxed);
            // Another instance is a new connection.
            queue.notified_up = queue.notified_up && queue.ended;
            self.signal(&mut state, peer);
        }
    }

    /// Notes the end of a gateway's token.
    pub(crate) fn remove_token(&self, peer: usize, instance: &str) {
        let mut state = self.lock();
        let queue = &mut state.peers[peer];
        queue.tokens.retain(|token| token != instance);
        if queue.tokens.is_empty() {
            queue.is_up.store(false, Relaxed);
            queue.ended = true;
            self.signal(&mut state, peer);
        }
    }

    /// Notes that a queue to the peer has space again.
    pub(crate) fn set_writable(&self, peer: usize) {
        let mut state = self.lock();
        state.peers[peer].writable = true;
        self.signal(&mut state, peer);
    }

    /// Returns the next event and its peer. `previous` is a frame whose buffer can be reused.
    pub(crate) fn next(&self, previous: Option<ReceivedFrame>) -> Option<(usize, ReceiveEvent)> {
        let mut state = self.lock();
        if let Some(ReceivedFrame::Copied(buffer)) = previous
            && state.spare.len() < MAX_SPARE.0
            && buffer.capacity() <= MAX_SPARE.1
        {
            state.spare.push(buffer);
        }
        while let Some(peer) = state.ready.pop_front() {
            let Some(event) = state.peers[peer].next() else {
                state.peers[peer].is_ready = false;
                continue;
            };
            state.ready.push_back(peer);
            if let ReceiveEvent::Frame(_) = event {
                self.space.notify_all();
            }
            return Some((peer, event));
        }
        if std::mem::take(&mut state.signalled) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        None
    }

    /// Lets Zenoh's threads go, which may wait for space.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.space.notify_all();
    }

    /// Returns `true` after [`ReceiveQueues::close`].
    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Sleeps, at most until [`ReceiveQueues::close`].
    pub(crate) fn sleep(&self, duration: Duration) {
        let state = self.lock();
        let closing = self.space.wait_timeout_while(state, duration, |state| !state.closing);
        drop(closing.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, QueuesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a peer a turn, and makes the descriptor readable.
    fn signal(&self, state: &mut QueuesState, peer: usize) {
        if !std::mem::replace(&mut state.peers[peer].is_ready, true) {
            state.ready.push_back(peer);
        }
        if !std::mem::replace(&mut state.signalled, true) {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl PeerQueue {
    fn next(&mut self) -> Option<ReceiveEvent> {
        if self.notified_up && self.ended {
            (self.notified_up, self.ended) = (false, false);
            return Some(ReceiveEvent::Down);
        }
        self.ended = false;
        if !self.notified_up && !self.tokens.is_empty() {
            self.notified_up = true;
            return Some(ReceiveEvent::Up);
        }
        if std::mem::take(&mut self.writable) {
            return Some(ReceiveEvent::Writable);
        }
        let frame = self.frames.pop_front()?;
        self.cost -= frame.cost();
        Some(ReceiveEvent::Frame(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> ZBytes {
        vec![7; length].into()
    }

    fn names(queues: &ReceiveQueues) -> Vec<String> {
        let event = || queues.next(None).map(|(peer, event)| (peer, format!("{event:?}")));
        std::iter::from_fn(event)
            .map(|(peer, event)| format!("{peer} {}", &event[..2.min(event.len())]))
            .collect()
    }

    #[test]
    fn full_queue_drops_after_one_wait_and_recovers() {
        let queues = ReceiveQueues::new(1).expect("eventfd");
        let fits = MAX_RECEIVED / KEPT_COST;
        (0..fits).for_each(|_| queues.receive(0, &frame(MAX_FRAME)));
        assert_eq!(queues.counts().overflowed, 0);
        let start = Instant::now();
        (0..300).for_each(|_| queues.receive(0, &frame(MAX_FRAME)));
        assert_eq!(queues.counts().overflowed, 300);
        // A wait for each frame would take 300 times the timeout.
        assert!((FULL_TIMEOUT..200 * FULL_TIMEOUT).contains(&start.elapsed()));
        assert!(queues.next(None).is_some());
        queues.receive(0, &frame(MAX_FRAME));
        assert_eq!(queues.counts().overflowed, 300);
        assert_eq!(names(&queues).len(), fits);
    }

    #[test]
    fn small_frames_are_bounded_in_memory_too() {
        let queues = ReceiveQueues::new(1).expect("eventfd");
        let count = MAX_RECEIVED / OVERHEAD;
        (0..count).for_each(|_| queues.receive(0, &frame(72)));
        let kept = names(&queues).len();
        assert!((count / 3..count * 2 / 3).contains(&kept), "{kept}");
        assert_eq!(queues.counts().overflowed as usize, count - kept);
    }

    #[test]
    fn flooding_peer_leaves_space_to_others() {
        let queues = ReceiveQueues::new(2).expect("eventfd");
        (0..100).for_each(|_| queues.receive(0, &frame(MAX_FRAME)));
        queues.receive(1, &frame(1));
        let order = names(&queues);
        assert_eq!(order[..3], ["0 Fr", "1 Fr", "0 Fr"]);
    }

    #[test]
    fn hints_follow_tokens_and_coalesce() {
        let queues = ReceiveQueues::new(1).expect("eventfd");
        let presence = queues.presence(0);
        let after = |changes: &str| {
            for change in changes.split(' ') {
                match change.split_at(1) {
                    ("+", instance) => queues.add_token(0, instance),
                    (_, instance) => queues.remove_token(0, instance),
                }
            }
            names(&queues)
        };
        assert_eq!(after("+a"), ["0 Up"]);
        assert_eq!(after("+b -a"), ["0 Up"], "another instance");
        assert_eq!(after("-b +b"), ["0 Do", "0 Up"]);
        assert!(presence.load(Relaxed));
        assert_eq!(after("-b +c -c"), ["0 Do"]);
        assert!(!presence.load(Relaxed));
        assert_eq!(after("+d -d"), [""; 0], "the gateway did not know of it");
        assert_eq!(after(&format!("+{}", "e".repeat(33))), [""; 0], "not an instance");
    }

    #[test]
    fn descriptor_is_readable_until_events_are_taken() {
        let queues = ReceiveQueues::new(1).expect("eventfd");
        let readable = || {
            let mut fd = [rustix::event::PollFd::new(&queues.event, rustix::event::PollFlags::IN)];
            let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fd, Some(&zero)).expect("poll") == 1
        };
        assert!(!readable());
        queues.receive(0, &frame(1));
        queues.set_writable(0);
        assert!(readable() && queues.next(None).is_some() && readable());
        assert_eq!(names(&queues), ["0 Fr"]);
        assert!(!readable());
    }

    #[test]
    fn oversized_frame_is_dropped_and_counted() {
        let queues = ReceiveQueues::new(1).expect("eventfd");
        queues.receive(0, &frame(MAX_FRAME + 1));
        queues.count_stranger();
        let expected = DropCounts { strangers: 1, oversized: 1, overflowed: 0 };
        assert_eq!((queues.counts(), names(&queues).len()), (expected, 0));
    }
}
