//! rtrb's rings between threads, on which both ends spin: `rtrb`.

use crate::about::{Asked, Between, Death, Idle, Listing, Mechanism, PEERS};
use crate::driver::Driver;
#[cfg(feature = "peers")]
use crate::driver::{PairUser, StreamUser, Traffic};

/// `rtrb`.
pub struct Rtrb;

impl Driver for Rtrb {
    const MECHANISM: Mechanism = Mechanism {
        idle: Idle::Spins,
        between: Between::Threads,
        needs: &[PEERS],
        ..Mechanism::new(
            "rtrb",
            Death::TakesBoth,
            &[
                Listing::new(Asked::RoundTrip, "two rtrb rings, both threads spin"),
                Listing::new(
                    Asked::Throughput,
                    "an rtrb ring of words, of bytes for larger messages; both threads spin",
                ),
            ],
        )
    };

    #[cfg(feature = "peers")]
    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        Some(user.threads::<rings::Bytes, 1>())
    }

    #[cfg(feature = "peers")]
    fn streams<U: StreamUser>(traffic: Traffic, user: U) -> Option<U::Out> {
        Some(if traffic.bytes == rings::WORD {
            user.threads::<rings::WordRing>()
        } else {
            user.threads::<rings::Bytes>()
        })
    }
}

#[cfg(feature = "peers")]
mod rings {
    use std::cell::Cell;

    use ::rtrb::{Consumer, Producer, RingBuffer};
    use tontine_host::error::{MeasureError, Result};
    use tontine_host::peer::{PeerHandle, SPINS};

    use crate::driver::{Couple, PairDriver, StreamDriver, Traffic};
    use crate::end::{Duplex, Inlet, Outlet, TransferError, check, spin_until};

    /// Size of a word in bytes.
    pub(super) const WORD: usize = size_of::<u64>();
    /// Size of a stream's ring in bytes.
    const RING_BYTES: usize = 256 << 10;

    /// A ring of words, each of which is a message.
    pub(super) struct WordRing;

    /// A ring of bytes, through which longer messages pass in pieces.
    pub(super) struct Bytes;

    impl PairDriver for Bytes {
        type Half = (Producer<u8>, Consumer<u8>);
        type End<const BYTES: usize> = Duplex<BytesIn, BytesOut<[u8; BYTES]>>;

        fn pair(bytes: usize) -> Result<Couple<Self::Half>> {
            let ring = || RingBuffer::new(2 * bytes);
            let ((ask, asked), (answer, answered)) = (ring(), ring());
            Ok(Couple::of(((ask, answered), (answer, asked))))
        }

        fn open<const BYTES: usize>(
            (producer, consumer): Self::Half,
            _: &[PeerHandle<'_>],
        ) -> Result<Self::End<BYTES>> {
            let back = BytesOut { consumer, buffer: [0; BYTES] };
            Ok(Duplex { out: BytesIn(producer), back })
        }
    }

    /// Both ends of a ring before they are opened.
    pub(super) struct RingBed<T> {
        producer: Cell<Option<Producer<T>>>,
        consumer: Cell<Option<Consumer<T>>>,
        bytes: usize,
    }

    impl<T> RingBed<T> {
        fn new(slots: usize, bytes: usize) -> Self {
            let (producer, consumer) = RingBuffer::new(slots);
            let (producer, consumer) = (Cell::new(Some(producer)), Cell::new(Some(consumer)));
            Self { producer, consumer, bytes }
        }

        fn producer(&self) -> Result<Producer<T>> {
            self.producer.take().ok_or_else(|| MeasureError::fail("a ring has only one sender"))
        }

        fn consumer(&self) -> Result<Consumer<T>> {
            self.consumer.take().ok_or_else(|| MeasureError::fail("a ring has only one receiver"))
        }
    }

    impl StreamDriver for WordRing {
        type Bed = RingBed<u64>;
        type Out = WordsIn;
        type In = WordsOut;

        fn lay(Traffic { bytes, .. }: Traffic) -> Result<Self::Bed> {
            Ok(RingBed::new(RING_BYTES / WORD, bytes))
        }

        fn outlet(bed: &Self::Bed, _: usize) -> Result<WordsIn> {
            bed.producer().map(WordsIn)
        }

        fn inlet(bed: &Self::Bed, _: &[PeerHandle<'_>]) -> Result<WordsOut> {
            bed.consumer().map(WordsOut)
        }
    }

    impl StreamDriver for Bytes {
        type Bed = RingBed<u8>;
        type Out = BytesIn;
        type In = BytesOut<Vec<u8>>;

        fn lay(Traffic { bytes, .. }: Traffic) -> Result<Self::Bed> {
            Ok(RingBed::new(RING_BYTES, bytes))
        }

        fn outlet(bed: &Self::Bed, _: usize) -> Result<BytesIn> {
            bed.producer().map(BytesIn)
        }

        fn inlet(bed: &Self::Bed, _: &[PeerHandle<'_>]) -> Result<Self::In> {
            Ok(BytesOut { consumer: bed.consumer()?, buffer: vec![0; bed.bytes] })
        }
    }

    pub(super) struct WordsIn(Producer<u64>);

    impl Outlet for WordsIn {
        #[inline(always)]
        fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
            let word =
                message.first_chunk().ok_or_else(|| MeasureError::fail("expected one word"))?;
            let word = u64::from_ne_bytes(*word);
            Ok(spin_until(peers, true, || self.0.push(word).is_ok())?)
        }
    }

    pub(super) struct WordsOut(Consumer<u64>);

    impl Inlet for WordsOut {
        #[inline(always)]
        fn receive<R>(
            &mut self,
            peers: &[PeerHandle<'_>],
            look: impl FnOnce(&[u8]) -> R,
        ) -> Result<R, TransferError> {
            loop {
                for _ in 0..SPINS {
                    if let Ok(word) = self.0.pop() {
                        return Ok(look(&word.to_ne_bytes()));
                    }
                    std::hint::spin_loop();
                }
                check(peers)?;
            }
        }
    }

    pub(super) struct BytesIn(Producer<u8>);

    impl Outlet for BytesIn {
        #[inline(always)]
        fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
            if let [byte] = message {
                return Ok(spin_until(peers, true, || self.0.push(*byte).is_ok())?);
            }
            let mut left = message;
            Ok(spin_until(peers, true, || {
                (_, left) = self.0.push_partial_slice(left);
                left.is_empty()
            })?)
        }
    }

    pub(super) struct BytesOut<B> {
        consumer: Consumer<u8>,
        buffer: B,
    }

    impl<B: AsMut<[u8]>> Inlet for BytesOut<B> {
        #[inline(always)]
        fn receive<R>(
            &mut self,
            peers: &[PeerHandle<'_>],
            look: impl FnOnce(&[u8]) -> R,
        ) -> Result<R, TransferError> {
            let buffer = self.buffer.as_mut();
            if let [byte] = buffer {
                spin_until(peers, true, || self.consumer.pop().map(|it| *byte = it).is_ok())?;
                return Ok(look(buffer));
            }
            let (mut filled, mut spins) = (0, 0);
            while filled < buffer.len() {
                let (got, _) = self.consumer.pop_partial_slice(&mut buffer[filled..]);
                filled += got.len();
                spins += 1;
                if spins == SPINS {
                    check(peers)?;
                    spins = 0;
                }
            }
            Ok(look(buffer))
        }
    }
}
