//! The receiving end: [`Mailbox`].

#![allow(unsafe_code, reason = "promises about other processes are unsafe to make")]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::address::Address;
use super::door::Door;
use super::inbound::Look;
use super::lanes::{Lanes, Taken};
use super::message::{InPlace, Message, SenderId};
use super::options::{Fences, Options, Waiting};
use crate::error::{Error, Peer, Result};
use crate::life::{Desk, Life};
use crate::sys::fork::Guard;
use crate::sys::{membarrier, quarantine};

/// One receiver's bundle of lanes.
///
/// It has no thread: it works only inside its methods. Senders are accepted, and those who ended
/// are forgotten, by every `recv`, `try_recv` and so on.
pub struct Mailbox {
    guard: Guard,
    pub(super) lanes: Lanes,
    /// Found and handed out; acknowledged by the next call.
    pub(super) taken: Option<Taken>,
    pub(super) copied: Vec<u8>,
    /// Since when a long copy has been of no use.
    pub(super) copy_idle_since: Option<Instant>,
    /// Passes and turns since connections were looked at.
    pub(super) since_service: u32,
    pub(super) armed: bool,
    pub(super) door: Door,
    pub(super) desk: Desk,
    pub(super) life: &'static Life,
    pub(super) options: Options,
    pub(super) can_interrupt: bool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl Options {
    /// A mailbox at `address`: [`Mailbox::bind`] with these settings.
    ///
    /// # Errors
    /// As there.
    pub fn bind(&self, address: impl Into<Address>) -> Result<Mailbox> {
        Mailbox::open(Some(address.into()), self.clone())
    }

    /// A mailbox without an address: [`Mailbox::unbound`] with these settings.
    ///
    /// # Errors
    /// As there.
    pub fn unbound(&self) -> Result<Mailbox> {
        Mailbox::open(None, self.clone())
    }
}

impl Mailbox {
    /// Opens a mailbox at `address`, in place of a dead owner if there was one.
    ///
    /// If the process has no [`Life`], it gets one, as by [`Life::register`].
    ///
    /// # Errors
    /// [`Error::AddrInUse`] if the address has a live owner; [`Error::InvalidAddress`] if another
    /// kind of file is there or the path is too long; [`Error::CannotRegister`], as from
    /// [`Life::register`]; [`Error::InvalidOption`] if an option is out of range; [`Error::Full`]
    /// if the process has 62 mailboxes already; [`Error::SystemAt`] if the folder cannot be used.
    pub fn bind(address: impl Into<Address>) -> Result<Self> {
        Options::new().bind(address)
    }

    /// Opens a mailbox without an address: sockets are given to it by [`Mailbox::adopt`].
    ///
    /// # Errors
    /// As [`Mailbox::bind`], but for the address.
    pub fn unbound() -> Result<Self> {
        Options::new().unbound()
    }

    pub(super) fn open(address: Option<Address>, options: Options) -> Result<Self> {
        options.check()?;
        let life = Life::register()?;
        quarantine::prepare()?;
        // Before the door: a name is made last.
        let desk = life.desk()?;
        let address = address.map(Address::into_absolute).transpose()?;
        let door = Door::open(address.as_ref(), options.mode)?;
        let can_interrupt = options.fences == Fences::Asymmetric && membarrier::register();
        Ok(Self {
            guard: Guard::here()?,
            lanes: Lanes::default(),
            taken: None,
            copied: Vec::new(),
            copy_idle_since: None,
            since_service: 0,
            armed: false,
            door,
            desk,
            life,
            options,
            can_interrupt,
        })
    }

    /// Takes a connected `SOCK_SEQPACKET` socket, the other end of which is given to
    /// [`Sender::over`](super::Sender::over): one of a pair made before a fork, or one that was
    /// passed. Its other end may be silent for as long as it likes.
    ///
    /// # Errors
    /// [`Error::InvalidSocket`] if it is of another kind, or not connected; [`Error::System`] if it
    /// is not a socket, or cannot be watched. It is closed then.
    pub fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        self.check()?;
        self.door.adopt(socket)
    }

    /// Waits for the next message and returns it; acknowledges the one before.
    ///
    /// A signal does not end the wait: the handler runs, and the wait continues. To end it on a
    /// signal, wait on a signalfd or the reading end of a pipe next to [`Mailbox::descriptor`], and
    /// call [`Mailbox::try_recv`].
    ///
    /// # Errors
    /// [`Error::Forked`], or what the system says when it cannot wait. A sender's death or
    /// misbehaviour is no error of the mailbox: see [`Mailbox::faults`].
    #[inline]
    pub fn recv(&mut self) -> Result<Message<'_>> {
        if let Some(from) = self.recv_fast().or_else(|| self.recv_soon()) {
            return Ok(self.message(from));
        }
        self.recv_slowly(None)
    }

    /// As [`Mailbox::recv`], without waiting.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is none; else as [`Mailbox::recv`].
    #[inline]
    pub fn try_recv(&mut self) -> Result<Message<'_>> {
        if let Some(from) = self.recv_fast() {
            return Ok(self.message(from));
        }
        let taken = self.next_or_service()?.ok_or(Error::WouldBlock)?;
        Ok(self.hand_out(taken))
    }

    /// Like [`Mailbox::recv`], but waits for at most `timeout`. A signal does not end this wait
    /// either.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; else as [`Mailbox::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>> {
        if let Some(from) = self.recv_fast() {
            return Ok(self.message(from));
        }
        self.recv_slowly(Instant::now().checked_add(timeout))
    }

    /// Gives all messages that are there to `each`, at most `most`, and acknowledges them one by
    /// one as it returns; waits for the first. Returns how many.
    ///
    /// # Errors
    /// As [`Mailbox::recv`], and only where no message was given to `each`: an error that comes
    /// later is the next call's.
    ///
    /// # Panics
    /// Where `each` does. The message that it was given is then not acknowledged, and received
    /// again; those before it are.
    pub fn recv_batch(&mut self, most: usize, mut each: impl FnMut(&Message<'_>)) -> Result<usize> {
        if most == 0 {
            return Ok(0);
        }
        let first = match self.recv_fast().or_else(|| self.recv_soon()) {
            Some(from) => from,
            None => self.recv_slowly(None).map(|message| (message.sender, message.peer))?,
        };
        // Should `each` panic, nothing is in hand that the next call would acknowledge.
        let taken = self.taken.take();
        each(&self.message(first));
        self.acknowledge_now(taken);
        let mut count = 1;
        while count < most && !self.guard.is_forked() {
            if let Some((lane, turn)) = self.lanes.whole_turn(most - count) {
                count += lane.drain(turn, &mut self.copied, self.guard, &mut each);
            }
            if count < most {
                let Ok(Some(taken)) = self.next() else { break };
                self.taken = None;
                each(&self.hand_out(taken));
                self.acknowledge_now(Some(taken));
                count += 1;
            }
        }
        Ok(count)
    }

    /// As [`Mailbox::recv`], without copying: the message is read where the sender wrote it.
    ///
    /// # Safety
    /// The sender must not change what it sent. One that uses this library does not; a hostile one
    /// may, and the bytes of a Rust slice must not change while it exists.
    ///
    /// # Errors
    /// As [`Mailbox::recv`].
    #[inline]
    pub unsafe fn recv_in_place(&mut self) -> Result<InPlace<'_>> {
        let taken = match self.take_fast().or_else(|| self.take_soon()) {
            Some(taken) => taken,
            None => self.wait(None)?,
        };
        Ok(self.show(taken))
    }

    /// As [`Mailbox::try_recv`], without copying.
    ///
    /// # Safety
    /// As [`Mailbox::recv_in_place`].
    ///
    /// # Errors
    /// As [`Mailbox::try_recv`].
    #[inline]
    pub unsafe fn try_recv_in_place(&mut self) -> Result<InPlace<'_>> {
        let taken = match self.take_fast() {
            Some(taken) => taken,
            None => self.next_or_service()?.ok_or(Error::WouldBlock)?,
        };
        Ok(self.show(taken))
    }

    /// Acknowledges the message last received: should this process die, a successor does not get it
    /// again. The next receiving call does it too.
    ///
    /// A sender that waits for room, or for its mail to be read, hears of it at once; of what the
    /// next call acknowledges it hears when there is a little more, or nothing else to read. Call
    /// this before work that takes long.
    #[inline]
    pub fn acknowledge(&mut self) {
        if self.guard.is_forked() {
            return;
        }
        if let Some(taken) = self.taken.take()
            && let Some(lane) = self.lanes.at(taken.slot)
        {
            lane.acknowledge(taken.length);
            lane.tell_if_waiting();
        }
    }

    /// Acknowledges a message that was in hand, unless this is a forked child by now.
    fn acknowledge_now(&mut self, taken: Option<Taken>) {
        if !self.guard.is_forked() {
            self.taken = taken;
            self.acknowledge_own();
        }
    }

    /// As [`Mailbox::acknowledge`], in the process that made it: its memory is not mapped in a
    /// forked child.
    #[inline(always)]
    pub(super) fn acknowledge_own(&mut self) {
        if let Some(taken) = self.taken.take()
            && let Some(lane) = self.lanes.at(taken.slot)
        {
            lane.acknowledge(taken.length);
        }
    }

    /// Takes the message last received for not received: the next call of a `recv` finds it again,
    /// perhaps after others'; should the mailbox be dropped instead, it stays unread with its
    /// sender. For a program that could not do what the message asked for. Without this, dropping
    /// acknowledges, unless the thread is panicking.
    #[inline]
    pub fn put_back(&mut self) {
        self.taken = None;
    }

    /// The descriptor to wait on, with `poll`, `epoll` or a runtime: readable when there is
    /// something to do. Call [`Mailbox::arm`] before waiting.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.door.descriptor()
    }

    /// How many senders are connected.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// How many senders are connected no more.
    pub(crate) fn departures(&self) -> u64 {
        self.lanes.departures
    }

    /// Whether every lane was read to its end: none has a message, none stands still for what we
    /// lack.
    pub(crate) fn is_read_out(&mut self) -> bool {
        self.look_everywhere() == Look::Nothing && !self.lanes.all().any(|lane| lane.is_short())
    }

    /// What was wrong with lanes that had to be closed, and with peers that were refused, since
    /// this was last asked; at most 64, the newest.
    pub fn faults(&mut self) -> Vec<Error> {
        self.lanes.take_faults()
    }

    /// Whether the process at the other end of a lane is alive: one load. `None` for a lane that is
    /// gone.
    pub fn is_alive(&mut self, sender: SenderId) -> Option<bool> {
        self.lanes.named(sender).map(|lane| lane.watch.is_alive())
    }

    /// Takes nothing more: senders get [`Error::Closed`] and keep what is unread. The same as
    /// dropping it: the message last received is acknowledged, unless it was
    /// [put back](Mailbox::put_back) or a panic drops the mailbox.
    pub fn close(self) {}

    #[inline(always)]
    pub(super) fn check(&self) -> Result<()> {
        if self.guard.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// The whole of a `recv` from the lane whose turn it is, where a message stands there: no
    /// system call, no fence, no lock. Acknowledges the one before, copies, and says who sent it.
    #[inline(always)]
    fn recv_fast(&mut self) -> Option<(SenderId, Peer)> {
        if self.guard.is_forked() || self.armed {
            return None;
        }
        self.acknowledge_own();
        let lane = self.lanes.in_turn()?;
        let length = lane.message()?;
        self.copied.clear();
        lane.copy(length, &mut self.copied);
        self.taken = Some(Taken { slot: lane.id.slot, length });
        Some((lane.id, lane.peer))
    }

    #[cold]
    #[inline(never)]
    fn recv_slowly(&mut self, deadline: Option<Instant>) -> Result<Message<'_>> {
        let taken = self.wait(deadline)?;
        Ok(self.hand_out(taken))
    }

    /// The same after a short wait for that lane: the shortest way from its header to the program.
    #[inline]
    fn recv_soon(&mut self) -> Option<(SenderId, Peer)> {
        if self.options.waiting == Waiting::Sleep {
            return None;
        }
        self.lanes.wait_for_turn();
        self.recv_fast()
    }

    /// What is there, or comes while `recv` would look again and again without asking for anything
    /// else: no system call.
    #[inline]
    pub(crate) fn recv_at_once(&mut self) -> Option<Message<'_>> {
        let from = self.recv_fast().or_else(|| self.recv_soon())?;
        Some(self.message(from))
    }

    /// As `recv_fast`, without the copy.
    #[inline(always)]
    fn take_fast(&mut self) -> Option<Taken> {
        if self.guard.is_forked() || self.armed {
            return None;
        }
        self.acknowledge_own();
        let lane = self.lanes.in_turn()?;
        let length = lane.message()?;
        self.taken = Some(Taken { slot: lane.id.slot, length });
        self.taken
    }

    /// As `recv_soon`, without the copy.
    #[inline]
    fn take_soon(&mut self) -> Option<Taken> {
        if self.options.waiting == Waiting::Sleep {
            return None;
        }
        self.lanes.wait_for_turn();
        self.take_fast()
    }

    #[inline(always)]
    fn message(&self, (sender, peer): (SenderId, Peer)) -> Message<'_> {
        Message { bytes: &self.copied, sender, peer }
    }

    pub(super) fn hand_out(&mut self, taken: Taken) -> Message<'_> {
        self.copied.clear();
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with a message that is not acknowledged stays")
        };
        lane.copy(taken.length, &mut self.copied);
        Message { sender: lane.id, peer: lane.peer, bytes: &self.copied }
    }

    #[inline]
    fn show(&mut self, taken: Taken) -> InPlace<'_> {
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with a message that is not acknowledged stays")
        };
        let (start, length) = (lane.payload(), taken.length);
        let mailbox = std::marker::PhantomData;
        InPlace { start, length, sender: lane.id, peer: lane.peer, mailbox }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.guard.is_forked() {
            return;
        }
        // What a panic kept the program from doing is not done.
        if std::thread::panicking() {
            self.put_back();
        }
        self.acknowledge_own();
        for lane in self.lanes.all() {
            lane.close();
        }
        self.door.close();
    }
}
