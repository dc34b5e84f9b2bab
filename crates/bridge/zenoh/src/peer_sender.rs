//! The queue of frames to one peer, and the thread that gives them to Zenoh: [`PeerSender`].
//!
//! Zenoh's `put` waits if the connection takes no bytes, and then drops the frame without an error.
//! Hence the queue, which the gateway fills without waiting.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tontine_gateway::link::Queued;
use zenoh::Wait;
use zenoh::pubsub::Publisher;

use crate::receive_queues::ReceiveQueues;

/// Maximum memory in bytes of the frames in a queue.
pub(crate) const MAX_QUEUED: usize = 1 << 20;
/// Frames up to this length are copied, so that the queue does not hold mostly empty buffers.
const MAX_COPIED: usize = 16 << 10;
/// Memory in bytes of a frame in addition to its bytes.
const OVERHEAD: usize = 128;
/// Maximum number of buffers that are kept for reuse.
const MAX_SPARE: usize = 20;
/// Maximum wait for the thread at the end. A `put` takes half a second at most, and a thread that
/// takes longer is left behind.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The queue of frames to one peer.
pub(crate) struct PeerSender {
    queue: Arc<SendQueue>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct SendQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    spare: Arc<SpareBuffers>,
    /// The publisher of the open session.
    publisher: Mutex<Option<Publisher<'static>>>,
    /// See [`ReceiveQueues::presence`].
    is_up: Arc<AtomicBool>,
    /// Frames that were dropped because the peer had no gateway, or Zenoh refused them.
    discarded: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    frames: VecDeque<Vec<u8>>,
    cost: usize,
    /// The gateway was notified that the queue is full.
    notified_full: bool,
    closing: bool,
}

#[derive(Default)]
struct SpareBuffers(Mutex<Vec<Vec<u8>>>);

/// A frame that Zenoh reads, and whose buffer is reused afterwards.
struct LentBuffer {
    buffer: Vec<u8>,
    spare: Arc<SpareBuffers>,
}

impl PeerSender {
    /// Starts the thread. `peer` is the number under which `received` learns that there is space.
    pub(crate) fn start(peer: usize, received: Arc<ReceiveQueues>) -> std::io::Result<Self> {
        let queue = Arc::new(SendQueue::new(received.presence(peer)));
        let thread = std::thread::Builder::new().name(format!("to-peer-{peer}")).spawn({
            let queue = queue.clone();
            move || {
                while let Some((frame, is_space)) = queue.next() {
                    if is_space {
                        received.set_writable(peer);
                    }
                    queue.put(frame);
                }
            }
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    pub(crate) fn queue(&self) -> &Arc<SendQueue> {
        &self.queue
    }

    /// Asks the thread to end.
    pub(crate) fn close(&self) {
        self.queue.lock().closing = true;
        self.queue.work.notify_all();
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            join_within(thread, JOIN_TIMEOUT);
        }
    }
}

/// Waits until a thread has ended, or leaves it behind after `timeout`.
pub(crate) fn join_within(thread: JoinHandle<()>, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    if thread.is_finished() {
        let _ = thread.join();
    }
}

impl SendQueue {
    fn new(is_up: Arc<AtomicBool>) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            spare: Arc::default(),
            publisher: Mutex::default(),
            is_up,
            discarded: AtomicU64::new(0),
        }
    }

    /// Sets what gives the frames to Zenoh.
    pub(crate) fn set_publisher(&self, publisher: Publisher<'static>) {
        *self.publisher.lock().unwrap_or_else(PoisonError::into_inner) = Some(publisher);
    }

    pub(crate) fn discarded(&self) -> u64 {
        self.discarded.load(Relaxed)
    }

    /// Takes a frame, and leaves another buffer in its place. Never waits.
    pub(crate) fn try_send(&self, frame: &mut Vec<u8>) -> Queued {
        if !self.is_up.load(Relaxed) {
            return Queued::Down;
        }
        let is_copied = frame.len() <= MAX_COPIED;
        let size = if is_copied { frame.len() } else { frame.capacity() };
        let mut state = self.lock();
        if state.cost + size + OVERHEAD > MAX_QUEUED {
            state.notified_full = true;
            return Queued::Full;
        }
        let queued = if is_copied {
            frame.as_slice().to_vec()
        } else {
            std::mem::replace(frame, self.spare.take())
        };
        state.cost += queued.capacity() + OVERHEAD;
        state.frames.push_back(queued);
        drop(state);
        self.work.notify_one();
        Queued::Yes
    }

    /// Waits for the next frame. Also returns `true` if the gateway must learn that there is space.
    fn next(&self) -> Option<(Vec<u8>, bool)> {
        let mut state = self.lock();
        loop {
            if state.closing {
                return None;
            }
            if let Some(frame) = state.frames.pop_front() {
                state.cost -= frame.capacity() + OVERHEAD;
                let is_space = state.notified_full && state.cost <= MAX_QUEUED / 2;
                state.notified_full &= !is_space;
                return Some((frame, is_space));
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, frame: Vec<u8>) {
        let lent = LentBuffer { buffer: frame, spare: self.spare.clone() };
        let publisher = self.publisher.lock().unwrap_or_else(PoisonError::into_inner);
        let publisher = publisher.as_ref().filter(|_| self.is_up.load(Relaxed));
        let put = |publisher: &Publisher<'_>| publisher.put(Bytes::from_owner(lent)).wait().is_ok();
        if !publisher.is_some_and(put) {
            self.discarded.fetch_add(1, Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpareBuffers {
    fn take(&self) -> Vec<u8> {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.pop().unwrap_or_default()
    }
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        let mut spare = self.spare.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE && self.buffer.len() > MAX_COPIED {
            self.buffer.clear();
            spare.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use tontine_gateway::frame::MAX_FRAME;

    use super::*;

    fn queue() -> SendQueue {
        SendQueue::new(Arc::new(AtomicBool::new(true)))
    }

    fn fill(queue: &SendQueue, length: usize) -> usize {
        let send = || {
            let mut frame = Vec::with_capacity(MAX_FRAME);
            frame.resize(length, 7);
            queue.try_send(&mut frame)
        };
        std::iter::repeat_with(send).take_while(|sent| *sent == Queued::Yes).count()
    }

    #[test]
    fn frames_in_queue_are_bounded_in_memory() {
        let large = fill(&queue(), MAX_FRAME);
        assert_eq!(large, MAX_QUEUED / (MAX_FRAME + OVERHEAD));
        let small = fill(&queue(), 72);
        assert_eq!(small, MAX_QUEUED / (72 + OVERHEAD), "only bytes of the frame are queued");
    }

    #[test]
    fn space_is_reported_once_when_half_of_queue_is_empty() {
        let queue = queue();
        let count = fill(&queue, MAX_FRAME);
        let reported: Vec<bool> = (0..count).map(|_| queue.next().expect("a frame").1).collect();
        assert_eq!(reported.iter().filter(|one| **one).count(), 1);
        assert!(reported[count / 2], "{reported:?}");
    }

    #[test]
    fn sent_buffer_comes_back_for_next_frame() {
        let queue = queue();
        let mut frame = vec![7; MAX_FRAME];
        assert_eq!(queue.try_send(&mut frame), Queued::Yes);
        assert_eq!(frame.capacity(), 0);
        let (buffer, _) = queue.next().expect("a frame");
        drop(Bytes::from_owner(LentBuffer { buffer, spare: queue.spare.clone() }));
        frame.resize(MAX_FRAME, 7);
        assert_eq!(queue.try_send(&mut frame), Queued::Yes);
        assert_eq!((frame.len(), frame.capacity()), (0, MAX_FRAME));
    }

    #[test]
    fn peer_without_gateway_is_down() {
        assert_eq!(SendQueue::new(Arc::default()).try_send(&mut vec![7]), Queued::Down);
    }
}
