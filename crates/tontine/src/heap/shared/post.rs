//! Sending blocks through a mailbox without copying them: [`Outbox`], [`Inbox`].
//!
//! Only a [`Parcel`] crosses the lane; the block stays at its place in the heap. If either process
//! is killed at any instruction, the block belongs to one of the two, or is free
//! (`docs/internals/heap-shared.md`).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::core::Core;
use super::word::Member;
use super::{Block, Heap, Parcel};
use crate::error::Peer;
use crate::heap::{HeapError, Result};
use crate::mailbox::{Mailbox, Message, Sender, SenderId};
use crate::sync::Ordering;

/// Interval at which a sender checks whether its receiver has accepted the connection: 10 ms.
const UNTIL_WELCOME: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Interval at which a receiver checks for dead members while no block arrives: 1 s.
const UNTIL_A_LOOK: Duration = Duration::from_secs(1);

/// A sender of blocks to one member's [`Inbox`], without copying. [`Heap::outbox`] returns it.
///
/// Dropping an outbox frees the blocks that a dead receiver has left in the lane.
///
/// # Examples
/// ```
/// use tontine::heap::shared::{Heap, Member};
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("jobs");
/// let heap = Heap::create(1 << 20)?;
/// let mut inbox = heap.inbox(Mailbox::bind(&path)?)?; // usually in another process,
/// let number = heap.member().to_u64(); // which sends its number to the senders
///
/// let mut outbox = heap.outbox(Sender::connect(&path)?, Member::from_u64(number))?;
/// let mut block = heap.alloc(1000)?;
/// block.fill(7);
/// let received = std::thread::scope(|threads| {
///     threads.spawn(|| {
///         if let Err((error, block)) = outbox.send(block) {
///             println!("still ours, {} bytes: {error}", block.len());
///         }
///     });
///     inbox.recv()
/// });
/// assert_eq!(*received?.0, [7; 1000]);
/// # Ok(())
/// # }
/// ```
pub struct Outbox<'heap> {
    heap: &'heap Heap,
    sender: Sender,
    to: Member,
    /// `true` once the receiver has accepted the connection, and was found to be the intended
    /// member.
    welcome: bool,
}

/// A receiver of the blocks that other members send through an [`Outbox`]. [`Heap::inbox`] returns
/// it.
///
/// Dropping an inbox frees the blocks that have arrived and were not received.
///
/// # Examples
/// ```
/// use tontine::heap::shared::Heap;
/// use tontine::mailbox::{Mailbox, Sender};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("jobs");
/// let heap = Heap::create(1 << 20)?;
/// let mut inbox = heap.inbox(Mailbox::bind(&path)?)?;
/// # let mut outbox = heap.outbox(Sender::connect(&path)?, heap.member())?;
/// # let sent = heap.alloc(1000)?;
/// # let received = std::thread::scope(|threads| {
/// #     threads.spawn(|| outbox.send(sent).map_err(|(error, _)| error));
/// // Another process has sent a block by now:
/// let (block, _sender) = inbox.recv()?;
/// assert_eq!(block.len(), 1000);
/// drop(block); // frees it, though another process allocated it
/// #     Ok::<(), tontine::heap::HeapError>(())
/// # });
/// # received?;
/// # Ok(())
/// # }
/// ```
pub struct Inbox<'heap> {
    heap: &'heap Heap,
    pub(super) mailbox: Mailbox,
    /// Value of the header's `deaths` counter when dead members were last listed.
    deaths: u64,
    /// Members that were dead before the lanes were last seen empty.
    dead: Option<Vec<Member>>,
    /// Number of lanes that had ended at the last check.
    departures: u64,
    skipped: u64,
}

impl fmt::Debug for Outbox<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Outbox").field("to", &self.to).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inbox<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Inbox").field("skipped", &self.skipped).finish_non_exhaustive()
    }
}

impl Heap {
    /// Returns an outbox that sends blocks to the member `to`. `sender` leads to the mailbox from
    /// which `to` has made its [`Inbox`]. See [`Outbox`] for an example.
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Panics
    /// Panics if the sender waits for its receiver's successor
    /// ([`OnDeath`](crate::mailbox::OnDeath)), because a block is sent to one member.
    pub fn outbox(&self, sender: Sender, to: Member) -> Result<Outbox<'_>> {
        self.here()?;
        assert!(!sender.waits_for_successor(), "a block goes to one member, not to its successor");
        self.core.mail.ways().open_outbox(to);
        Ok(Outbox { heap: self, sender, to, welcome: false })
    }

    /// Returns an inbox that receives blocks from a mailbox. See [`Outbox`] for an example.
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    pub fn inbox(&self, mailbox: Mailbox) -> Result<Inbox<'_>> {
        self.here()?;
        self.core.mail.ways().open_inbox();
        let departures = mailbox.departures();
        Ok(Inbox { heap: self, mailbox, deaths: 0, dead: None, departures, skipped: 0 })
    }
}

impl<'heap> Outbox<'heap> {
    /// Sends a block. Blocks while the lane has no free space, and until the receiver has accepted
    /// the connection.
    ///
    /// After `Ok`, this process no longer holds the block.
    ///
    /// # Errors
    /// Each error is returned with the block, which this process still holds.
    ///
    /// - [`HeapError::Mailbox`] with an error of [`Sender::send`], such as
    ///   [`OwnerDied`](crate::Error::OwnerDied) or [`Closed`](crate::Error::Closed).
    /// - [`HeapError::MemberDead`] if the receiver is known to have ended.
    /// - [`HeapError::WrongMember`] if the lane leads to a process other than the member.
    /// - [`HeapError::Overrun`] if the block was written beyond its end (heap with canaries).
    /// - [`HeapError::System`] if the kernel has no memory to record the block's destination.
    /// - [`HeapError::Forked`] in a forked child.
    ///
    /// # Panics
    /// Panics if the block belongs to another heap.
    #[inline]
    pub fn send(&mut self, block: Block<'heap>) -> Result<(), (HeapError, Block<'heap>)> {
        if !self.welcome
            && let Err(error) = self.wait_for_welcome()
        {
            return Err((error, block));
        }
        self.post(block, Sender::send)
    }

    /// Sends a block like [`Outbox::send`], but never blocks.
    ///
    /// # Errors
    /// - [`HeapError::Mailbox`] with [`crate::Error::WouldBlock`] if the lane has no free space, or
    ///   the receiver has not accepted the connection yet.
    /// - Otherwise the errors of [`Outbox::send`], each with the block.
    ///
    /// # Panics
    /// Panics if the block belongs to another heap.
    #[inline]
    pub fn try_send(&mut self, block: Block<'heap>) -> Result<(), (HeapError, Block<'heap>)> {
        if !self.welcome {
            match self.look_for_welcome() {
                Ok(true) => {}
                Ok(false) => return Err((crate::Error::WouldBlock.into(), block)),
                Err(error) => return Err((error, block)),
            }
        }
        self.post(block, Sender::try_send)
    }

    #[inline]
    fn post(
        &mut self,
        block: Block<'heap>,
        send: impl FnOnce(&mut Sender, &[u8]) -> crate::Result<()>,
    ) -> Result<(), (HeapError, Block<'heap>)> {
        assert!(block.is_of(&self.heap.core), "a block of another heap than the outbox's");
        let parcel = block.post(self.to)?;
        match send(&mut self.sender, &parcel.to_bytes()) {
            Ok(()) => Ok(()),
            Err(error) => {
                // No process has seen the parcel; another thread may have called `reclaim_sent`.
                match self.heap.take_back(parcel) {
                    Ok(block) => Err((error.into(), block)),
                    Err(_) => Ok(()),
                }
            }
        }
    }

    /// Blocks until the receiver has accepted the connection. If the sender died before that, no
    /// process would know which lanes may hold the block.
    #[cold]
    fn wait_for_welcome(&mut self) -> Result<()> {
        while !self.look_for_welcome()? {
            let mut readable = [PollFd::new(&self.sender, PollFlags::IN)];
            // The loop checks again, even if a signal interrupted the call.
            let _ = poll(&mut readable, Some(&UNTIL_WELCOME));
        }
        Ok(())
    }

    /// Returns `true` if the receiver has accepted the connection.
    #[cold]
    fn look_for_welcome(&mut self) -> Result<bool> {
        self.sender.service()?;
        if let Some(peer) = self.sender.peer() {
            self.heap.core.must_be(self.to, peer)?;
            self.welcome = true;
        }
        Ok(self.welcome)
    }

    /// Takes back the blocks that a receiver did not accept before it died or closed its mailbox.
    ///
    /// # Errors [`HeapError::Mailbox`] with [`crate::Error::WouldBlock`] while the receiver is
    /// alive, because it may be reading the blocks.
    pub fn take_unread(&mut self) -> Result<Vec<Block<'heap>>> {
        let parcels = self.sender.take_unread()?;
        let parcels = parcels.into_iter().filter_map(|bytes| Parcel::from_slice(&bytes));
        // Blocks that cannot be taken back were accepted, or freed by the member that recovered the
        // receiver.
        Ok(parcels.filter_map(|parcel| self.heap.take_back(parcel).ok()).collect())
    }

    /// Blocks until the receiver has acknowledged every block, for at most `timeout`, like
    /// [`Sender::wait_acked`].
    ///
    /// # Errors
    /// [`HeapError::Mailbox`] with an error of [`Sender::wait_acked`], such as
    /// [`TimedOut`](crate::Error::TimedOut) or [`OwnerDied`](crate::Error::OwnerDied).
    pub fn wait_acked(&mut self, timeout: Option<Duration>) -> Result<()> {
        Ok(self.sender.wait_acked(timeout)?)
    }

    /// Performs the lane's pending work, like [`Sender::service`]. No thread does this in the
    /// background.
    ///
    /// # Errors
    /// [`HeapError::Mailbox`] with an error of [`Sender::service`], such as
    /// [`OwnerDied`](crate::Error::OwnerDied) or [`Closed`](crate::Error::Closed).
    pub fn service(&mut self) -> Result<()> {
        Ok(self.sender.service()?)
    }

    /// Prepares for waiting on the outbox's descriptor until the lane has free space for a block,
    /// like [`Sender::arm`]. Returns `true` if the lane has no free space and the caller can wait.
    /// Returns `false` if the lane may have free space: call [`Outbox::try_send`].
    ///
    /// # Errors
    /// [`HeapError::Mailbox`] with an error of [`Sender::arm`], such as
    /// [`OwnerDied`](crate::Error::OwnerDied) or [`Closed`](crate::Error::Closed).
    pub fn arm(&mut self) -> Result<bool> {
        Ok(self.sender.arm(Parcel::SIZE)?)
    }

    /// Returns the receiver's process, or `None` before it has accepted the connection.
    pub fn peer(&self) -> Option<Peer> {
        self.sender.peer()
    }
}

/// Returns the sender's descriptor, readable when [`Outbox::service`] has work to do.
impl AsFd for Outbox<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }
}

impl Drop for Outbox<'_> {
    fn drop(&mut self) {
        let core = &self.heap.core;
        if core.space.is_forked() {
            return;
        }
        // A live receiver may still read its blocks; if it dies, `reclaim_stranded` frees them.
        let _ = self.take_unread();
        let was_last = core.mail.ways().close_outbox(self.to);
        if was_last && !core.is_alive(self.to) {
            core.settle_again();
        }
    }
}

impl<'heap> Inbox<'heap> {
    /// Blocks until a block arrives. Returns the block, which this process then holds, and the lane
    /// through which it arrived.
    ///
    /// # Errors
    /// - [`HeapError::Mailbox`] with an error of [`Mailbox::recv`], such as
    ///   [`Forked`](crate::Error::Forked) in a forked child.
    /// - [`HeapError::System`] or [`HeapError::LimitReached`] if a dead sender cannot be recovered.
    #[inline]
    pub fn recv(&mut self) -> Result<(Block<'heap>, SenderId)> {
        let core = &self.heap.core;
        // This loop precedes the calls that accept connecting senders and check for dead members,
        // so that a block that arrives soon does not wait for those calls.
        while let Some(message) = self.mailbox.recv_at_once(true) {
            match accept(core, &message) {
                Some(found) => return Ok(found),
                None => self.skipped += 1,
            }
        }
        self.recv_slowly()
    }

    #[cold]
    #[inline(never)]
    fn recv_slowly(&mut self) -> Result<(Block<'heap>, SenderId)> {
        loop {
            match self.try_recv() {
                Err(HeapError::Mailbox(crate::Error::WouldBlock)) => {}
                answer => return answer,
            }
            let core = &self.heap.core;
            let received = self.mailbox.recv_timeout(UNTIL_A_LOOK);
            match received.map(|message| accept(core, &message)) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => self.skipped += 1,
                Err(crate::Error::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns a block like [`Inbox::recv`], but never blocks.
    ///
    /// # Errors
    /// - [`HeapError::Mailbox`] with [`crate::Error::WouldBlock`] if no block has arrived.
    /// - Otherwise the errors of [`Inbox::recv`].
    #[inline]
    pub fn try_recv(&mut self) -> Result<(Block<'heap>, SenderId)> {
        loop {
            let core = &self.heap.core;
            match self.mailbox.try_recv().map(|message| accept(core, &message)) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => self.skipped += 1,
                Err(crate::Error::WouldBlock) if self.look_after_deaths()? => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Frees the blocks that dead members sent and that no process will read; all lanes have just
    /// been seen empty. Returns `true` if the lanes must be read once more.
    fn look_after_deaths(&mut self) -> Result<bool> {
        let core: &Core = &self.heap.core;
        if let Some(dead) = self.dead.take() {
            // The members in `dead` were dead before the lanes were read. If this process lacks the
            // descriptors to read a lane, that lane may still deliver blocks.
            if !self.mailbox.is_read_out() {
                self.dead = Some(dead);
            } else if core.mail.ways().inboxes == 1 {
                core.reclaim_received(&dead, true);
            }
            return Ok(false);
        }
        // The mailbox counts ended lanes, because a new sender may have replaced the one that
        // ended.
        let departures = self.mailbox.departures();
        if std::mem::replace(&mut self.departures, departures) != departures {
            self.heap.recover_and_trim()?;
        }
        // SYNC deaths: pairs with the addition at a recovery's end.
        let deaths = core.space.header().deaths.load(Ordering::Acquire);
        if std::mem::replace(&mut self.deaths, deaths) == deaths {
            return Ok(false);
        }
        self.dead = Some(core.dead_members());
        Ok(true)
    }

    /// Returns the number of messages that were skipped because they were not valid parcels, or
    /// because their blocks were freed or taken back before they were read.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Adds a connected socket as a sender, like [`Mailbox::adopt`].
    ///
    /// # Errors
    /// [`HeapError::Mailbox`] with an error of [`Mailbox::adopt`], such as
    /// [`InvalidSocket`](crate::Error::InvalidSocket).
    pub fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        Ok(self.mailbox.adopt(socket)?)
    }

    /// Prepares for waiting on the inbox's descriptor, like [`Mailbox::arm`]. Returns `true` if
    /// there is nothing to receive.
    ///
    /// # Errors
    /// [`HeapError::Mailbox`] with an error of [`Mailbox::arm`], such as
    /// [`Forked`](crate::Error::Forked) in a forked child.
    pub fn arm(&mut self) -> Result<bool> {
        Ok(self.mailbox.arm()?)
    }

    /// Returns the number of connected senders.
    pub fn sender_count(&self) -> usize {
        self.mailbox.sender_count()
    }

    /// Removes and returns the errors of lanes that had to be closed, and of peers that were
    /// refused, like [`Mailbox::take_errors`].
    #[must_use = "errors that were taken are not returned again"]
    pub fn take_errors(&mut self) -> Vec<crate::Error> {
        self.mailbox.take_errors()
    }
}

/// Returns the mailbox's descriptor, readable when the inbox has work to do.
impl AsFd for Inbox<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}

impl Drop for Inbox<'_> {
    /// Frees the blocks that have arrived and were not received.
    fn drop(&mut self) {
        if self.heap.here().is_err() {
            return;
        }
        while self.try_recv().is_ok() {}
        let core = &self.heap.core;
        let was_last = core.mail.ways().close_inbox();
        if was_last && !core.dead_members().is_empty() {
            core.settle_again();
        }
    }
}

impl Core {
    /// Returns an error if the process at a lane's other end is not the member that the blocks are
    /// for, because only that member can accept them. Pids are comparable within one PID namespace.
    fn must_be(&self, to: Member, peer: Peer) -> Result<()> {
        let namespace = |slot: usize| self.space.member(slot).namespace.load(Ordering::Relaxed);
        let slot = to.slot();
        let Some(found) = peer.pid.filter(|_| self.is_alive(to)) else { return Ok(()) };
        let (expected, here) = (self.pid_of(slot), namespace(self.slot()));
        if found != expected && here != 0 && here == namespace(slot) {
            return Err(HeapError::WrongMember { slot, expected, found });
        }
        Ok(())
    }
}

#[inline]
fn accept<'heap>(core: &'heap Core, message: &Message<'_>) -> Option<(Block<'heap>, SenderId)> {
    let block = core.accept(Parcel::from_slice(message)?).ok()?;
    Some((block, message.sender()))
}
