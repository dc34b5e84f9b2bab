//! A carrier between two gateways of one process, which loses, repeats and delays frames at random:
//! [`MemoryLink`]. For tests.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::link::{HostId, Link, LinkEvent, Queued};

/// Maximum number of bytes in one direction.
const CAPACITY: usize = 1 << 20;

/// Random faults of a [`MemoryLink`], in parts per thousand of the frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Lost frames.
    pub lost: u16,
    /// Repeated frames.
    pub doubled: u16,
    /// Frames that later frames overtake.
    pub overtaken: u16,
    /// Delay of every frame.
    pub delay: Duration,
}

/// A direction of the carrier.
struct OneWay {
    frames: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    faults: Faults,
    cut: bool,
    /// Expires when the receiving end has something to do.
    timer: Arc<OwnedFd>,
    /// The timer has expired, for a frame or for space, and was not stopped since.
    is_set: bool,
    /// The timer of the sending end.
    sender: Arc<OwnedFd>,
    /// The sending end was refused a frame.
    refused: bool,
    writable: bool,
}

/// An end of a carrier in memory, whose other end belongs to the only peer, `HostId(0)`.
pub struct MemoryLink {
    sends: Arc<Mutex<OneWay>>,
    receives: Arc<Mutex<OneWay>>,
    timer: Arc<OwnedFd>,
    current: Vec<u8>,
}

/// Cuts and heals a carrier.
#[derive(Clone)]
pub struct Switch([Arc<Mutex<OneWay>>; 2]);

impl Switch {
    /// Loses every frame from now on, or stops to. `[there, back]`: from the first end to the
    /// second, and from the second to the first.
    pub fn cut(&self, cut: [bool; 2]) {
        for (direction, cut) in self.0.iter().zip(cut) {
            lock(direction).cut = cut;
        }
    }

    /// Changes the faults of both directions.
    pub fn set_faults(&self, faults: Faults) {
        for direction in &self.0 {
            lock(direction).faults = faults;
        }
    }
}

fn lock(direction: &Mutex<OneWay>) -> MutexGuard<'_, OneWay> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryLink {
    /// Returns the two ends of a carrier, and its switch.
    ///
    /// # Errors
    /// Returns an error if the process has no descriptors left.
    pub fn pair(faults: Faults) -> std::io::Result<(Self, Self, Switch)> {
        let timer =
            || timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).map(Arc::new);
        let (first, second) = (timer()?, timer()?);
        let direction = |seed: u64, receiver: &Arc<OwnedFd>, sender: &Arc<OwnedFd>| {
            Arc::new(Mutex::new(OneWay {
                frames: VecDeque::new(),
                bytes: 0,
                faults: Faults { seed: seed | 1, ..faults },
                cut: false,
                timer: receiver.clone(),
                is_set: false,
                sender: sender.clone(),
                refused: false,
                writable: false,
            }))
        };
        let there = direction(faults.seed, &second, &first);
        let back = direction(faults.seed.rotate_left(32), &first, &second);
        let switch = Switch([there.clone(), back.clone()]);
        let end = |sends: &Arc<_>, receives: &Arc<_>, timer| Self {
            sends: Arc::clone(sends),
            receives: Arc::clone(receives),
            timer,
            current: Vec::new(),
        };
        Ok((end(&there, &back, first), end(&back, &there, second), switch))
    }
}

impl MemoryLink {
    /// Returns `true` if there is space again. The timer has then expired for that, so it must be
    /// stopped, even though no frame has set it.
    fn take_writable(&self) -> bool {
        let writable = std::mem::take(&mut lock(&self.sends).writable);
        if writable {
            lock(&self.receives).is_set = true;
        }
        writable
    }
}

/// Makes a timer expire after `delay`, or stops it. A timer that has expired stays readable.
fn set_timer(timer: &OwnedFd, delay: Option<Duration>) {
    let after = delay.map_or(Duration::ZERO, |delay| delay.max(Duration::from_nanos(1)));
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = Timespec::try_from(after).unwrap_or(zero);
    let spec = Itimerspec { it_interval: zero, it_value };
    let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec);
}

impl OneWay {
    /// Returns `true` for `rate` of a thousand calls (xorshift64).
    fn happens(&mut self, rate: u16) -> bool {
        let mut word = self.faults.seed;
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.faults.seed = word;
        word % 1000 < u64::from(rate)
    }

    /// Makes the timer expire when the first frame is due. Setting a timer is expensive.
    fn set_timer(&mut self) {
        let due = self.frames.front().map(|frame| frame.0);
        let delay = due.map(|due| due.saturating_duration_since(Instant::now()));
        let expired = delay.is_some_and(|delay| delay.is_zero());
        // A timer for a later time is set again, because another frame may be the first.
        if self.is_set == expired && (expired || delay.is_none()) {
            return;
        }
        self.is_set = expired;
        set_timer(&self.timer, delay);
    }

    fn push(&mut self, frame: Vec<u8>) {
        let due = Instant::now() + self.faults.delay;
        self.bytes += frame.len();
        let overtakes = self.happens(self.faults.overtaken);
        if overtakes && let Some(last) = self.frames.pop_back() {
            self.frames.push_back((due, frame));
            self.frames.push_back(last);
        } else {
            self.frames.push_back((due, frame));
        }
        self.set_timer();
    }
}

impl Link for MemoryLink {
    fn try_send(&mut self, _: HostId, frame: &mut Vec<u8>) -> Queued {
        let mut direction = lock(&self.sends);
        if direction.bytes + frame.len() > CAPACITY {
            direction.refused = true;
            return Queued::Full;
        }
        let frame = std::mem::take(frame);
        let faults = direction.faults;
        if direction.cut || direction.happens(faults.lost) {
            return Queued::Yes;
        }
        if direction.happens(faults.doubled) {
            direction.push(frame.clone());
        }
        direction.push(frame);
        Queued::Yes
    }

    fn poll(&mut self) -> Option<LinkEvent<'_>> {
        let from = HostId(0);
        if self.take_writable() {
            return Some(LinkEvent::Writable(from));
        }
        let mut direction = lock(&self.receives);
        let due = direction.frames.front().is_some_and(|frame| frame.0 <= Instant::now());
        if !due {
            direction.set_timer();
            drop(direction);
            // The timer may have expired for space that the other end has made meanwhile.
            return self.take_writable().then_some(LinkEvent::Writable(from));
        }
        let (_, frame) = direction.frames.pop_front()?;
        direction.bytes -= frame.len();
        if std::mem::take(&mut direction.refused) {
            direction.writable = true;
            set_timer(&direction.sender, Some(Duration::ZERO));
        }
        drop(direction);
        self.current = frame;
        Some(LinkEvent::Frame { from, bytes: &self.current })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn carrier(&self) -> &'static str {
        "memory"
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::frame::MAX_FRAME;

    fn is_readable(link: &MemoryLink) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN)];
        poll(&mut fds, Some(&zero)).expect("poll") > 0
    }

    #[test]
    fn descriptor_is_not_readable_after_space_was_reported() {
        let (mut near, mut far, _) = MemoryLink::pair(Faults::default()).expect("descriptors");
        while near.try_send(HostId(0), &mut vec![7; MAX_FRAME]) == Queued::Yes {}
        assert!(!is_readable(&near));
        assert!(matches!(far.poll(), Some(LinkEvent::Frame { .. })));
        assert!(is_readable(&near));
        assert_eq!(near.poll(), Some(LinkEvent::Writable(HostId(0))));
        assert_eq!(near.poll(), None);
        assert!(!is_readable(&near), "there is nothing to do");
    }
}
