//! The state of one lane between two hosts: [`World`], with everything that can happen in it.

use std::rc::Rc;

use tontine_gateway::frame::{self, FrameKind, Header};
use tontine_gateway::incoming::{self, IncomingLane, Reply};
use tontine_gateway::outgoing::{FrameFiller, LaneEnd, LaneProgress, OutgoingLane};

use super::network::{Packet, insert, take};
use super::setting::{Setting, Shared};

const LANE: u128 = 7;
const ECONNREFUSED: i32 = 111;

/// The sending program, with the control page that its gateway writes.
#[derive(Debug, Clone, Hash)]
pub(crate) struct SenderSide {
    pub(crate) alive: bool,
    /// Number of messages in the lane, acknowledged ones included.
    pub(crate) published: u16,
    pub(crate) acked: u64,
    pub(crate) sent: u64,
    pub(crate) end: Option<LaneEnd>,
}

/// A lane in the owner's mailbox, which the receiving gateway fills.
#[derive(Debug, Clone, Hash)]
pub(crate) struct LocalLane {
    owner: u8,
    /// The end of the owner, as the kernel reports it.
    owner_end: Option<LaneEnd>,
    messages: Vec<u16>,
    taken: usize,
    acked: usize,
    /// `true` until the owner can see that no more messages follow.
    pub(crate) is_open: bool,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct ReceivingGateway {
    pub(crate) lane: Option<IncomingLane>,
    /// Index of the lane in the owner's mailbox.
    pub(crate) local: Option<usize>,
    /// `true` once the other gateway knows how the lane ended.
    settled: bool,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct World {
    pub(crate) setting: Shared,
    pub(crate) sender: SenderSide,
    /// The sending gateway, and its lane unless it is not offered or was settled.
    pub(crate) a_lives: bool,
    pub(crate) a: Option<OutgoingLane>,
    pub(crate) suspected: bool,
    pub(crate) b: Option<ReceivingGateway>,
    /// Number of the owner, from 1.
    pub(crate) owner: u8,
    /// `true` if the owner neither died nor closed its mailbox.
    pub(crate) owner_lives: bool,
    pub(crate) lanes: Vec<LocalLane>,
    /// Number of messages that an owner received, and that an owner acknowledged: they are always
    /// the first ones.
    pub(crate) received: u16,
    pub(crate) acknowledged: u16,
    pub(crate) to_b: Vec<Rc<Packet>>,
    pub(crate) to_a: Vec<Rc<Packet>>,
    /// `true` while the network loses every frame.
    pub(crate) cut: bool,
    /// Number of faults that may still happen.
    pub(crate) faults: u8,
    pub(crate) b_killed: bool,
    pub(crate) owner_ended: bool,
    owner_closed: bool,
    pub(crate) gave_up: bool,
    pub(crate) violation: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The network delivers a frame, and keeps a copy if `true`.
    ToB(usize, bool),
    ToA(usize, bool),
    DropToB(usize),
    DropToA(usize),
    /// All frames in the network are lost, and all that follow until [`Action::Mend`].
    Cut,
    Mend,
    Timer,
    /// The receiving gateway repeats its last `STATUS`.
    RepeatStatus,
    Publish,
    Take(usize),
    Acknowledge(usize),
    /// The receiving gateway sees what its owner did.
    Inspect,
    /// The sender ends, after a close or a kill.
    SenderEnds,
    Kill(Victim),
    Restart(Victim),
    OwnerCloses,
    Suspect,
    Heal,
    GiveUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    A,
    B,
    Owner,
}

impl World {
    pub(crate) fn new(setting: &Rc<Setting>, faults: u8) -> Self {
        let published = if setting.publishes { 0 } else { setting.messages.len() as u16 };
        let sender = SenderSide { alive: true, published, acked: 0, sent: 0, end: None };
        let mut world = Self {
            setting: Shared(Rc::clone(setting)),
            sender,
            a_lives: true,
            a: None,
            suspected: false,
            b: Some(ReceivingGateway { lane: None, local: None, settled: false }),
            owner: 1,
            owner_lives: true,
            lanes: Vec::new(),
            received: 0,
            acknowledged: 0,
            to_b: Vec::new(),
            to_a: Vec::new(),
            cut: false,
            faults,
            b_killed: false,
            owner_ended: false,
            owner_closed: false,
            gave_up: false,
            violation: None,
        };
        world.start_a();
        world
    }

    pub(crate) fn violate(&mut self, violation: &'static str) {
        self.violation = self.violation.or(Some(violation));
    }

    fn start_a(&mut self) {
        self.a_lives = true;
        self.suspected = false;
        // A lane is gone if its sender is, and is not offered again once it has ended.
        if self.sender.alive && self.sender.end.is_none() && !self.gave_up {
            let waits = frame::WAITS | frame::WAITS_THROUGH_RESTARTS;
            let waits = if self.setting.waits { waits } else { 0 };
            let longest = self.setting.longest();
            self.a = Some(OutgoingLane::new(LANE, self.sender.acked, waits, longest));
            self.pump(LaneProgress { greet: true, ..LaneProgress::default() });
        }
    }

    fn send_to_b(&mut self, header: Header, payload: &[u8]) {
        if self.to_b.len() < self.setting.max_frames && !self.cut {
            insert(&mut self.to_b, header, payload);
        }
    }

    fn send_to_a(&mut self, header: Header, errno: i32) {
        let bytes = errno.to_le_bytes();
        let payload = if errno == 0 { &[][..] } else { &bytes };
        if self.to_a.len() < self.setting.max_frames && !self.cut {
            insert(&mut self.to_a, header, payload);
        }
    }

    /// The sending gateway acts on progress, and sends what it may.
    fn pump(&mut self, progress: LaneProgress) {
        let Some(mut lane) = self.a.take() else { return };
        if let Some(acked) = progress.acked {
            self.sender.acked = acked;
        }
        if let Some(end) = progress.end {
            self.check_end(end, lane.owner());
            if end != LaneEnd::Finished {
                self.sender.end = Some(end);
            }
            self.send_to_b(lane.settled(), &[]);
        }
        if progress.greet {
            self.send_to_b(lane.hello(), b"jobs");
        }
        if !self.suspected {
            self.send_data(&mut lane);
            if let Some(bye) = lane.take_bye() {
                self.send_to_b(bye, &[]);
            }
        }
        if !lane.is_consistent() {
            self.violate("the positions are not in order");
        }
        // The gateway forgets a lane that has ended once its sender has ended, too.
        let over = lane.ended().is_some() && !self.sender.alive;
        self.a = (!over).then_some(lane);
    }

    fn send_data(&mut self, lane: &mut OutgoingLane) {
        let setting = self.setting.clone();
        let published = &setting.messages[..usize::from(self.sender.published)];
        let mut bytes = Vec::new();
        while let Some((next, _)) = lane.window() {
            let mut filler = FrameFiller::with_max_frame(lane, &mut bytes, setting.max_frame);
            let first = published.partition_point(|message| message.end <= next);
            for message in &published[first..] {
                let content = &message.content;
                let all =
                    filler.offer(message.position, message.end, content.len(), |range, out| {
                        out.extend_from_slice(&content[range]);
                    });
                if !all {
                    break;
                }
            }
            let Some(position) = filler.finish() else { break };
            let sent = lane.sent();
            lane.on_sent(position);
            if lane.sent() < sent {
                self.violate("a message that was sent counts as unsent");
            }
            self.sender.sent = self.sender.sent.max(position);
            let (header, payload) = Header::read(&bytes).expect("our own frame");
            self.send_to_b(header, payload);
        }
    }

    fn sender_ends(&mut self) {
        self.sender.alive = false;
        if let Some(lane) = &mut self.a {
            let progress = lane.end_at(self.setting.end_of(self.sender.published));
            self.pump(progress);
        }
    }

    fn a_receives(&mut self, packet: &Packet) {
        if !self.a_lives {
            return;
        }
        let header = &packet.header;
        let Some(lane) = &mut self.a else {
            // The other gateway keeps a lane that this one does not have.
            let bye = Header::new(FrameKind::Bye, header.lane, header.attempt);
            self.send_to_b(Header { flags: frame::SETTLED, ..bye }, &[]);
            return;
        };
        let errno = packet.payload.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        let ends = frame::OWNER_DIED | frame::CLOSED | frame::REFUSED;
        let settled = (lane.ended().is_some() && header.flags & ends != 0).then(|| lane.settled());
        let owner = lane.owner();
        let progress = lane.on_status(header, errno);
        let moves = owner != 0 && lane.owner() != owner && !self.setting.waits;
        if let Some(settled) = settled {
            self.send_to_b(settled, &[]);
        }
        if moves {
            self.violate("a sender that does not wait was moved to another owner");
        }
        match progress {
            Ok(progress) => self.pump(progress),
            Err(_) => self.violate("an honest gateway's STATUS was refused"),
        }
    }

    fn b_receives(&mut self, packet: &Packet) {
        let Some(mut b) = self.b.take() else { return };
        let header = &packet.header;
        let settles = header.kind == FrameKind::Bye && header.flags & frame::SETTLED != 0;
        let Some(lane) = &mut b.lane else {
            if header.kind == FrameKind::Hello {
                b.lane = self.b_begins(header, &mut b.local);
                self.b = Some(b);
                self.b_replies(Reply::Status, header);
            } else {
                self.b = Some(b);
                if !settles {
                    self.send_to_a(incoming::unknown(header), 0);
                }
            }
            return;
        };
        let reply = match header.kind {
            FrameKind::Hello => lane.on_hello(header),
            FrameKind::Data => self.b_takes_data(lane, b.local, packet),
            FrameKind::Bye if settles => {
                // The gateway keeps the lane's number, so no late frame begins the lane again.
                lane.on_owner_end(LaneEnd::Finished);
                b.settled = true;
                Reply::Nothing
            }
            FrameKind::Bye => lane.on_bye(header),
            _ => Reply::Nothing,
        };
        if reply == Reply::Begin && !b.settled {
            b.lane = self.b_begins(header, &mut b.local);
        }
        self.b_hangs_up(&mut b);
        self.b = Some(b);
        self.b_replies(reply, header);
    }

    fn b_takes_data(
        &mut self,
        lane: &mut IncomingLane,
        local: Option<usize>,
        packet: &Packet,
    ) -> Reply {
        let (setting, mut wrong) = (self.setting.clone(), None);
        let taken = lane.on_data(&packet.header, &packet.payload, |bytes, end| match local {
            Some(index) => self.lanes[index].deliver(&setting, bytes, end, &mut wrong),
            None => {
                wrong = Some("a message was delivered to no owner");
                true
            }
        });
        self.violation = self.violation.or(wrong);
        taken.unwrap_or_else(|_| {
            self.violate("an honest gateway's DATA was refused");
            Reply::Nothing
        })
    }

    fn b_begins(&mut self, hello: &Header, local: &mut Option<usize>) -> Option<IncomingLane> {
        if !self.owner_lives && hello.owner == 0 {
            // The sending gateway repeats a HELLO that waits for a successor.
            let waits = hello.flags & frame::WAITS != 0;
            return (!waits).then(|| IncomingLane::refused(hello, ECONNREFUSED));
        }
        // If no process owns the address, the former owner has ended.
        let owner = if self.owner_lives { u128::from(self.owner) } else { 0 };
        let lane = IncomingLane::new(hello, owner, self.setting.grant);
        if lane.ended().is_none() {
            *local = Some(self.lanes.len());
            let (owner, owner_end) = (self.owner, None);
            let messages = Vec::new();
            self.lanes.push(LocalLane {
                owner,
                owner_end,
                messages,
                taken: 0,
                acked: 0,
                is_open: true,
            });
        }
        Some(lane)
    }

    fn b_replies(&mut self, reply: Reply, header: &Header) {
        let Some(lane) = self.b.as_ref().and_then(|b| b.lane.as_ref()) else { return };
        let errno = if let Some(LaneEnd::Refused(errno)) = lane.ended() { errno } else { 0 };
        match reply {
            Reply::Nothing => {}
            Reply::Unknown => self.send_to_a(incoming::unknown(header), 0),
            reply => self.send_to_a(lane.status(reply), errno),
        }
    }

    /// The receiving gateway ends its lane in the owner's mailbox if the other gateway's has ended.
    fn b_hangs_up(&mut self, b: &mut ReceivingGateway) {
        if let Some(end) = b.lane.as_ref().and_then(IncomingLane::ended)
            && let Some(index) = b.local.take()
        {
            let local = &mut self.lanes[index];
            local.is_open = false;
            if end == LaneEnd::Finished && !b.settled && local.acked < local.messages.len() {
                self.violate("a lane finished before its last message was acknowledged");
            }
        }
    }

    /// Returns `true` if the receiving gateway has not seen everything that its owner did.
    pub(crate) fn has_news(&self) -> bool {
        let Some(b) = &self.b else { return false };
        let (Some(lane), Some(index)) = (&b.lane, b.local) else { return false };
        let local = &self.lanes[index];
        let hands_over = self.owner_lives && local.owner != self.owner;
        self.position_acked(local).is_some_and(|position| position > lane.acknowledged())
            || (local.owner_end.is_some() && (!self.setting.waits || hands_over))
            || (lane.is_full() && local.has_space(&self.setting))
    }

    fn position_acked(&self, local: &LocalLane) -> Option<u64> {
        let last = *local.messages.get(local.acked.checked_sub(1)?)?;
        Some(self.setting.messages[usize::from(last)].end)
    }

    fn b_inspects(&mut self) {
        let Some(mut b) = self.b.take() else { return };
        let (Some(lane), Some(index)) = (&mut b.lane, b.local) else {
            self.b = Some(b);
            return;
        };
        let (setting, before) = (self.setting.clone(), lane.status(Reply::Status));
        if let Some(position) = self.position_acked(&self.lanes[index]) {
            lane.on_acked(position);
        }
        let local = &mut self.lanes[index];
        match local.owner_end {
            Some(end) if !setting.waits => lane.on_owner_end(end),
            // The sender hands its lane over to the successor.
            Some(_) if self.owner_lives => {
                (local.owner, local.owner_end, local.taken) = (self.owner, None, local.acked);
            }
            _ => {}
        }
        let mut wrong = None;
        let deliver = |bytes: &[u8], end| local.deliver(&setting, bytes, end, &mut wrong);
        let mut reply = lane.deliver_waiting(deliver);
        if reply == Reply::Nothing && lane.status(Reply::Status) != before {
            reply = Reply::Status;
        }
        self.violation = self.violation.or(wrong);
        self.b_hangs_up(&mut b);
        self.b = Some(b);
        self.b_replies(reply, &Header::new(FrameKind::Ping, 0, 0));
    }

    pub(crate) fn is_read(&self, lane: &LocalLane) -> bool {
        self.owner_lives && lane.owner_end.is_none() && lane.owner == self.owner
    }

    /// Changes the world by one action. A fault reduces the number of faults that may follow.
    pub(crate) fn apply(&mut self, action: Action) {
        if action.is_fault() || (self.is_early(action) && self.faults > 0) {
            self.faults = self.faults.saturating_sub(1);
        }
        match action {
            Action::ToB(index, keep) => {
                let packet = take(&mut self.to_b, index, keep);
                self.b_receives(&packet);
            }
            Action::ToA(index, keep) => {
                let packet = take(&mut self.to_a, index, keep);
                self.a_receives(&packet);
            }
            Action::DropToB(index) => drop(self.to_b.remove(index)),
            Action::DropToA(index) => drop(self.to_a.remove(index)),
            Action::Cut => {
                self.cut = true;
                self.to_a.clear();
                self.to_b.clear();
            }
            Action::Mend => self.cut = false,
            Action::Timer => self.fire(),
            Action::RepeatStatus => {
                self.b_replies(Reply::Status, &Header::new(FrameKind::Ping, 0, 0));
            }
            Action::Publish => {
                self.sender.published += 1;
                self.pump(LaneProgress::default());
            }
            Action::Take(index) => self.owner_takes(index),
            Action::Acknowledge(index) => self.owner_acknowledges(index),
            Action::Inspect => self.b_inspects(),
            Action::SenderEnds => self.sender_ends(),
            Action::Kill(victim) => self.kill(victim),
            Action::Restart(victim) => self.restart(victim),
            Action::OwnerCloses => self.owner_ends(LaneEnd::Closed),
            Action::Suspect => self.suspected = true,
            Action::Heal => {
                self.suspected = false;
                self.pump(LaneProgress::default());
            }
            Action::GiveUp => {
                self.gave_up = true;
                if let Some(lane) = self.a.take() {
                    self.send_to_b(lane.settled(), &[]);
                }
            }
        }
        if self.setting.sees_at_once && self.has_news() {
            self.b_inspects();
        }
        self.remove_inert_lanes();
    }

    fn owner_takes(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let message = lane.messages[lane.taken];
        lane.taken += 1;
        self.check_receipt(message);
    }

    fn owner_acknowledges(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let message = lane.messages[lane.acked];
        lane.acked += 1;
        self.acknowledged = self.acknowledged.max(message + 1);
    }

    fn fire(&mut self) {
        let Some(lane) = &mut self.a else { return };
        let progress = lane.on_timer();
        let probe = (lane.is_open() && !progress.rewound).then(|| lane.probe());
        if let Some(probe) = probe {
            self.send_to_b(probe, &[]);
        }
        self.pump(progress);
    }

    fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::A => (self.a_lives, self.a) = (false, None),
            Victim::B => {
                if let Some(index) = self.b.take().and_then(|b| b.local) {
                    self.lanes[index].is_open = false;
                }
                self.b_killed = true;
            }
            Victim::Owner => self.owner_ends(LaneEnd::OwnerDied),
        }
    }

    fn owner_ends(&mut self, end: LaneEnd) {
        for lane in &mut self.lanes {
            lane.owner_end = lane.owner_end.or(Some(end));
        }
        self.owner_lives = false;
        self.owner_ended = true;
        self.owner_closed |= end == LaneEnd::Closed;
    }

    fn restart(&mut self, victim: Victim) {
        match victim {
            Victim::A => self.start_a(),
            Victim::B => {
                self.b = Some(ReceivingGateway { lane: None, local: None, settled: false })
            }
            Victim::Owner => {
                self.owner += 1;
                self.owner_lives = true;
            }
        }
    }

    /// Removes lanes of which neither the owner nor a gateway can take anything more.
    fn remove_inert_lanes(&mut self) {
        let local = self.b.as_ref().and_then(|b| b.local);
        for index in (0..self.lanes.len()).rev() {
            let lane = &self.lanes[index];
            let is_read_out = lane.acked == lane.messages.len() || !self.is_read(lane);
            if local == Some(index) || !is_read_out {
                continue;
            }
            self.lanes.remove(index);
            if let Some(local) = self.b.as_mut().and_then(|b| b.local.as_mut())
                && *local > index
            {
                *local -= 1;
            }
        }
    }

    pub(crate) fn owner_was_closed(&self) -> bool {
        self.owner_closed
    }

    pub(crate) fn b_is_settled(&self) -> bool {
        self.b.as_ref().is_some_and(|b| b.settled)
    }
}

impl LocalLane {
    fn has_space(&self, setting: &Setting) -> bool {
        self.messages.len() - self.acked < setting.capacity
    }

    pub(crate) fn may_take(&self) -> bool {
        self.taken < self.messages.len()
    }

    pub(crate) fn may_acknowledge(&self) -> bool {
        self.acked < self.taken
    }

    fn deliver(
        &mut self,
        setting: &Setting,
        bytes: &[u8],
        end: u64,
        wrong: &mut Option<&'static str>,
    ) -> bool {
        if !self.has_space(setting) {
            return false;
        }
        match setting.message_at(end) {
            Some(index) if setting.messages[usize::from(index)].content == bytes => {
                self.messages.push(index);
            }
            _ => *wrong = Some("a message was changed"),
        }
        true
    }
}
