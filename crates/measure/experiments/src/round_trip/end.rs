//! An end of a mechanism in rounds, [`RoundTripEnd`], and their times, [`Timed`].

use crate::prelude::*;

#[derive(Debug, Default)]
pub(crate) struct Timed {
    /// Half of each round in ns, or half of the mean round of each batch.
    pub(crate) one_way: Vec<f64>,
    pub(crate) batch: usize,
    /// Half of each singly timed round in ns, including the stamp. Empty if `one_way` contains
    /// single rounds.
    pub(crate) single: Vec<f64>,
}

pub(super) trait RoundTripEnd {
    fn send(&mut self) -> Result<()>;
    fn wait(&mut self) -> Result<()>;
    /// Prepares for the next message if this message is not answered: performs all steps of `send`
    /// except waking the other end.
    fn forget(&mut self) -> Result<()> {
        Ok(())
    }
}
