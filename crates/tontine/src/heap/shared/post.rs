//! Blocks through a mailbox, without a copy: [`Outbox`], [`Inbox`].
//!
//! What crosses the lane is a [`Parcel`]; the block stays where it is. Killed at any instruction,
//! either end leaves a block that is one's or the other's, or free: `docs/heap-shared.md` has the
//! table.

use std::fmt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::core::Core;
use super::word::Member;
use super::{Block, Heap, Parcel};
use crate::heap::{Error, Result};
use crate::mailbox::{Mailbox, Message, Sender, SenderId};
use crate::sync::Ordering;

/// A sender looks so often whether its receiver has taken the connection.
const UNTIL_WELCOME: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// A receiver looks so often whether somebody has died, where nothing comes.
const UNTIL_A_LOOK: Duration = Duration::from_secs(1);

/// A lane for blocks to one member's [`Inbox`].
///
/// Dropped, it takes back what a dead receiver has left in the lane.
pub struct Outbox<'heap> {
    heap: &'heap Heap,
    sender: Sender,
    to: Member,
}

/// Where a member gets blocks.
pub struct Inbox<'heap> {
    heap: &'heap Heap,
    mailbox: Mailbox,
    /// Recoveries that have been looked into.
    deaths: u64,
    /// Who was dead before the lanes were last seen empty.
    dead: Option<Vec<Member>>,
    lanes: usize,
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
    /// Sends blocks by this lane, to the member that receives at its other end.
    ///
    /// # Errors
    /// [`Error::Forked`].
    ///
    /// # Panics
    /// The sender is one that waits for its receiver's successor
    /// ([`OnDeath`](crate::mailbox::OnDeath)): blocks are sent to one member.
    pub fn outbox(&self, sender: Sender, to: Member) -> Result<Outbox<'_>> {
        self.here()?;
        assert!(!sender.waits_for_successor(), "a block goes to one member, not to its successor");
        Ok(Outbox { heap: self, sender, to })
    }

    /// Receives blocks by this mailbox.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn inbox(&self, mailbox: Mailbox) -> Result<Inbox<'_>> {
        self.here()?;
        self.core.inboxes.fetch_add(1, Ordering::Relaxed);
        Ok(Inbox { heap: self, mailbox, deaths: 0, dead: None, lanes: 0, skipped: 0 })
    }
}

impl<'heap> Outbox<'heap> {
    /// Sends a block; waits for room, and until the receiver has taken the connection. The block's
    /// bytes are the receiver's from then on.
    ///
    /// # Errors
    /// With the block, which is this process's still: [`Error::Mailbox`], as [`Sender::send`] has
    /// it; [`Error::Gone`]: the receiver is known to have ended; [`Error::Overrun`].
    #[inline]
    pub fn send(&mut self, block: Block<'heap>) -> Result<(), (Error, Block<'heap>)> {
        if self.sender.peer().is_none()
            && let Err(error) = self.wait_for_welcome()
        {
            return Err((error, block));
        }
        self.post(block, Sender::send)
    }

    /// As [`Outbox::send`], without waiting.
    ///
    /// # Errors
    /// As there; [`crate::Error::WouldBlock`], where there is no room, or the receiver has not
    /// taken the connection.
    #[inline]
    pub fn try_send(&mut self, block: Block<'heap>) -> Result<(), (Error, Block<'heap>)> {
        if self.sender.peer().is_none() {
            if let Err(error) = self.sender.service() {
                return Err((error.into(), block));
            }
            if self.sender.peer().is_none() {
                return Err((crate::Error::WouldBlock.into(), block));
            }
        }
        self.post(block, Sender::try_send)
    }

    #[inline]
    fn post(
        &mut self,
        block: Block<'heap>,
        send: impl FnOnce(&mut Sender, &[u8]) -> crate::Result<()>,
    ) -> Result<(), (Error, Block<'heap>)> {
        assert!(block.is_of(&self.heap.core), "a block of another heap than the outbox's");
        let parcel = block.hand_over(self.to)?;
        match send(&mut self.sender, &parcel.to_bytes()) {
            Ok(()) => Ok(()),
            Err(error) => {
                // Nobody has seen the parcel; another thread may have called `recall` meanwhile.
                match self.heap.take_back(parcel) {
                    Ok(block) => Err((error.into(), block)),
                    Err(_) => Ok(()),
                }
            }
        }
    }

    /// Before it, nobody would know at the sender's death which lanes the block may be in.
    #[cold]
    fn wait_for_welcome(&mut self) -> Result<()> {
        loop {
            self.sender.service()?;
            if self.sender.peer().is_some() {
                return Ok(());
            }
            let mut readable = [PollFd::from_borrowed_fd(self.sender.descriptor(), PollFlags::IN)];
            // Interrupted or not, we look again.
            let _ = poll(&mut readable, Some(&UNTIL_WELCOME));
        }
    }

    /// Takes back what a dead or closed receiver has not accepted.
    ///
    /// # Errors
    /// [`Error::Mailbox`]: it is alive, and may be reading them.
    pub fn unread(&mut self) -> Result<Vec<Block<'heap>>> {
        let parcels = self.sender.unread()?;
        let parcels = parcels.into_iter().filter_map(|bytes| Parcel::from_slice(&bytes));
        // Those that fail were accepted, or freed by whoever recovered the receiver.
        Ok(parcels.filter_map(|parcel| self.heap.take_back(parcel).ok()).collect())
    }

    /// The lane: to wait until everything is read, for one.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }
}

impl Drop for Outbox<'_> {
    fn drop(&mut self) {
        // Of a living receiver nothing is taken.
        let _ = self.unread();
    }
}

impl<'heap> Inbox<'heap> {
    /// Waits for a block; by which lane it came, too. It is this process's from then on.
    ///
    /// # Errors
    /// [`Error::Mailbox`], as [`Mailbox::recv`] has it.
    #[inline]
    pub fn recv(&mut self) -> Result<(Block<'heap>, SenderId)> {
        let core = &self.heap.core;
        // Before the kernel is asked for newcomers, and the heap for the dead: a block that comes
        // soon waits for neither.
        while let Some(message) = self.mailbox.recv_at_once() {
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
                Err(Error::Mailbox(crate::Error::WouldBlock)) => {}
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

    /// As [`Inbox::recv`], without waiting.
    ///
    /// # Errors
    /// [`crate::Error::WouldBlock`], where there is none; else as [`Inbox::recv`].
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

    /// All lanes have just been seen empty: what the dead sent and nobody will read is freed.
    /// Whether the lanes are to be looked at once more.
    fn look_after_deaths(&mut self) -> Result<bool> {
        let core: &Core = &self.heap.core;
        if let Some(dead) = self.dead.take() {
            // Whoever was dead then has put nothing into a lane since.
            if core.inboxes.load(Ordering::Relaxed) == 1 {
                core.sweep(&dead);
            }
            return Ok(false);
        }
        let lanes = self.mailbox.lanes();
        if std::mem::replace(&mut self.lanes, lanes) > lanes {
            self.heap.tend()?;
        }
        // SYNC deaths: pairs with the addition at a recovery's end.
        let deaths = core.space.header().deaths.load(Ordering::Acquire);
        if std::mem::replace(&mut self.deaths, deaths) == deaths {
            return Ok(false);
        }
        self.dead = Some(core.dead_members());
        Ok(true)
    }

    /// How many messages were skipped, because they were no parcels, or their blocks were freed or
    /// taken back before they were read.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The mailbox: to bind it to a loop, for one. Messages that are received by it directly are
    /// not accepted.
    pub fn mailbox(&mut self) -> &mut Mailbox {
        &mut self.mailbox
    }
}

impl Drop for Inbox<'_> {
    /// Frees what has come and was not received.
    fn drop(&mut self) {
        if self.heap.here().is_err() {
            return;
        }
        while self.try_recv().is_ok() {}
        self.heap.core.inboxes.fetch_sub(1, Ordering::Relaxed);
    }
}

#[inline]
fn accept<'heap>(core: &'heap Core, message: &Message<'_>) -> Option<(Block<'heap>, SenderId)> {
    let block = core.accept(Parcel::from_slice(message)?).ok()?;
    Some((block, message.sender()))
}
