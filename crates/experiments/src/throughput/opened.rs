//! A stream by any mechanism that opens one: [`Flow`].

use tontine_host::error::Result;
use tontine_mechanisms::driver::{StreamDriver, StreamUser};

use super::harness::{self, Batches, StreamPlan};
use super::threads;

/// A stream that follows a plan. It yields the batches and the driver's note, if any.
pub(super) struct Flow<'p>(pub(super) &'p StreamPlan);

impl StreamUser for Flow<'_> {
    type Out = Result<(Batches, Option<String>)>;

    fn threads<S: StreamDriver<Out: Send>>(self) -> Self::Out {
        let bed = S::lay(self.0.traffic())?;
        let outlets = (0..self.0.senders).map(|sender| S::outlet(&bed, sender));
        let outlets = outlets.collect::<Result<Vec<_>>>()?;
        let batches = threads::from_threads(self.0, outlets, S::inlet(&bed, &[])?)?;
        Ok((batches, S::note(self.0.traffic())))
    }

    fn processes<S: StreamDriver>(self) -> Self::Out {
        let bed = S::lay(self.0.traffic())?;
        let batches = harness::from_processes(
            self.0,
            |sender| S::outlet(&bed, sender),
            |senders| S::inlet(&bed, senders),
        )?;
        Ok((batches, S::note(self.0.traffic())))
    }
}
