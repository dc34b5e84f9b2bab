//! The control page, through which a receiver informs the sender of a lane. The receiver writes the
//! page as [`Control`]; the sender reads it as [`Controlled`].

use std::os::fd::OwnedFd;

use super::mapped::{half_of_own, half_of_peer};
use super::page::{
    CLOSED, CONTROL_MAGIC, CONTROL_SIZE, ERRNO_AT, GIVE_BACK, GRANTED_AT, MAGIC_AT, MOST_AT,
    POSITION_AT, RELAY_AT, REMOTE_ENDS, SENT_AT, SPACE_AT, STAMPS, STATE_AT, SUSPECTED_AT, TURN_AT,
    VERSION, VERSION_AT,
};
use super::position;
use super::region::LaneMemory;
use crate::error::Result;
use crate::sync::Ordering;
use crate::sys::membarrier;
use crate::sys::region::{OwnRegion, PeerRegion};

/// The receiver's end of a control page.
pub(crate) struct Control(OwnRegion);

impl Control {
    /// Creates the control page of a lane that begins at `position` with a grant of `granted` bytes
    /// of chunks, which never exceeds `most`. Returns the page and the descriptor to pass to the
    /// sender.
    ///
    /// # Errors
    /// Returns an error if memory or a descriptor is not available.
    pub(crate) fn new(position: u64, granted: u64, most: u64) -> Result<(Self, OwnedFd)> {
        let (region, descriptor) = OwnRegion::new("tontine-lane", CONTROL_SIZE)?;
        region.word(MAGIC_AT).store(CONTROL_MAGIC, Ordering::Relaxed);
        half_of_own(&region, VERSION_AT).store(VERSION, Ordering::Relaxed);
        region.word(POSITION_AT).store(position, Ordering::Relaxed);
        region.word(SPACE_AT).store(position, Ordering::Relaxed);
        region.word(GRANTED_AT).store(granted, Ordering::Relaxed);
        region.word(MOST_AT).store(most, Ordering::Relaxed);
        Ok((Self(region), descriptor))
    }

    /// Acknowledges everything before `position`.
    #[inline(always)]
    pub(crate) fn acknowledge(&self, position: u64) {
        position::publish(self.0.word(POSITION_AT), position);
    }

    /// Announces that the sender may reuse the space before `position`. The receiver calls this
    /// less often than `acknowledge` because a waiting sender polls this word, and each load by the
    /// sender takes the cache line away from the receiver.
    pub(crate) fn make_space(&self, position: u64) {
        position::publish(self.0.word(SPACE_AT), position);
    }

    /// Sets the total chunk size, in bytes, that the sender may have.
    pub(crate) fn grant(&self, bytes: u64) {
        self.0.word(GRANTED_AT).store(bytes, Ordering::Relaxed);
    }

    /// Announces that the receiver accepts no more messages.
    pub(crate) fn close(&self) {
        // SYNC closed: pairs with the fence in `AcceptedLane::noticed_end`; the last position
        // becomes visible before the state.
        half_of_own(&self.0, STATE_AT).fetch_or(CLOSED, Ordering::Release);
    }

    /// Marks the receiver as a relay that has passed nothing on, before the page is passed.
    pub(crate) fn mark_relay(&self) {
        half_of_own(&self.0, RELAY_AT).store(1, Ordering::Relaxed);
    }

    /// Asks the sender to stamp each message, before the page is passed.
    pub(crate) fn want_stamps(&self) {
        half_of_own(&self.0, STATE_AT).fetch_or(STAMPS, Ordering::Relaxed);
    }

    /// Returns `true` if the receiver is a relay.
    pub(crate) fn is_relay(&self) -> bool {
        half_of_own(&self.0, RELAY_AT).load(Ordering::Relaxed) != 0
    }

    /// Latches how the remote end of a relayed lane ended, as a bit of `REMOTE_ENDS`, with the
    /// `errno` of a refusal. The first end stays.
    pub(crate) fn end_remotely(&self, bit: u32, errno: i32) {
        let state = half_of_own(&self.0, STATE_AT);
        if state.load(Ordering::Relaxed) & REMOTE_ENDS == 0 {
            half_of_own(&self.0, ERRNO_AT).store(errno.cast_unsigned(), Ordering::Relaxed);
            // SYNC closed: pairs with the fence in `AcceptedLane::noticed_end`; the last position
            // and the errno become visible before the state.
            state.fetch_or(bit, Ordering::Release);
        }
    }

    /// Announces whether the program may have the lane's first unread message.
    #[inline]
    pub(crate) fn set_turn(&self, turn: bool) {
        half_of_own(&self.0, TURN_AT).store(turn.into(), Ordering::Relaxed);
        // Keeps the compiler from passing a message on before the store. The processor may do so:
        // a sender loads the word once the kernel has reported the end of this process, or after
        // CLOSED, and then sees all its stores.
        membarrier::light();
    }

    /// Announces that everything before `position` may have left this host, or that the program
    /// may have it.
    pub(crate) fn mark_sent(&self, position: u64) {
        self.0.word(SENT_AT).store(position, Ordering::Relaxed);
        // As in `set_turn`.
        membarrier::light();
    }

    /// Announces whether the remote host has stopped answering.
    #[cfg(feature = "relay")]
    pub(crate) fn set_suspected(&self, suspected: bool) {
        half_of_own(&self.0, SUSPECTED_AT).store(suspected.into(), Ordering::Relaxed);
    }

    /// Sets or clears the request to return the large chunk.
    pub(crate) fn give_back(&self, wanted: bool) {
        let state = half_of_own(&self.0, STATE_AT);
        if wanted {
            state.fetch_or(GIVE_BACK, Ordering::Relaxed);
        } else {
            // SYNC lowered: pairs with `Controlled::requests_back`; the lower grant becomes visible
            // first.
            state.fetch_and(!GIVE_BACK, Ordering::Release);
        }
    }
}

/// The sender's view of a control page.
pub(crate) struct Controlled(PeerRegion);

impl Controlled {
    /// Checks a page that a receiver passed.
    ///
    /// # Errors
    /// Returns a description of the fault if the memory is not a control page of this version.
    pub(crate) fn new(region: PeerRegion) -> Result<Self, &'static str> {
        if region.size() != CONTROL_SIZE {
            return Err("expected a control page, found memory of another size");
        }
        if region.word(MAGIC_AT).load(Ordering::Relaxed) != CONTROL_MAGIC {
            return Err("expected a control page, found other bytes at its start");
        }
        if half_of_peer(&region, VERSION_AT).load(Ordering::Relaxed) != VERSION {
            return Err("expected a control page of this version, found another");
        }
        Ok(Self(region))
    }

    /// Returns `true` if the receiver is a relay.
    pub(crate) fn is_relay(&self) -> bool {
        half_of_peer(&self.0, RELAY_AT).load(Ordering::Relaxed) != 0
    }

    /// Returns the reason for which the remote host refused the lane.
    pub(crate) fn errno(&self) -> i32 {
        half_of_peer(&self.0, ERRNO_AT).load(Ordering::Relaxed).cast_signed()
    }

    /// Returns `true` while the remote host does not answer a relay.
    pub(crate) fn is_suspected(&self) -> bool {
        half_of_peer(&self.0, SUSPECTED_AT).load(Ordering::Relaxed) != 0
    }

    /// Returns the position that the receiver has passed to [`Control::mark_sent`], an untrusted
    /// value.
    pub(crate) fn sent(&self) -> u64 {
        self.0.word(SENT_AT).load(Ordering::Relaxed)
    }

    /// Returns `true` if the receiver's program may have had the first unread message.
    pub(crate) fn has_turn(&self) -> bool {
        half_of_peer(&self.0, TURN_AT).load(Ordering::Relaxed) != 0
    }

    /// Returns the state: a combination of `CLOSED`, `GIVE_BACK` and a bit of `REMOTE_ENDS`.
    #[inline(always)]
    pub(crate) fn state(&self) -> u32 {
        half_of_peer(&self.0, STATE_AT).load(Ordering::Relaxed)
    }

    /// Returns `true` while the receiver's request to return memory is unconfirmed.
    pub(crate) fn requests_back(&self) -> bool {
        // SYNC lowered: pairs with `Control::give_back`.
        half_of_peer(&self.0, STATE_AT).load(Ordering::Acquire) & GIVE_BACK != 0
    }

    /// Returns the total chunk size, in bytes, that the sender may have if the receiver requests
    /// memory back and the request has no answer. `returned` is `true` after an answer, and becomes
    /// `false` once the receiver has confirmed it. One load decides both, because a request may be
    /// confirmed between two loads, and must not be answered twice.
    pub(crate) fn unanswered_request(&self, returned: &mut bool) -> Option<u64> {
        let requests = self.requests_back();
        *returned &= requests;
        (requests && !*returned).then(|| self.granted())
    }

    /// Returns the total chunk size, in bytes, that the sender may have.
    pub(crate) fn granted(&self) -> u64 {
        self.0.word(GRANTED_AT).load(Ordering::Relaxed)
    }

    /// Returns the maximum total chunk size, in bytes, that the sender is ever granted, even if all
    /// other lanes end, or `None` if the receiver does not announce it.
    pub(crate) fn most(&self) -> Option<u64> {
        let most = self.0.word(MOST_AT).load(Ordering::Relaxed);
        (most != 0).then(|| most.max(self.granted()))
    }

    /// Returns the exact read position of the receiver, an untrusted value.
    pub(crate) fn position(&self) -> u64 {
        position::read(self.0.word(POSITION_AT))
    }

    /// Returns the position up to which the receiver last announced free space, an untrusted value.
    pub(crate) fn space(&self) -> u64 {
        position::read(self.0.word(SPACE_AT))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Regression: the sender loaded the request for memory once to see that it exists, and again
    /// to see whether it was answered. If the receiver confirmed the answer in between, the sender
    /// answered again, and the receiver closed the lane of an honest sender.
    #[test]
    fn confirmed_request_for_memory_is_not_answered_again() {
        let (control, descriptor) = Control::new(0, 8192, 0).expect("a page");
        let region = PeerRegion::map(descriptor.as_fd(), CONTROL_SIZE).expect("mapped");
        let controlled = Controlled::new(region).expect("a control page");
        let mut returned = false;
        assert_eq!(controlled.unanswered_request(&mut returned), None, "no request");
        control.give_back(true);
        assert_eq!(controlled.unanswered_request(&mut returned), Some(8192));
        returned = true;
        assert_eq!(controlled.unanswered_request(&mut returned), None, "answered");
        control.give_back(false);
        assert_eq!(controlled.unanswered_request(&mut returned), None, "confirmed");
        assert!(!returned);
        control.give_back(true);
        assert_eq!(controlled.unanswered_request(&mut returned), Some(8192), "the next request");
    }
}
