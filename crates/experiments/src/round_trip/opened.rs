//! Rounds over any mechanism that opens two ends: [`Trip`].

use std::cell::Cell;

use tontine_host::error::{MeasureError, Result};
use tontine_host::peer::PeerHandle;
use tontine_mechanisms::driver::{Couple, PairDriver, PairUser};
use tontine_mechanisms::end::{Early, TwoWay};

use super::harness::{self, RoundPlan, RoundTripEnd, Timed};

/// An end for the rounds. Its messages have `BYTES` bytes: a one followed by zeros.
pub(super) struct Adapted<'a, E, const BYTES: usize> {
    end: E,
    peers: [PeerHandle<'a>; 1],
}

impl<'a, E: TwoWay, const BYTES: usize> Adapted<'a, E, BYTES> {
    pub(super) fn new(end: E, peer: PeerHandle<'a>) -> Self {
        Self { end, peers: [peer] }
    }
}

impl<E: TwoWay, const BYTES: usize> RoundTripEnd for Adapted<'_, E, BYTES> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        let mut message = [0; BYTES];
        message[0] = 1;
        Ok(self.end.send(&message, &self.peers)?)
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        Ok(self.end.receive(&self.peers, |_| ())?)
    }

    #[inline(always)]
    fn forget(&mut self) -> Result<()> {
        self.end.forget()
    }
}

/// Times the rounds of a plan.
pub(super) struct Trip<'p>(pub(super) &'p RoundPlan<'p>);

impl Trip<'_> {
    fn ping<P: PairDriver, const BYTES: usize>(
        &self,
        half: P::Half,
        peer: PeerHandle<'_>,
    ) -> Result<(Timed, Option<Early>)> {
        let mut end = Adapted::<_, BYTES>::new(P::open::<BYTES>(half, &[peer])?, peer);
        let timed = harness::time(self.0, &mut end)?;
        Ok((timed, end.end.early()))
    }

    fn echo<P: PairDriver, const BYTES: usize>(
        &self,
        half: P::Half,
        peer: PeerHandle<'_>,
    ) -> Result<()> {
        let mut end = Adapted::<_, BYTES>::new(P::open::<BYTES>(half, &[peer])?, peer);
        harness::answer(self.0, &mut end)
    }
}

impl PairUser for Trip<'_> {
    type Out = Result<(Timed, Option<Early>)>;

    fn threads<P: PairDriver<Half: Send>, const BYTES: usize>(self) -> Self::Out {
        let Couple { one, two, stays: _stays } = P::pair(BYTES)?;
        harness::between_threads(
            self.0,
            |peer| self.ping::<P, BYTES>(one, peer),
            |peer| self.echo::<P, BYTES>(two, peer),
        )
    }

    /// Each process drops the other process's ends, so that a death causes an end of file.
    fn processes<P: PairDriver, const BYTES: usize>(self) -> Self::Out {
        let Couple { one, two, stays: _stays } = P::pair(BYTES)?;
        let (one, two) = (Cell::new(Some(one)), Cell::new(Some(two)));
        let take = |half: &Cell<Option<P::Half>>| {
            half.take().ok_or_else(|| MeasureError::fail("an end was opened twice"))
        };
        harness::between_processes(
            self.0,
            |peer| {
                drop(two.take());
                self.ping::<P, BYTES>(take(&one)?, peer)
            },
            |peer| {
                drop(one.take());
                self.echo::<P, BYTES>(take(&two)?, peer)
            },
        )
    }
}
