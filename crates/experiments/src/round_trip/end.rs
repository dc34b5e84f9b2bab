//! One end of a mechanism as the round trip uses it: [`End`], and what its rounds took, [`Timed`].

use tontine_host::trouble::Result;

/// One end of a mechanism.
pub(super) trait End {
    /// Publishes one message.
    fn send(&mut self) -> Result<()>;
    /// Waits for one message.
    fn wait(&mut self) -> Result<()>;
    /// Makes ready for the next message where this one is not answered: whatever `send` would have
    /// done besides waking the other end.
    fn forget(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What a run of rounds showed.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    /// Half of each round, ns, or of the mean round of each batch.
    pub(crate) one_way: Vec<f64>,
    /// Rounds in a batch.
    pub(crate) batch: usize,
    /// Half of each single round, stamp included, ns; empty where `one_way` has single rounds.
    pub(crate) single: Vec<f64>,
}
