//! The ends of `rtrb`.

use std::cell::Cell;

use ::rtrb::{Consumer, Producer, RingBuffer};
use tontine_bench::error::{MeasureError, Result};
use tontine_bench::peer::SPINS;

use crate::driver::{PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Duplex, Inlet, Outlet, Peers, Transfer, check, spin_until};

/// Size of a word in bytes.
pub const WORD: usize = size_of::<u64>();
/// Size of a stream's ring in bytes.
const RING_BYTES: usize = 256 << 10;

/// A ring of words, each of which is a message.
pub struct WordRing;

/// A ring of bytes, through which longer messages pass in pieces.
pub struct Bytes;

impl PairDriver for Bytes {
    type Half = (Producer<u8>, Consumer<u8>);
    type End<const BYTES: usize> = Duplex<BytesIn, BytesOut<[u8; BYTES]>>;

    fn pair(bytes: usize) -> Result<PairHalves<Self::Half>> {
        let ring = || RingBuffer::new(2 * bytes);
        let ((ask, to_answer), (answer, answered)) = (ring(), ring());
        Ok(PairHalves::of(((ask, answered), (answer, to_answer))))
    }

    fn open<const BYTES: usize>(
        (producer, consumer): Self::Half,
        _: Peers<'_>,
    ) -> Result<Self::End<BYTES>> {
        let back = BytesOut { consumer, buffer: [0; BYTES] };
        Ok(Duplex::new(BytesIn(producer), back))
    }
}

/// Both ends of a ring before they are opened.
pub struct RingFixture<T> {
    producer: Cell<Option<Producer<T>>>,
    consumer: Cell<Option<Consumer<T>>>,
    bytes: usize,
}

impl<T> RingFixture<T> {
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
    type Fixture = RingFixture<u64>;
    type Out = WordsIn;
    type In = WordsOut;

    fn set_up(Traffic { bytes, .. }: Traffic) -> Result<Self::Fixture> {
        Ok(RingFixture::new(RING_BYTES / WORD, bytes))
    }

    fn outlet(fixture: &Self::Fixture, _: usize) -> Result<WordsIn> {
        fixture.producer().map(WordsIn)
    }

    fn inlet(fixture: &Self::Fixture, _: Peers<'_>) -> Result<WordsOut> {
        fixture.consumer().map(WordsOut)
    }
}

impl StreamDriver for Bytes {
    type Fixture = RingFixture<u8>;
    type Out = BytesIn;
    type In = BytesOut<Vec<u8>>;

    fn set_up(Traffic { bytes, .. }: Traffic) -> Result<Self::Fixture> {
        Ok(RingFixture::new(RING_BYTES, bytes))
    }

    fn outlet(fixture: &Self::Fixture, _: usize) -> Result<BytesIn> {
        fixture.producer().map(BytesIn)
    }

    fn inlet(fixture: &Self::Fixture, _: Peers<'_>) -> Result<Self::In> {
        Ok(BytesOut { consumer: fixture.consumer()?, buffer: vec![0; fixture.bytes] })
    }
}

pub struct WordsIn(Producer<u64>);

impl Outlet for WordsIn {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        let word = message.first_chunk().ok_or_else(|| MeasureError::fail("expected one word"))?;
        let word = u64::from_ne_bytes(*word);
        Ok(spin_until(peers, true, || self.0.push(word).is_ok())?)
    }
}

pub struct WordsOut(Consumer<u64>);

impl Inlet for WordsOut {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
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

pub struct BytesIn(Producer<u8>);

impl Outlet for BytesIn {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
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

pub struct BytesOut<B> {
    consumer: Consumer<u8>,
    buffer: B,
}

impl<B: AsMut<[u8]>> Inlet for BytesOut<B> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
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
