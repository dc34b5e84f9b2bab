//! Channels between threads: crossbeam's, which sleeps, and rtrb's rings, on which both ends spin.

use crossbeam_channel::{Receiver, Sender, bounded};
use rtrb::{Consumer, Producer, RingBuffer};
use tontine_host::peer::{Peer, SPINS};
use tontine_host::trouble::{Result, Trouble};

use super::harness::{self, End, Plan, Timed};

/// Two bounded crossbeam channels.
pub(super) fn crossbeam(plan: &Plan) -> Result<Timed> {
    let ((ask, asked), (answer, answered)) = (bounded(1), bounded(1));
    harness::between_threads(
        plan,
        move |_| harness::time(plan, &mut Channels { out: ask, back: answered }),
        move |_| harness::answer(plan, &mut Channels { out: answer, back: asked }),
    )
}

/// Two rings.
pub(super) fn rings(plan: &Plan) -> Result<Timed> {
    let ((ask, asked), (answer, answered)) = (RingBuffer::new(2), RingBuffer::new(2));
    harness::between_threads(
        plan,
        move |peer| harness::time(plan, &mut Rings { out: ask, back: answered, peer }),
        move |peer| harness::answer(plan, &mut Rings { out: answer, back: asked, peer }),
    )
}

struct Channels {
    out: Sender<u8>,
    back: Receiver<u8>,
}

impl End for Channels {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.out.send(1).map_err(|_| gone())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        self.back.recv().map(|_| ()).map_err(|_| gone())
    }
}

fn gone() -> Trouble {
    Trouble::fail("the other thread dropped its end")
}

struct Rings<'a> {
    out: Producer<u8>,
    back: Consumer<u8>,
    peer: Peer<'a>,
}

impl End for Rings<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.out
            .push(1)
            .map_err(|_| Trouble::fail("the ring is full although one message is under way"))
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        loop {
            for _ in 0..SPINS {
                if self.back.pop().is_ok() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.peer.check()?;
        }
    }
}
