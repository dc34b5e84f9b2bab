//! The carrier between two gateways: the trait [`Link`].

use std::os::fd::BorrowedFd;

/// A host of the realm, as an index into the list of configured peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub u16);

/// Result of [`Link::try_send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queued {
    /// The link took the frame. It may still lose it.
    Yes,
    /// The link has no space now. Its descriptor becomes readable, and [`Link::poll`] returns
    /// [`LinkEvent::Writable`], when it has.
    Full,
    /// There is no connection to the host.
    Down,
}

/// An event of a link.
#[derive(Debug, PartialEq, Eq)]
pub enum LinkEvent<'a> {
    /// A frame arrived. `from` is the host that the carrier authenticated, if the carrier does.
    Frame {
        /// The sending host.
        from: HostId,
        /// The whole frame, valid until the next call.
        bytes: &'a [u8],
    },
    /// A connection to the host exists. A hint: frames may be lost all the same.
    Up(HostId),
    /// The connection to the host ended. A hint: the host may be alive.
    Down(HostId),
    /// A frame that did not fit before may fit now.
    Writable(HostId),
}

/// A carrier of frames between hosts.
///
/// A carrier may lose, repeat, delay and reorder frames; it delivers a frame whole or not at all.
/// The protocol above it ([`crate::outgoing`], [`crate::incoming`]) assumes nothing else.
pub trait Link {
    /// Passes a frame of at most [`crate::frame::MAX_FRAME`] bytes to the carrier, without waiting.
    ///
    /// The link may take the bytes out of `frame` and leave another buffer in their place.
    fn try_send(&mut self, to: HostId, frame: &mut Vec<u8>) -> Queued;

    /// Returns the next event, without waiting.
    fn poll(&mut self) -> Option<LinkEvent<'_>>;

    /// Returns a descriptor that is readable while the link has work, once [`Link::poll`] has
    /// returned `None` (level-triggered).
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the name of the carrier, as `tontine bridge status` prints it.
    fn carrier(&self) -> &'static str;
}
