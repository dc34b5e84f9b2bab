//! The ring that several mechanisms share, [`Ring`]: a few slots, and two counts that determine
//! which slots are full. Also the ends of any ring under a [`RingGuard`].
//!
//! The ring is plain memory, as in textbooks: the caller of [`Ring::push`] or [`Ring::pop`] holds
//! the guard. The mechanisms differ in the state of the guard after the death of its holder.

#![allow(
    unsafe_code,
    reason = "plain memory shared between processes, guarded by the callers' locks"
)]

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tontine_bench::error::Result;

use crate::driver::{NAMED_BYTES, NamedDriver, PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Duplex, Inlet, Outlet, Patient, Peers, Transfer, deadline_in};
use crate::location::Location;
use crate::region::SharedRegion;

/// Capacity of the ring in messages.
pub const SLOTS: usize = 4;

/// The shared memory before the slots. All-zero bytes are an empty ring.
#[derive(Debug)]
#[repr(C)]
pub struct RingMemory<G> {
    pub guard: G,
    /// Number of messages written so far.
    pub written: u64,
    /// Number of messages read so far.
    pub read: u64,
}

/// Returns the size of the slots in bytes, for messages of this length.
pub const fn slots(bytes: usize) -> usize {
    SLOTS * bytes
}

/// A mapped ring, with the size of its messages.
#[derive(Debug)]
pub struct Ring<G> {
    memory: *mut RingMemory<G>,
    bytes: usize,
}

impl<G> Ring<G> {
    /// Returns the ring in a region.
    ///
    /// # Safety
    /// The region has [`slots`]`(bytes)` bytes after its memory, and outlives the ring.
    #[inline(always)]
    pub unsafe fn of(region: &SharedRegion<RingMemory<G>>, bytes: usize) -> Self {
        Self { memory: region.at(), bytes }
    }

    #[inline(always)]
    pub fn memory(&self) -> *mut RingMemory<G> {
        self.memory
    }

    /// Returns `true` if the ring contains no message.
    ///
    /// # Safety
    /// The ring is mapped, and the caller holds its guard.
    #[inline(always)]
    pub unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller upholds the requirements.
        unsafe { (*self.memory).written == (*self.memory).read }
    }

    /// Returns `true` if no further message fits.
    ///
    /// # Safety
    /// The requirements of [`Ring::is_empty`] apply.
    #[inline(always)]
    pub unsafe fn is_full(&self) -> bool {
        // SAFETY: the caller upholds the requirements.
        unsafe { (*self.memory).written.wrapping_sub((*self.memory).read) >= SLOTS as u64 }
    }

    /// Copies a message in, then counts it. If the sender is killed in between, the message was
    /// never sent.
    ///
    /// # Safety
    /// The requirements of [`Ring::is_empty`] apply; the ring is not full, and the message is as
    /// long as its slots.
    #[inline(always)]
    pub unsafe fn push(&self, message: &[u8]) {
        // SAFETY: the caller upholds the requirements.
        unsafe {
            let written = (*self.memory).written;
            self.write(written, message);
            (*self.memory).written = written.wrapping_add(1);
        }
    }

    /// Copies a message out, then counts it. If the receiver is killed in between, the message is
    /// still in the ring.
    ///
    /// # Safety
    /// The requirements of [`Ring::is_empty`] apply; the ring is not empty, and `into` is as long
    /// as its messages.
    #[inline(always)]
    pub unsafe fn pop(&self, into: &mut [u8]) {
        // SAFETY: the caller upholds the requirements.
        unsafe {
            let read = (*self.memory).read;
            std::ptr::copy_nonoverlapping(self.slot(read), into.as_mut_ptr(), self.bytes);
            (*self.memory).read = read.wrapping_add(1);
        }
    }

    /// Copies a message into the slot for number `written`, without counting it.
    ///
    /// # Safety
    /// The requirements of [`Ring::push`] apply.
    #[inline(always)]
    pub unsafe fn write(&self, written: u64, message: &[u8]) {
        // SAFETY: the caller upholds the requirements.
        unsafe {
            std::ptr::copy_nonoverlapping(message.as_ptr(), self.slot(written), self.bytes);
        }
    }

    /// # Safety
    /// The ring is mapped, as the caller of [`Ring::of`] promised.
    #[inline(always)]
    unsafe fn slot(&self, number: u64) -> *mut u8 {
        // SAFETY: the slots follow the memory (`Ring::of`), and the remainder is a valid slot
        // number.
        unsafe { self.memory.add(1).cast::<u8>().add(number as usize % SLOTS * self.bytes) }
    }
}

/// Locks of a ring, which also wake its waiters.
pub trait RingGuard: Sized + 'static {
    /// Initialises the guard for several processes.
    ///
    /// # Safety
    /// The guard is mapped, and no other process uses it yet.
    unsafe fn initialise(guard: *mut Self) -> Result<()>;

    /// Waits for space and pushes a message.
    ///
    /// # Safety
    /// The guard is initialised, the ring mapped, the message as long as its slots.
    unsafe fn put(ring: &Ring<Self>, message: &[u8], peers: Peers<'_>) -> Transfer<()>;

    /// Waits for a message and pops it. Returns `false` if none arrived before the deadline.
    ///
    /// # Safety
    /// The guard is initialised, the ring mapped, and `into` as long as a message.
    unsafe fn take(
        ring: &Ring<Self>,
        into: &mut [u8],
        peers: Peers<'_>,
        until: Option<&libc::timespec>,
    ) -> Transfer<bool>;
}

/// An end of a ring, which can send and receive.
pub struct RingEnd<G> {
    region: Arc<SharedRegion<RingMemory<G>>>,
    buffer: Vec<u8>,
}

impl<G: RingGuard> RingEnd<G> {
    fn new(region: Arc<SharedRegion<RingMemory<G>>>, bytes: usize) -> Self {
        Self { region, buffer: vec![0; bytes] }
    }

    #[inline(always)]
    fn ring(&self) -> Ring<G> {
        // SAFETY: each region is created or opened with `slots` of the length given to `new`, and
        // this end keeps the region mapped.
        unsafe { Ring::of(&self.region, self.buffer.len()) }
    }

    fn make(region: SharedRegion<RingMemory<G>>) -> Result<SharedRegion<RingMemory<G>>> {
        // SAFETY: the memory is mapped, and no other process uses it yet; only an address is taken.
        unsafe { G::initialise(&raw mut (*region.at()).guard) }?;
        Ok(region)
    }
}

impl<G: RingGuard> Outlet for RingEnd<G> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        let ring = self.ring();
        assert_eq!(message.len(), self.buffer.len(), "a ring is made for messages of one length");
        // SAFETY: `make` initialised the guard before the fork that created this end, or before
        // this end was opened by name; this end keeps the mapping, and the message is as long as a
        // slot.
        unsafe { G::put(&ring, message, peers) }
    }
}

impl<G: RingGuard> Inlet for RingEnd<G> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let ring = self.ring();
        // SAFETY: as in `send`; the buffer is as long as a message.
        while !unsafe { G::take(&ring, &mut self.buffer, peers, None) }? {}
        Ok(look(&self.buffer))
    }
}

impl<G: RingGuard> Patient for RingEnd<G> {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        let ring = self.ring();
        let until = deadline_in(time);
        // SAFETY: as in `receive`.
        let came = unsafe { G::take(&ring, &mut self.buffer, &[], Some(&until)) }?;
        Ok(came.then(|| look(&self.buffer)))
    }
}

/// The mechanism that consists of a ring under this guard.
pub struct Under<G>(PhantomData<G>);

impl<G: RingGuard> PairDriver for Under<G> {
    /// A ring in each direction.
    type Half = Duplex<RingEnd<G>, RingEnd<G>>;
    type End<const BYTES: usize> = Self::Half;

    fn pair(bytes: usize) -> Result<PairHalves<Self::Half>> {
        let ring = || -> Result<_> {
            let region = RingEnd::make(SharedRegion::anonymous(slots(bytes))?)?;
            let region = Arc::new(region);
            Ok((RingEnd::new(Arc::clone(&region), bytes), RingEnd::new(region, bytes)))
        };
        let ((ask, to_answer), (answer, answered)) = (ring()?, ring()?);
        Ok(PairHalves::of((Duplex::new(ask, answered), Duplex::new(answer, to_answer))))
    }

    fn open<const BYTES: usize>(half: Self::Half, _: Peers<'_>) -> Result<Self::Half> {
        Ok(half)
    }
}

impl<G: RingGuard> StreamDriver for Under<G> {
    type Fixture = (Arc<SharedRegion<RingMemory<G>>>, usize);
    type Out = RingEnd<G>;
    type In = RingEnd<G>;

    fn set_up(Traffic { bytes, .. }: Traffic) -> Result<Self::Fixture> {
        Ok((Arc::new(RingEnd::make(SharedRegion::anonymous(slots(bytes))?)?), bytes))
    }

    fn outlet((region, bytes): &Self::Fixture, _: usize) -> Result<RingEnd<G>> {
        Ok(RingEnd::new(Arc::clone(region), *bytes))
    }

    fn inlet(fixture: &Self::Fixture, _: Peers<'_>) -> Result<RingEnd<G>> {
        Self::outlet(fixture, 0)
    }
}

impl<G: RingGuard> NamedDriver for Under<G> {
    type Out = RingEnd<G>;
    type In = RingEnd<G>;

    fn create(at: &Location) -> Result<()> {
        RingEnd::<G>::make(SharedRegion::create(at, slots(NAMED_BYTES))?).map(drop)
    }

    fn sender(at: &Location) -> Result<RingEnd<G>> {
        Ok(RingEnd::new(Arc::new(SharedRegion::open(at, slots(NAMED_BYTES))?), NAMED_BYTES))
    }

    fn receiver(at: &Location) -> Result<RingEnd<G>> {
        Self::sender(at)
    }
}
