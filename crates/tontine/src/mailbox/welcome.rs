//! Who comes in: a mailbox answers those who knock.
//!
//! What a newcomer says is a claim until each part was looked at: who it is (the kernel says), what
//! it brings (sealed memory of the announced size), how much it may have. Neighbours:
//! [`super::door`] has the connections, [`super::inbound`] what becomes of them.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use rustix::event::epoll;
use rustix::io::Errno;

use super::door::About;
use super::inbound::{Beginning, Inbound, chunk_size};
use super::receiver::Mailbox;
use super::wire::{self, FenceMode, Hello, Note, Unreadable, Welcome};
use crate::error::{Error, Peer, Result};
use crate::lane::Reader;
use crate::lane::control::Control;
use crate::lane::mapped::half_of_peer;
use crate::lane::page::{HANDOVER_AT, MOST_LOG2, VERSION};
use crate::life::Watch;
use crate::sync::{Ordering, fence};
use crate::sys::region::PeerRegion;
use crate::sys::socket::{self, Received, Sent, Socket};
use crate::sys::{bell, limits, pidfd};

impl Mailbox {
    /// Takes those who connect, and whatever they have said already.
    pub(super) fn accept(&mut self) -> Result<()> {
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

    /// Reads what a newcomer says, and welcomes or refuses it.
    pub(super) fn answer(&mut self, number: u32) {
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
        let note = wire::read_received(&received, &bytes);
        match self.welcome(&socket, note, received) {
            Ok(Some(beginning)) => self.lanes.add(Inbound::new(beginning, socket)),
            Ok(None) => self.door.unwatch(socket.as_fd()),
            Err(error) => {
                let refused = wire::write(Note::Refused(error.errno()));
                let _ = socket::send(&socket, &refused, &[]);
                self.lanes.fault(error);
            }
        }
    }

    /// What a newcomer's lane begins with; none where it has gone elsewhere.
    pub(super) fn welcome(
        &mut self,
        socket: &Socket,
        note: Result<Note, Unreadable>,
        received: Received,
    ) -> Result<Option<Beginning>> {
        let Some(from) = received.from else {
            return Err(Error::Protocol {
                peer: Peer::UNKNOWN,
                what: "a HELLO without credentials",
            });
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
    pub(super) fn first_grant(&self, hello: &Hello) -> Result<u64> {
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

    pub(super) fn begin(
        &self,
        socket: &Socket,
        peer: Peer,
        hello: &Hello,
        received: Received,
        granted: u64,
    ) -> Result<Option<Beginning>> {
        let wrong = |what| Error::Protocol { peer, what };
        let (page, descriptors) =
            received.fds.split_first().ok_or_else(|| wrong("HELLO without a process page"))?;
        let watch = Watch::of_peer(page, peer)?;
        let mut chunks = VecDeque::new();
        for (descriptor, log2) in descriptors.iter().zip(hello.named()) {
            let size = chunk_size(log2).map_err(|broken| wrong(broken.0))?;
            let region = PeerRegion::map(descriptor.as_fd(), size)
                .map_err(|unfit| unfit.into_error(peer))?;
            chunks.push_back((region, log2));
        }
        let (first, log2) = chunks.pop_front().ok_or_else(|| wrong("HELLO without a chunk"))?;
        let reader = Reader::new(first, log2, hello.base, hello.position)
            .map_err(|broken| wrong(broken.0))?;
        let (control, control_fd) = Control::new(hello.position, granted)?;
        let (doorbell, button) = bell::make()?;
        let fences = match (self.can_interrupt, hello.fences) {
            (true, FenceMode::Asymmetric) => FenceMode::Asymmetric,
            _ => FenceMode::Symmetric,
        };
        let id = self.lanes.next_id();
        let process = received.pidfd.or_else(|| pidfd::open(peer.pid?).ok());
        let flags = epoll::EventFlags::IN;
        self.door.watch(socket.as_fd(), About::Socket(id.slot, id.generation), flags)?;
        self.door.watch(doorbell.as_fd(), About::Doorbell(id.slot, id.generation), flags)?;
        if let Some(process) = &process {
            self.door.watch(process.as_fd(), About::Process(id.slot, id.generation), flags)?;
        }
        let welcome = wire::write(Note::Welcome(Welcome { fences, desk: self.desk.index }));
        let passed = [self.life.descriptor(), control_fd.as_fd(), button.as_fd()];
        // To one that is gone nothing needs to be said; what it wrote is read all the same.
        if socket::send(socket, &welcome, &passed)? == Sent::Full {
            // A lane that was not welcomed would never ring.
            return Err(Error::system("sendmsg of WELCOME", Errno::TOOMANYREFS));
        }
        // SYNC handover: pairs with `Sender::withdraw`. It withdraws, then looks for our WELCOME;
        // we send that, then look whether it withdrew. Both have a full fence in between, so that
        // at least one sees the other: never do two receivers read one lane.
        fence(Ordering::SeqCst);
        if half_of_peer(reader.region(), HANDOVER_AT).load(Ordering::Relaxed) != hello.handover {
            return Ok(None);
        }
        Ok(Some(Beginning {
            position: hello.position,
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
        }))
    }
}
