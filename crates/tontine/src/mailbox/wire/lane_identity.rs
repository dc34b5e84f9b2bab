//! The identity of a lane in the headers of its chunks, for a relay: [`LaneIdentity`].
//!
//! The words lie in the header of each chunk (`docs/internals/layout.md`), and never change. A
//! receiver reads them once, when it accepts the lane; they are untrusted values.

use crate::error::Result;
use crate::lane::mapped::{half_of_own, half_of_peer};
use crate::lane::page::{LANE_AT, ON_DEATH_AT};
use crate::lane::region::LaneMemory;
use crate::mailbox::settings::OnDeath;
use crate::sync::Ordering;
use crate::sys::random;
use crate::sys::region::{OwnRegion, PeerRegion};

/// The identifier of a lane, the same for each of its receivers, and the lane's behaviour when its
/// receiver ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mailbox) struct LaneIdentity {
    pub(in crate::mailbox) lane: u128,
    pub(in crate::mailbox) on_death: OnDeath,
}

impl LaneIdentity {
    /// Returns an identity with a random identifier.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel returns no random bytes.
    pub(in crate::mailbox) fn new(on_death: OnDeath) -> Result<Self> {
        Ok(Self { lane: u128::from_le_bytes(random::bytes()?), on_death })
    }

    /// Writes the words into a new chunk, before another process can read them.
    pub(in crate::mailbox) fn write(&self, chunk: &OwnRegion) {
        let halves = [self.lane as u64, (self.lane >> 64) as u64];
        chunk.word(LANE_AT).store(halves[0], Ordering::Relaxed);
        chunk.word(LANE_AT + 8).store(halves[1], Ordering::Relaxed);
        half_of_own(chunk, ON_DEATH_AT).store(self.on_death as u32, Ordering::Relaxed);
    }

    /// Reads the words from a sender's chunk.
    pub(in crate::mailbox) fn read(chunk: &PeerRegion) -> Self {
        let [low, high] = [LANE_AT, LANE_AT + 8].map(|at| chunk.word(at).load(Ordering::Relaxed));
        let on_death = half_of_peer(chunk, ON_DEATH_AT).load(Ordering::Relaxed);
        Self {
            lane: u128::from(high) << 64 | u128::from(low),
            on_death: match on_death {
                1 => OnDeath::WaitForSuccessor,
                2 => OnDeath::WaitThroughRestarts,
                _ => OnDeath::Fail, // also for an unknown number
            },
        }
    }
}
