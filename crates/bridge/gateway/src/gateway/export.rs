//! The half of a gateway for mailboxes of this host: [`Exports`].
//!
//! For each lane of a peer, the gateway is a sender of the mailbox's owner. The *local lane* has
//! positions of its own; `ends` maps them to positions in the remote sender's lane.

mod lane;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::process::{Resource, getrlimit};
use tontine::Error;
use tontine::mailbox::{Address, OnDeath, Options, Sender};

use lane::{ExportLane, is_shortage, spend};

use super::EXPORT;
use super::carrier::Carrier;
use super::identity;
use crate::config::Config;
use crate::detector::Detector;
use crate::frame::{self, FrameKind, Header};
use crate::incoming::{IncomingLane, Reply, unknown};
use crate::link::{HostId, Link};
use crate::outgoing::LaneEnd;
use crate::status::{LaneDirection, LaneState, LaneStatus};

/// Time after which a lane that is over is forgotten, while its peer is reachable.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Interval between the first two reports of a lane's end; doubled up to [`MAX_REPEAT`].
const REPEAT: Duration = Duration::from_millis(200);
const MAX_REPEAT: Duration = Duration::from_secs(2);
/// Minimum number of bytes that a peer may send before the owner acknowledges.
const GRANT: u64 = 8 << 20;
/// Maximum number of lanes of one peer that are remembered, as a multiple of the maximum of lanes.
const REMEMBERED: usize = 4;
/// Maximum number of characters of a peer's name for a mailbox that is stored and logged.
const MAX_NAME: usize = 64;
/// Maximum number of descriptors of a local lane, those of its handshake included.
const DESCRIPTORS: u64 = 6;
/// Descriptors that are not for local lanes.
const OTHER_DESCRIPTORS: u64 = 32;
/// Ticks between two checks whether the owner of an active or of an idle lane has ended without an
/// event: it called `exec`, or left a forked child.
const CHECK_EVERY: u32 = 5;
const CHECK_IDLE_EVERY: u32 = 20;
/// Maximum time for a connection to an owner, and the time in which no other is tried if its queue
/// is full. The gateway does nothing else meanwhile.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(50);
const BUSY_FOR: Duration = Duration::from_secs(1);
/// Maximum number of refused and closed lanes that are logged per second.
const LOGGED_PER_SECOND: u32 = 20;

/// The lanes of all peers to the mailboxes of this host.
pub(super) struct Exports {
    mailboxes: HashMap<String, Exported>,
    options: Options,
    max_lanes: usize,
    /// Maximum number of open lanes of each peer that this process has descriptors for. Beyond,
    /// lanes of which each lacks some would wait for each other.
    max_open: usize,
    boot: u128,
    slots: Vec<Option<ExportLane>>,
    free: Vec<usize>,
    known: HashMap<(HostId, u128), usize>,
    /// Lanes with records that the owner has not acknowledged.
    active: Vec<usize>,
    /// Lanes whose status is to be sent.
    dirty: Vec<usize>,
    /// Answers to frames of unknown lanes.
    strangers: Vec<(HostId, Header)>,
    /// `true` while a shortage was logged and no lane was opened since.
    is_short: bool,
    ticks: u32,
    /// Lines that may be logged until the next second.
    log_quota: u32,
}

struct Exported {
    address: Address,
    /// The owner accepted no connection in time; none is tried before.
    busy_until: Option<Instant>,
}

impl Exports {
    pub(super) fn new(config: &Config, boot: u128) -> Self {
        let mut options = Options::new().handshake_timeout(CONNECT_TIMEOUT);
        for uid in &config.owner_uids {
            options = options.allow_uid(*uid);
        }
        if let Some(cap) = config.lane_cap {
            options = options.lane_cap(cap);
        }
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let max_open = limit.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS;
        let max_open = max_open / config.peers.len().max(1) as u64;
        let mailboxes = config.exports.iter().map(|export| {
            let exported = Exported { address: export.address.clone(), busy_until: None };
            (export.name.clone(), exported)
        });
        Self {
            mailboxes: mailboxes.collect(),
            options,
            max_lanes: config.max_lanes.unwrap_or(1024),
            max_open: usize::try_from(max_open.max(1)).unwrap_or(usize::MAX),
            boot,
            slots: Vec::new(),
            free: Vec::new(),
            known: HashMap::new(),
            active: Vec::new(),
            dirty: Vec::new(),
            strangers: Vec::new(),
            is_short: false,
            ticks: 0,
            log_quota: LOGGED_PER_SECOND,
        }
    }

    /// Processes a frame of a sending gateway.
    pub(super) fn on_frame(
        &mut self,
        from: HostId,
        header: &Header,
        payload: &[u8],
        set: &OwnedFd,
        now: Instant,
    ) {
        let is_bye = header.kind == FrameKind::Bye;
        let settled = is_bye && header.flags & frame::SETTLED != 0;
        let absent = is_bye && header.flags & frame::ABSENT != 0;
        let Some(&slot) = self.known.get(&(from, header.lane)) else {
            if header.kind == FrameKind::Hello {
                self.begin(from, header, payload, set, now);
            } else if !settled && !absent {
                self.strangers.push((from, unknown(header)));
            }
            return;
        };
        if absent {
            // Not remembered: if the sender hands the lane over later, it begins again.
            return self.forget(slot);
        }
        let Some(lane) = &mut self.slots[slot] else { return };
        lane.last_frame = now;
        if lane.machine.ended().is_none() {
            lane.forget = None;
        }
        let reply = match header.kind {
            _ if settled => {
                lane.machine.on_owner_end(LaneEnd::Finished);
                lane.is_settled = true;
                lane.repeat = None;
                Reply::Nothing
            }
            FrameKind::Hello => {
                lane.forget = None;
                lane.machine.on_hello(header)
            }
            FrameKind::Data => lane.on_data(header, payload, &mut self.log_quota),
            _ => lane.machine.on_bye(header),
        };
        match reply {
            Reply::Unknown => self.strangers.push((from, unknown(header))),
            // The sending gateway expects nothing of a lane that is settled: the HELLO is late.
            Reply::Begin if !lane.is_settled => {
                self.forget(slot);
                return self.begin(from, header, payload, set, now);
            }
            _ => {}
        }
        self.after(slot, reply, now);
    }

    /// Opens a local lane for the lane that a peer offers.
    fn begin(&mut self, from: HostId, hello: &Header, name: &[u8], set: &OwnedFd, now: Instant) {
        let waits = hello.flags & frame::WAITS != 0;
        // The name is the peer's choice; the names of exports contain no character to escape.
        let mailbox: String = name.escape_ascii().map(char::from).take(MAX_NAME).collect();
        self.make_place(from);
        let opened = self.open(from, &mailbox, hello, now);
        let (machine, sender) = match opened {
            Ok(sender) => {
                self.is_short = false;
                let pid = sender.owner().and_then(|owner| owner.pid);
                let exported = self.mailboxes.get(&mailbox);
                let address = exported.map(|exported| exported.address.to_string());
                let owner = identity::owner(self.boot, pid, address.as_deref());
                // A longer record could never be delivered.
                let hello = Header { c: hello.c.min(sender.max_message_len() as u64), ..*hello };
                let grant = GRANT.max(2 * hello.c + 64);
                let machine = IncomingLane::new(&hello, owner, grant);
                let sender = machine.ended().is_none().then_some(sender);
                (machine, sender)
            }
            // The sending gateway repeats a HELLO that waits for a successor.
            Err(Error::NoMailbox { .. }) if waits && self.mailboxes.contains_key(&mailbox) => {
                return;
            }
            // The former owner has ended.
            Err(Error::NoMailbox { .. }) if hello.owner != 0 => {
                (IncomingLane::new(hello, 0, 0), None)
            }
            Err(error) if is_shortage(&error) => {
                // The sending gateway repeats its HELLO.
                if !std::mem::replace(&mut self.is_short, true) {
                    tracing::warn!("a lane to {mailbox} has to wait: {error}");
                }
                return;
            }
            Err(error) => {
                if spend(&mut self.log_quota) {
                    let remedy = match error {
                        Error::Denied { .. } => " (`owners` in the configuration)",
                        _ => "",
                    };
                    tracing::info!("a lane to {mailbox} was refused: {error}{remedy}");
                }
                (IncomingLane::refused(hello, error.errno()), None)
            }
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(ExportLane {
            peer: from,
            id: hello.lane,
            mailbox,
            machine,
            waits,
            sender,
            watched: -1,
            ends: VecDeque::new(),
            local_acked: 0,
            is_active: false,
            is_settled: false,
            last_frame: now,
            reply: Reply::Nothing,
            repeat: None,
            forget: None,
        });
        self.known.insert((from, hello.lane), slot);
        self.watch(slot, set);
        self.after(slot, Reply::Status, now);
    }

    /// Forgets the oldest lane that is over, if a peer has reached its maximum. Most of its lanes
    /// are over then, because at most `max_lanes` are open.
    fn make_place(&mut self, from: HostId) {
        if self.known.len() < REMEMBERED * self.max_lanes {
            return;
        }
        let mut count = 0;
        let mut oldest = None;
        for (slot, lane) in self.slots.iter().enumerate() {
            let Some(lane) = lane.as_ref().filter(|lane| lane.peer == from) else { continue };
            count += 1;
            if lane.sender.is_none()
                && oldest.is_none_or(|(forget, _)| (lane.forget, slot) < (forget, slot))
            {
                oldest = Some((lane.forget, slot));
            }
        }
        if let Some((_, slot)) = oldest.filter(|_| count >= REMEMBERED * self.max_lanes) {
            self.forget(slot);
        }
    }

    fn forget(&mut self, slot: usize) {
        if let Some(lane) = self.slots[slot].take() {
            self.known.remove(&(lane.peer, lane.id));
            self.free.push(slot);
        }
    }

    fn open(
        &mut self,
        from: HostId,
        mailbox: &str,
        hello: &Header,
        now: Instant,
    ) -> tontine::Result<Sender> {
        let none = || Error::NoMailbox { address: mailbox.into() };
        let exported = self.mailboxes.get_mut(mailbox).ok_or_else(none)?;
        if exported.busy_until.is_some_and(|until| now < until) {
            return Err(Error::TimedOut);
        }
        let of_peer = self.slots.iter().flatten().filter(|lane| lane.peer == from);
        let open = of_peer.filter(|lane| lane.sender.is_some()).count();
        if open >= self.max_open {
            let errno = rustix::io::Errno::MFILE.raw_os_error();
            return Err(Error::System { call: "opening another lane", errno });
        }
        if open >= self.max_lanes {
            return Err(Error::Refused { errno: rustix::io::Errno::NOBUFS.raw_os_error() });
        }
        let on_death = match hello.flags {
            flags if flags & frame::WAITS_THROUGH_RESTARTS != 0 => OnDeath::WaitThroughRestarts,
            flags if flags & frame::WAITS != 0 => OnDeath::WaitForSuccessor,
            _ => OnDeath::Fail,
        };
        let opened = self.options.clone().on_death(on_death).connect(exported.address.clone());
        let is_busy = matches!(opened, Err(Error::TimedOut));
        exported.busy_until = is_busy.then(|| Instant::now() + BUSY_FOR);
        opened
    }

    /// Puts the sender's descriptor, which each handover replaces, into the epoll set.
    fn watch(&mut self, slot: usize, set: &OwnedFd) {
        let Some(lane) = &mut self.slots[slot] else { return };
        let Some(sender) = &lane.sender else { return };
        let raw = sender.as_fd().as_raw_fd();
        // A handover may open its new descriptor under the number of the old one.
        if raw == lane.watched && !(lane.waits && lane.is_active) {
            return;
        }
        // Edge-triggered: a socket that hung up stays readable.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(EXPORT | slot as u64);
        if epoll::add(set, sender, data, flags).is_ok() {
            lane.watched = raw;
        }
    }

    /// Does what a lane needs after each change.
    fn after(&mut self, slot: usize, reply: Reply, now: Instant) {
        let Some(lane) = &mut self.slots[slot] else { return };
        if lane.machine.ended().is_some() {
            if lane.sender.take().is_some() || lane.forget.is_none() {
                lane.forget = Some(now + FORGET_AFTER);
                let finished = lane.machine.ended() == Some(LaneEnd::Finished);
                lane.repeat = (!finished).then_some((now + REPEAT, REPEAT));
            }
            lane.ends.clear();
            lane.watched = -1;
        } else if !lane.is_active && (!lane.ends.is_empty() || lane.machine.is_full()) {
            lane.is_active = true;
            self.active.push(slot);
        }
        if matches!(reply, Reply::Status | Reply::Repeat) {
            if lane.reply == Reply::Nothing {
                self.dirty.push(slot);
            }
            if lane.reply != Reply::Repeat {
                lane.reply = reply;
            }
        }
    }

    /// Checks what the owners have acknowledged. Returns `true` if something changed.
    pub(super) fn poll(&mut self) -> bool {
        let mut changed = false;
        let mut index = 0;
        while let Some(&slot) = self.active.get(index) {
            let Some(lane) = &mut self.slots[slot] else {
                self.active.swap_remove(index);
                continue;
            };
            let reply = lane.progress();
            lane.is_active = !lane.ends.is_empty() || lane.machine.is_full();
            if lane.is_active {
                index += 1;
            } else {
                self.active.swap_remove(index);
            }
            if reply != Reply::Nothing {
                changed = true;
                self.after(slot, reply, Instant::now());
            }
        }
        changed
    }

    /// Handles an event of a lane's socket.
    pub(super) fn service(&mut self, slot: usize, set: &OwnedFd) {
        let Some(lane) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let reply = lane.service();
        self.watch(slot, set);
        self.after(slot, reply, Instant::now());
    }

    /// Prepares for sleep. Returns `false` if an owner has acknowledged something meanwhile.
    pub(super) fn arm(&mut self) -> bool {
        for index in 0..self.active.len() {
            let slot = self.active[index];
            let Some(lane) = &mut self.slots[slot] else { continue };
            let Some(sender) = &mut lane.sender else { continue };
            match sender.arm_acked(lane.local_acked) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    lane.on_error(&error);
                    self.after(slot, Reply::Status, Instant::now());
                    return false;
                }
            }
        }
        true
    }

    /// Returns `true` while a lane has work that no descriptor announces.
    pub(super) fn needs_tick(&self) -> bool {
        !self.active.is_empty() || self.slots.iter().flatten().any(|lane| lane.repeat.is_some())
    }

    /// Reports ends again, looks for successors and for owners that ended without an event, and
    /// forgets lanes that are over.
    pub(super) fn tick(&mut self, detectors: &[Detector], set: &OwnedFd, now: Instant) {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(10) {
            self.log_quota = LOGGED_PER_SECOND;
        }
        for slot in 0..self.slots.len() {
            let Some(lane) = &mut self.slots[slot] else { continue };
            let mut reply = Reply::Nothing;
            let reachable = detectors[lane.peer.0 as usize].is_reachable();
            if let Some((due, interval)) = lane.repeat
                && now >= due
            {
                let interval = (interval * 2).min(MAX_REPEAT);
                lane.repeat = Some((now + interval, interval));
                reply = Reply::Status;
            }
            let turn = self.ticks.wrapping_add(slot as u32);
            let every = if lane.is_active { CHECK_EVERY } else { CHECK_IDLE_EVERY };
            if lane.is_active && lane.waits || turn.is_multiple_of(every) {
                reply = reply.max(lane.service());
            }
            // The other gateway answers if it does not have the lane any more.
            if lane.sender.is_some() && reachable && now >= lane.last_frame + FORGET_AFTER {
                lane.last_frame = now;
                reply = reply.max(Reply::Status);
            }
            match lane.forget {
                // The peer cannot ask for the lane at present.
                Some(_) if !reachable => lane.forget = Some(now + FORGET_AFTER),
                Some(forget) if now >= forget => {
                    self.forget(slot);
                    continue;
                }
                _ => {}
            }
            self.watch(slot, set);
            self.after(slot, reply, now);
        }
    }

    /// Notes that a peer's gateway was restarted: it has to greet its lanes again.
    pub(super) fn on_restart(&mut self, from: HostId, now: Instant) {
        for lane in self.slots.iter_mut().flatten().filter(|lane| lane.peer == from) {
            lane.forget = Some(now + FORGET_AFTER);
        }
    }

    /// Sends the status of each lane that changed.
    pub(super) fn reply<L: Link>(&mut self, carrier: &mut Carrier<L>) {
        for (to, header) in self.strangers.drain(..) {
            carrier.send(to, &header, &[]);
        }
        for index in 0..self.dirty.len() {
            let slot = self.dirty[index];
            let Some(lane) = &mut self.slots[slot] else { continue };
            let reply = std::mem::replace(&mut lane.reply, Reply::Nothing);
            let status = lane.machine.status(reply);
            match lane.machine.ended() {
                Some(LaneEnd::Refused(errno)) => {
                    carrier.send(lane.peer, &status, &errno.to_le_bytes());
                }
                _ => carrier.send(lane.peer, &status, &[]),
            }
        }
        self.dirty.clear();
    }

    /// Returns the state of each lane.
    pub(super) fn status(&self, config: &Config) -> Vec<LaneStatus> {
        let over = |lane: &&ExportLane| lane.machine.ended() == Some(LaneEnd::Finished);
        let lanes = self.slots.iter().flatten().filter(|lane| !over(lane));
        let lanes = lanes.map(|lane| LaneStatus {
            direction: LaneDirection::Export,
            mailbox: lane.mailbox.clone(),
            peer: config.peer(lane.peer).name.clone(),
            lane: format!("{:032x}", lane.id),
            pid: lane.sender.as_ref().and_then(Sender::owner).and_then(|owner| owner.pid),
            queued_bytes: lane.machine.accepted().saturating_sub(lane.machine.acknowledged()),
            in_doubt_bytes: lane.machine.accepted().saturating_sub(lane.machine.acknowledged()),
            acked: lane.machine.acknowledged(),
            state: match lane.machine.ended() {
                None if lane.machine.is_ending() => LaneState::Ending,
                None => LaneState::Open,
                Some(end) => super::import::state_of(end),
            },
        });
        lanes.collect()
    }
}
