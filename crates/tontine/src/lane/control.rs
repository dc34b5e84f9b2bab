//! The receiver's half of a lane's conversation: [`Control`] writes the page, [`Controlled`] reads
//! it on the sender's side.

use std::os::fd::OwnedFd;

use super::mapped::{half_of_own, half_of_peer};
use super::page::{
    CLOSED, CONTROL_MAGIC, CONTROL_SIZE, GIVE_BACK, GRANTED_AT, MAGIC_AT, MOST_AT, POSITION_AT,
    ROOM_AT, STATE_AT, VERSION, VERSION_AT,
};
use super::position;
use super::region::Region;
use crate::error::Result;
use crate::sync::Ordering;
use crate::sys::region::{OwnRegion, PeerRegion};

/// The receiver's handle.
pub(crate) struct Control(OwnRegion);

impl Control {
    /// A page for a lane that begins at `position`, may have `granted` bytes of chunks and will
    /// never have more than `most`; and the descriptor to pass.
    ///
    /// # Errors
    /// No memory or no descriptor is to be had.
    pub(crate) fn new(position: u64, granted: u64, most: u64) -> Result<(Self, OwnedFd)> {
        let (region, descriptor) = OwnRegion::new("tontine-lane", CONTROL_SIZE)?;
        region.word(MAGIC_AT).store(CONTROL_MAGIC, Ordering::Relaxed);
        half_of_own(&region, VERSION_AT).store(VERSION, Ordering::Relaxed);
        region.word(POSITION_AT).store(position, Ordering::Relaxed);
        region.word(ROOM_AT).store(position, Ordering::Relaxed);
        region.word(GRANTED_AT).store(granted, Ordering::Relaxed);
        region.word(MOST_AT).store(most, Ordering::Relaxed);
        Ok((Self(region), descriptor))
    }

    /// Says that everything before `position` is read and acknowledged.
    #[inline(always)]
    pub(crate) fn acknowledge(&self, position: u64) {
        position::publish(self.0.word(POSITION_AT), position);
    }

    /// Says that the sender may write again what lies before `position`. Rarer than acknowledging:
    /// a sender that waits looks here, and each of its looks costs us the line.
    pub(crate) fn make_room(&self, position: u64) {
        position::publish(self.0.word(ROOM_AT), position);
    }

    /// Lets the sender have so many bytes of chunks.
    pub(crate) fn grant(&self, bytes: u64) {
        self.0.word(GRANTED_AT).store(bytes, Ordering::Relaxed);
    }

    /// Says that nothing more is taken.
    pub(crate) fn close(&self) {
        // SYNC closed: pairs with the fence in `Joined::noticed_end`: what was read is known
        // before.
        half_of_own(&self.0, STATE_AT).fetch_or(CLOSED, Ordering::Release);
    }

    /// Asks for the large chunk back, or no longer.
    pub(crate) fn give_back(&self, wanted: bool) {
        let state = half_of_own(&self.0, STATE_AT);
        if wanted {
            state.fetch_or(GIVE_BACK, Ordering::Relaxed);
        } else {
            // SYNC lowered: pairs with `Controlled::asks_back`; what was granted is lower before.
            state.fetch_and(!GIVE_BACK, Ordering::Release);
        }
    }
}

/// The sender's view.
pub(crate) struct Controlled(PeerRegion);

impl Controlled {
    /// A page that a receiver passed.
    ///
    /// # Errors
    /// The memory is not a control page of this version.
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

    /// `CLOSED`, `GIVE_BACK`, or 0.
    #[inline(always)]
    pub(crate) fn state(&self) -> u32 {
        half_of_peer(&self.0, STATE_AT).load(Ordering::Relaxed)
    }

    /// Whether we are asked for memory, and the receiver has not noted that we gave it.
    pub(crate) fn asks_back(&self) -> bool {
        // SYNC lowered: pairs with `Control::give_back`.
        half_of_peer(&self.0, STATE_AT).load(Ordering::Acquire) & GIVE_BACK != 0
    }

    /// Bytes of chunks that we may have.
    pub(crate) fn granted(&self) -> u64 {
        self.0.word(GRANTED_AT).load(Ordering::Relaxed)
    }

    /// Bytes of chunks that we will ever be granted, whatever becomes of others; `None` where the
    /// receiver does not say.
    pub(crate) fn most(&self) -> Option<u64> {
        let most = self.0.word(MOST_AT).load(Ordering::Relaxed);
        (most != 0).then(|| most.max(self.granted()))
    }

    /// How far the receiver has read, exactly: a claim.
    pub(crate) fn position(&self) -> u64 {
        position::read(self.0.word(POSITION_AT))
    }

    /// How far it had read when it last told of room: a claim.
    pub(crate) fn room(&self) -> u64 {
        position::read(self.0.word(ROOM_AT))
    }
}
