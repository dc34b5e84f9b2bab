//! The receiving end: [`Mailbox`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};

use super::address::Address;
use super::door::{About, Door, same_generation};
use super::inbound::{Beginning, Inbound, map_chunk};
use super::lanes::{Lanes, Taken};
use super::message::{InPlace, Message};
use super::options::{Fences, Options, Waiting};
use super::wire::{self, FenceMode, Hello, Note, Unreadable, Welcome};
use crate::error::{Error, Peer, Result};
use crate::lane::Reader;
use crate::lane::control::Control;
use crate::lane::page::{MOST_LOG2, VERSION};
use crate::life::{Desk, Life, Watch};
use crate::sync::{Ordering, fence};
use crate::sys::fork::Guard;
use crate::sys::socket::{self, Received};
use crate::sys::{limits, membarrier, pidfd};

/// Messages, or passes without any, between two looks at connections and hang-ups.
const SERVICE_AFTER: u32 = 4096;

/// Passes without a message between two looks at the clock.
const CLOCK_AFTER: u32 = 64;

/// How long a sleep may be that nobody is sure to interrupt.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// One receiver's bundle of lanes.
///
/// It has no thread: it works only inside its methods. Senders are accepted, and those who ended
/// are forgotten, by every `recv`, `try_recv` and so on.
pub struct Mailbox {
    guard: Guard,
    lanes: Lanes,
    /// Found and handed out; acknowledged by the next call.
    taken: Option<Taken>,
    copied: Vec<u8>,
    /// Passes and messages since connections were looked at.
    since_service: u32,
    armed: bool,
    door: Door,
    desk: Desk,
    life: &'static Life,
    options: Options,
    can_interrupt: bool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl Mailbox {
    /// Opens a mailbox at `address`, in place of a dead owner if there was one.
    ///
    /// The process must have a [`Life`]; in the main thread it gets one if it has none.
    ///
    /// # Errors
    /// [`Error::InUse`] where the address has a living owner; [`Error::BadAddress`] where something
    /// else is there or the path is too long; [`Error::NotMainThread`] where this thread cannot give
    /// the process a life; what the system says of the folder.
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
        let life = Life::current().map_or_else(Life::join, Ok)?;
        let door = Door::open(address.as_ref(), options.mode)?;
        let can_interrupt = options.fences == Fences::Asymmetric && membarrier::register();
        Ok(Self {
            guard: Guard::here()?,
            lanes: Lanes::default(),
            taken: None,
            copied: Vec::new(),
            since_service: 0,
            armed: false,
            door,
            desk: life.desk()?,
            life,
            options,
            can_interrupt,
        })
    }

    /// Takes a connected `SOCK_SEQPACKET` socket, the other end of which is given to
    /// [`Sender::over`](super::Sender::over): one of a pair made before a fork, or one that was
    /// passed.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        self.check()?;
        self.door.admit(socket)
    }

    /// Waits for the next message and returns it; acknowledges the one before.
    ///
    /// # Errors
    /// [`Error::Forked`], or what the system says when it cannot wait. A sender's death or
    /// misbehaviour is no error of the mailbox: see [`Mailbox::faults`].
    pub fn recv(&mut self) -> Result<Message<'_>> {
        let taken = self.wait(None)?;
        Ok(self.hand_out(taken))
    }

    /// As [`Mailbox::recv`], without waiting.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is none; else as [`Mailbox::recv`].
    pub fn try_recv(&mut self) -> Result<Message<'_>> {
        let taken = self.next_or_service()?.ok_or(Error::WouldBlock)?;
        Ok(self.hand_out(taken))
    }

    /// As [`Mailbox::recv`], for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; else as [`Mailbox::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>> {
        let taken = self.wait(Instant::now().checked_add(timeout))?;
        Ok(self.hand_out(taken))
    }

    /// Gives all messages that are there to `each`, at most `most`, and acknowledges them one by
    /// one as it returns; waits for the first. Returns how many.
    ///
    /// # Errors
    /// As [`Mailbox::recv`].
    pub fn recv_batch(&mut self, most: usize, mut each: impl FnMut(&Message<'_>)) -> Result<usize> {
        if most == 0 {
            return Ok(0);
        }
        let mut taken = Some(self.wait(None)?);
        let mut count = 0;
        while let Some(one) = taken {
            each(&self.hand_out(one));
            self.acknowledge();
            count += 1;
            taken = if count < most { self.next()? } else { None };
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
    #[allow(unsafe_code, reason = "a promise about another process")]
    pub unsafe fn recv_in_place(&mut self) -> Result<InPlace<'_>> {
        let taken = self.wait(None)?;
        Ok(self.show(taken))
    }

    /// As [`Mailbox::try_recv`], without copying.
    ///
    /// # Safety
    /// As [`Mailbox::recv_in_place`].
    ///
    /// # Errors
    /// As [`Mailbox::try_recv`].
    #[allow(unsafe_code, reason = "a promise about another process")]
    pub unsafe fn try_recv_in_place(&mut self) -> Result<InPlace<'_>> {
        let taken = self.next_or_service()?.ok_or(Error::WouldBlock)?;
        Ok(self.show(taken))
    }

    /// Acknowledges the message last received: should this process die, a successor does not get it
    /// again. The next receiving call does it too.
    #[inline(always)]
    pub fn acknowledge(&mut self) {
        if let Some(taken) = self.taken.take()
            && let Some(lane) = self.lanes.at(taken.slot)
        {
            lane.acknowledge(taken.length);
        }
    }

    /// The descriptor to wait on, with `poll`, `epoll` or a runtime: readable when there is something
    /// to do. Call [`Mailbox::arm`] before waiting.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.door.descriptor()
    }

    /// Prepares for waiting on the descriptor. `true`: nothing is there, wait; `false`: call
    /// [`Mailbox::try_recv`] until it says [`Error::WouldBlock`], then arm again.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn arm(&mut self) -> Result<bool> {
        self.check()?;
        self.acknowledge();
        if !self.announce_sleep() {
            // Nobody could be sure to ring: the caller has to look again and again.
            return Ok(false);
        }
        self.armed = true;
        if self.lanes.pass(true).is_some() {
            self.disarm();
            return Ok(false);
        }
        Ok(true)
    }

    /// How many senders are connected.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// What was wrong with lanes that had to be closed, and with peers that were refused, since this
    /// was last asked; at most 64, the newest.
    pub fn faults(&mut self) -> Vec<Error> {
        self.lanes.take_faults()
    }

    /// Whether the process at the other end of a lane is alive: one load. `None` for a lane that is
    /// gone.
    pub fn is_alive(&mut self, sender: super::SenderId) -> Option<bool> {
        self.lanes.named(sender).map(|lane| lane.watch.is_alive())
    }

    /// Takes nothing more: senders get [`Error::Closed`] and keep what is unread. The same as
    /// dropping it.
    pub fn close(self) {}

    #[inline(always)]
    fn check(&self) -> Result<()> {
        if self.guard.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// The next message that is there.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<Taken>> {
        self.check()?;
        self.acknowledge();
        self.since_service += 1;
        self.taken = match self.lanes.next_of_turn() {
            None => self.next_of_others(),
            found => found,
        };
        Ok(self.taken)
    }

    fn next_of_others(&mut self) -> Option<Taken> {
        if self.since_service > SERVICE_AFTER {
            // An error here comes again when there is nothing to do but to wait.
            let _ = self.service(Some(Duration::ZERO));
        }
        self.lanes.pass(false)
    }

    fn next_or_service(&mut self) -> Result<Option<Taken>> {
        self.disarm();
        if let Some(taken) = self.next()? {
            return Ok(Some(taken));
        }
        self.service(Some(Duration::ZERO))?;
        self.taken = self.lanes.pass(true);
        Ok(self.taken)
    }

    fn hand_out(&mut self, taken: Taken) -> Message<'_> {
        self.copied.clear();
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with a message that is not acknowledged stays")
        };
        lane.copy(taken.length, &mut self.copied);
        Message { sender: lane.id, peer: lane.peer, bytes: &self.copied }
    }

    fn show(&mut self, taken: Taken) -> InPlace<'_> {
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with a message that is not acknowledged stays")
        };
        let (start, length) = (lane.payload(), taken.length);
        let mailbox = std::marker::PhantomData;
        InPlace { start, length, sender: lane.id, peer: lane.peer, mailbox }
    }

    /// The next message, once there is one.
    #[inline]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Taken> {
        self.disarm();
        match self.next()? {
            Some(taken) => Ok(taken),
            None => self.wait_longer(deadline),
        }
    }

    fn wait_longer(&mut self, deadline: Option<Instant>) -> Result<Taken> {
        let spin_until = match self.options.waiting {
            Waiting::Spin => None,
            Waiting::Sleep => Some(Instant::now()),
            Waiting::SpinThenSleep(time) => Instant::now().checked_add(time),
        };
        let sooner = |at: Option<Instant>| at.is_some_and(|at| Instant::now() >= at);
        loop {
            if self.options.waiting != Waiting::Sleep
                && let Some(taken) = self.spin(CLOCK_AFTER)
            {
                return Ok(taken);
            }
            if sooner(deadline) {
                self.service(Some(Duration::ZERO))?;
                self.taken = self.lanes.pass(true);
                return self.taken.ok_or(Error::TimedOut);
            }
            if sooner(spin_until)
                && let Some(taken) = self.sleep(deadline)?
            {
                return Ok(taken);
            }
            if self.since_service > SERVICE_AFTER {
                self.service(Some(Duration::ZERO))?;
            }
        }
    }

    /// Looks again and again, so many passes.
    #[inline]
    fn spin(&mut self, passes: u32) -> Option<Taken> {
        for _ in 0..passes {
            self.taken = self.lanes.pass(false);
            if self.taken.is_some() {
                return self.taken;
            }
            std::hint::spin_loop();
        }
        self.since_service += passes;
        None
    }

    /// Sleeps until something happens, or the deadline.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<Option<Taken>> {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let nudge = self.give_back();
        let expiry = self.door.next_expiry(self.options.handshake_deadline);
        let unsure = (!self.announce_sleep()).then_some(UNSURE_SLEEP);
        let timeout = [deadline.map(left), nudge, expiry, unsure].into_iter().flatten().min();
        self.taken = self.lanes.pass(true);
        let happened = match self.taken {
            Some(_) => Ok(()),
            None => self.service(timeout),
        };
        self.desk.sleeping().store(0, Ordering::Relaxed);
        happened?;
        if self.taken.is_none() {
            self.taken = self.lanes.pass(true);
        }
        Ok(self.taken)
    }

    /// Says that we are about to sleep, so that every sender either sees it or has its message seen
    /// by the look that must follow. `false` where the kernel forbids by now what makes that sure.
    fn announce_sleep(&self) -> bool {
        self.desk.sleeping().store(1, Ordering::Relaxed);
        // SYNC doorbell: pairs with the barrier between header store and `sleeping` load in `Sender`.
        // Symmetric: both sides have a full fence between their store and their load, so at least
        // one load sees the other's store. Asymmetric: `heavy` puts a full fence between the same
        // two instructions of every running sender; one that does not run passed one when it was
        // switched away.
        fence(Ordering::SeqCst);
        !self.lanes.any_asymmetric() || membarrier::heavy()
    }

    fn disarm(&mut self) {
        if self.armed {
            self.desk.sleeping().store(0, Ordering::Relaxed);
            self.armed = false;
        }
    }

    /// Asks idle lanes for their large chunks. Returns when to look again.
    fn give_back(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let after = self.options.give_back_after;
        let before = now.checked_sub(after)?;
        let mut later = false;
        for lane in self.lanes.all() {
            later |= lane.ask_back(now, before);
        }
        later.then_some(after)
    }

    /// Deals with connections, hang-ups and ends; waits for them up to `timeout`.
    fn service(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.since_service = 0;
        let events = self.door.events(timeout)?;
        for about in events {
            match about {
                About::Listener => self.accept()?,
                About::Knocker(number) => self.answer(number),
                About::Doorbell(slot, generation) => {
                    self.of_lane(slot, generation);
                }
                About::Socket(slot, generation) => self.hear(slot, generation),
                About::Process(slot, generation) => {
                    if let Some(lane) = self.of_lane(slot, generation) {
                        lane.ended = true;
                        if let Some(process) = lane.pidfd.take() {
                            self.door.unwatch(process.as_fd());
                        }
                    }
                }
            }
        }
        for lane in self.lanes.take_departed() {
            let process = lane.pidfd.as_ref().map(AsFd::as_fd);
            let descriptors = [lane.socket.as_fd(), lane.doorbell.as_fd()];
            // A forked child of ours may hold a copy, and a copy keeps it in the set.
            descriptors.into_iter().chain(process).for_each(|one| self.door.unwatch(one));
        }
        self.door.expire(self.options.handshake_deadline);
        self.lanes.settle();
        if timeout == Some(Duration::ZERO) {
            self.give_back();
        }
        Ok(())
    }

    /// The lane that an event is about, which is busy from now on.
    fn of_lane(&mut self, slot: u32, event: u32) -> Option<&mut Inbound> {
        self.lanes.wake(slot);
        self.lanes.at(slot).filter(|lane| same_generation(event, lane.id.generation))
    }

    /// Takes those who connect, and whatever they have said already.
    fn accept(&mut self) -> Result<()> {
        match self.door.accept() {
            Err(error) if error.errno() == libc::EMFILE && limits::raise_descriptors() => {
                self.door.accept()?;
            }
            // Too many descriptors are open: those who knock wait until one is free.
            Err(error) if [libc::EMFILE, libc::ENFILE].contains(&error.errno()) => {
                self.lanes.fault(error);
            }
            done => done?,
        }
        for number in self.door.numbers() {
            self.answer(number);
        }
        Ok(())
    }

    /// Reads a lane's notes.
    fn hear(&mut self, slot: u32, generation: u32) {
        // Never all that is left: somebody else may come.
        let left = self.options.mailbox_cap.saturating_sub(self.lanes.granted()) / 2;
        let lane_cap = self.options.lane_cap;
        self.lanes.wake(slot);
        let Some(lane) = self.lanes.at(slot) else { return };
        if !same_generation(generation, lane.id.generation) {
            return;
        }
        let wanted = lane.cap;
        if let Err(broken) = lane.read_notes() {
            let peer = lane.peer;
            self.lanes.fault(Error::Protocol { peer, what: broken.0 });
            return self.lanes.remove(slot);
        }
        if lane.ended {
            // It would go on telling of its hang-up until the lane is drained.
            self.door.unwatch(lane.socket.as_fd());
            return;
        }
        let more = lane.cap.min(lane_cap).saturating_sub(lane.granted).min(left);
        if lane.cap > wanted && more > 0 {
            self.lanes.grant(slot, more);
        }
    }

    /// Reads what a newcomer says, and welcomes or refuses it.
    fn answer(&mut self, number: u32) {
        let Some(knocker) = self.door.knocker(number) else { return };
        let mut bytes = [0; wire::LONGEST];
        let received = match socket::receive(&knocker.socket, &mut bytes) {
            Ok(None) => return,
            Ok(Some(received)) if received.hung_up => return drop(self.door.take(number)),
            // Its descriptors find no room in our table: it waits until they do, or its deadline.
            Ok(Some(received)) if received.truncated => {
                return if limits::raise_descriptors() {
                    self.answer(number)
                };
            }
            Ok(Some(received)) => received,
            Err(error) => {
                self.lanes.fault(error);
                return drop(self.door.take(number));
            }
        };
        let Some(socket) = self.door.take(number) else { return };
        let note = wire::read(&bytes[..received.len]);
        match self.welcome(&socket, note, received) {
            Ok(beginning) => self.lanes.add(Inbound::new(beginning, socket)),
            Err(error) => {
                let refused = wire::write(Note::Refused(error.errno()));
                let _ = socket::send(&socket, &refused, &[]);
                self.lanes.fault(error);
            }
        }
    }

    fn welcome(
        &mut self,
        socket: &OwnedFd,
        note: Result<Note, Unreadable>,
        received: Received,
    ) -> Result<Beginning> {
        let Some(from) = received.from else {
            let peer = Peer { pid: None, uid: u32::MAX };
            return Err(Error::Protocol { peer, what: "a HELLO without credentials" });
        };
        // 0 is what a process of another PID namespace looks like.
        let peer = Peer { pid: Some(from.pid).filter(|&pid| pid != 0), uid: from.uid };
        if !self.options.admits(from.uid) {
            let allowed = rustix::process::geteuid().as_raw();
            return Err(Error::Denied { peer, allowed });
        }
        let wrong = |what| Error::Protocol { peer, what };
        let hello = match note {
            Ok(Note::Hello(hello)) => hello,
            Err(Unreadable::Version(theirs)) => {
                return Err(Error::Version { ours: VERSION, theirs });
            }
            Err(Unreadable::Malformed(what)) => return Err(wrong(what)),
            Ok(_) => return Err(wrong("something else than HELLO comes first")),
        };
        if received.fds.len() != hello.named().count() + 1 {
            socket::close_hostile(received.fds);
            return Err(wrong("HELLO with another number of descriptors than it names"));
        }
        if self.lanes.len() >= self.options.max_lanes {
            return Err(Error::Full { what: "lanes", most: self.options.max_lanes as u64 });
        }
        let granted = self.first_grant(&hello)?;
        self.begin(socket, peer, &hello, received, granted)
    }

    /// What a newcomer may have: its cap, as long as half of the mailbox's is left by that; then an
    /// equal share of the rest, so that everybody finds a place.
    fn first_grant(&self, hello: &Hello) -> Result<u64> {
        let brought: u64 = hello.named().map(|log2| 1_u64 << log2.min(MOST_LOG2)).sum();
        let left = self.options.mailbox_cap.saturating_sub(self.lanes.granted());
        let wanted = self.options.lane_cap.min(hello.cap);
        let places = (self.options.max_lanes - self.lanes.len()).max(1) as u64;
        let granted = if wanted <= left / 2 { wanted } else { wanted.min(left / places) };
        if brought > self.options.lane_cap.min(left) {
            let what = "bytes that a lane may have";
            return Err(Error::Full { what, most: self.options.lane_cap.min(left) });
        }
        Ok(granted.max(brought))
    }

    fn begin(
        &self,
        socket: &OwnedFd,
        peer: Peer,
        hello: &Hello,
        received: Received,
        granted: u64,
    ) -> Result<Beginning> {
        let wrong = |what| Error::Protocol { peer, what };
        let mut descriptors = received.fds.into_iter();
        let page = descriptors.next().ok_or_else(|| wrong("HELLO without a process page"))?;
        let watch = Watch::of_peer(&page, peer)?;
        let mut chunks = std::collections::VecDeque::new();
        for (descriptor, log2) in descriptors.zip(hello.named()) {
            let region = map_chunk(&descriptor, log2).map_err(|broken| wrong(broken.0))?;
            chunks.push_back((region, log2));
        }
        let (first, log2) = chunks.pop_front().ok_or_else(|| wrong("HELLO without a chunk"))?;
        let reader = Reader::new(first, log2, hello.base, hello.position)
            .map_err(|broken| wrong(broken.0))?;
        let (control, control_fd) = Control::new(hello.position, granted)?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::system("eventfd", errno))?;
        let fences = match (self.can_interrupt, hello.fences) {
            (true, FenceMode::Asymmetric) => FenceMode::Asymmetric,
            _ => FenceMode::Symmetric,
        };
        let id = self.lanes.next_id();
        let process = received.pidfd.or_else(|| pidfd::open(peer.pid?).ok());
        let flags = epoll::EventFlags::IN;
        self.door.watch(socket.as_fd(), About::Socket(id.slot, id.generation), flags)?;
        self.door.watch(
            doorbell.as_fd(),
            About::Doorbell(id.slot, id.generation),
            flags | epoll::EventFlags::ET,
        )?;
        if let Some(process) = &process {
            self.door.watch(process.as_fd(), About::Process(id.slot, id.generation), flags)?;
        }
        let welcome = wire::write(Note::Welcome(Welcome { fences, desk: self.desk.index }));
        let passed = [self.life.descriptor(), control_fd.as_fd(), doorbell.as_fd()];
        // To one that is gone nothing needs to be said; what it wrote is read all the same.
        socket::send(socket, &welcome, &passed)?;
        Ok(Beginning {
            reader,
            passed: chunks,
            control,
            fences,
            granted,
            cap: hello.cap,
            doorbell,
            pidfd: process,
            watch,
            peer,
            id,
        })
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.guard.is_forked() {
            self.door.disown();
            return;
        }
        self.acknowledge();
        for lane in self.lanes.all() {
            lane.close();
        }
        self.door.close();
    }
}
