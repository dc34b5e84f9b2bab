//! One end of a mechanism in the round trip ([`RoundTripEnd`]), and the times of its rounds
//! ([`Timed`]).

use tontine_host::error::Result;

/// One end of a mechanism.
pub(super) trait RoundTripEnd {
    /// Publishes one message.
    fn send(&mut self) -> Result<()>;
    /// Waits for one message.
    fn wait(&mut self) -> Result<()>;
    /// Prepares for the next message if this message is not answered: performs all steps of `send`
    /// except waking the other end.
    fn forget(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Times of a run of rounds.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    /// Half of each round in ns, or half of the mean round of each batch.
    pub(crate) one_way: Vec<f64>,
    /// Rounds in a batch.
    pub(crate) batch: usize,
    /// Half of each singly timed round in ns, including the stamp. Empty if `one_way` contains
    /// single rounds.
    pub(crate) single: Vec<f64>,
}
