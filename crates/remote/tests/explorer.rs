//! Explores the protocol between two gateways: one lane with two messages, a network that delivers
//! frames in any order, and every pair or triple of faults. A fault drops or repeats a frame, lets
//! a timer expire too early, suspects the other host, or kills the sender, a gateway or the owner.
//!
//! Each state is hashed and visited once. In each state the safety properties hold
//! ([`World::check`]), and if all faults stop, the lane settles ([`World::heal`]).

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use tontine_remote::frame::{self, FrameKind, Header};
use tontine_remote::incoming::{self, IncomingLane, Reply};
use tontine_remote::outgoing::{FrameFiller, LaneEnd, OutgoingLane, Progress};

/// Position of each message, and the position after it: there is padding between the two.
const MESSAGES: [(u64, u64); 2] = [(0, 16), (24, 40)];
const LANE: u128 = 7;
/// Maximum number of frames in the network; more are lost.
const MAX_FRAMES: usize = 4;
/// Space that the receiving gateway grants: for both messages, or for one at a time.
const ROOMS: [u64; 2] = [64, 24];

/// The message that ends at `end`.
fn message_at(end: u64) -> u8 {
    MESSAGES.iter().position(|message| message.1 == end).expect("a message") as u8
}

type Packet = (Header, Vec<u8>);

/// The sending program, with the control page that its gateway writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SenderSide {
    alive: bool,
    closed: bool,
    acked: u64,
    sent: u64,
    end: Option<LaneEnd>,
}

/// A lane in the owner's mailbox, which the receiving gateway fills.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LocalLane {
    owner: u8,
    /// Messages, with the position after each.
    messages: Vec<u64>,
    taken: usize,
    acked: usize,
    sender_lives: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReceivingGateway {
    lane: Option<IncomingLane>,
    /// Index of the lane in the owner's mailbox.
    local: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    waits: bool,
    room: u64,
    sender: SenderSide,
    a: Option<OutgoingLane>,
    suspected: bool,
    b: Option<ReceivingGateway>,
    /// Number of the owner, from 1, and whether it lives.
    owner: u8,
    owner_lives: bool,
    owner_closed: bool,
    lanes: Vec<LocalLane>,
    /// Messages in the order of their receipt.
    received: Vec<(u8, u8)>,
    /// Messages that an owner has acknowledged.
    acknowledged: [bool; 2],
    to_b: Vec<Packet>,
    to_a: Vec<Packet>,
    faults: u8,
    b_killed: bool,
    owner_killed: bool,
    sender_killed: bool,
    gave_up: bool,
    violation: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    ToB(usize, bool),
    ToA(usize, bool),
    DropToB(usize),
    DropToA(usize),
    Timer,
    RepeatEnd,
    Take(usize),
    Acknowledge(usize),
    SenderCloses,
    Kill(Victim),
    Restart(Victim),
    OwnerCloses,
    Suspect,
    Heal,
    GiveUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Victim {
    Sender,
    A,
    B,
    Owner,
}

impl World {
    fn new(waits: bool, room: u64, faults: u8) -> Self {
        let mut world = Self {
            waits,
            room,
            sender: SenderSide { alive: true, closed: false, acked: 0, sent: 0, end: None },
            a: None,
            suspected: false,
            b: Some(ReceivingGateway { lane: None, local: None }),
            owner: 1,
            owner_lives: true,
            owner_closed: false,
            lanes: Vec::new(),
            received: Vec::new(),
            acknowledged: [false; 2],
            to_b: Vec::new(),
            to_a: Vec::new(),
            faults,
            b_killed: false,
            owner_killed: false,
            sender_killed: false,
            gave_up: false,
            violation: None,
        };
        world.start_a();
        world
    }

    fn start_a(&mut self) {
        let waits = if self.waits { frame::WAITS | frame::WAITS_THROUGH_RESTARTS } else { 0 };
        self.a = Some(OutgoingLane::new(LANE, self.sender.acked, waits, 4096, 64));
        self.suspected = false;
        self.pump(Progress { greet: true, ..Progress::default() });
    }

    fn send_to_b(&mut self, header: Header, payload: &[u8]) {
        if self.to_b.len() < MAX_FRAMES {
            self.to_b.push((header, payload.to_vec()));
        }
    }

    fn send_to_a(&mut self, header: Header, errno: i32) {
        let payload = if errno == 0 { Vec::new() } else { errno.to_le_bytes().to_vec() };
        if self.to_a.len() < MAX_FRAMES {
            self.to_a.push((header, payload));
        }
    }

    /// The sending gateway acts on progress, and sends what it may.
    fn pump(&mut self, progress: Progress) {
        let Some(mut lane) = self.a.take() else { return };
        if let Some(acked) = progress.acked {
            self.sender.acked = acked;
        }
        if let Some(end) = progress.end {
            let lives = self.owner_lives && !(self.owner_closed && self.b_killed);
            if end == LaneEnd::OwnerDied && lane.owner() == u128::from(self.owner) && lives {
                self.violation = Some("a live owner was reported dead");
            }
            if end != LaneEnd::Finished {
                self.sender.end = Some(end);
            }
            self.send_to_b(lane.settled(), &[]);
        }
        if progress.greet {
            self.send_to_b(lane.hello(), b"jobs");
        }
        if !self.suspected && !self.gave_up {
            let mut bytes = Vec::new();
            // The read position is the acknowledged one: the filler skips what was sent.
            while lane.window().is_some() {
                let mut filler = FrameFiller::new(&lane, &mut bytes);
                for (index, (position, end)) in MESSAGES.into_iter().enumerate() {
                    let payload = [index as u8; 5];
                    if position >= lane.acknowledged()
                        && !filler.offer(position, end, 5, |range, out| {
                            out.extend_from_slice(&payload[range]);
                        })
                    {
                        break;
                    }
                }
                let Some(position) = filler.finish() else { break };
                lane.on_sent(position);
                self.sender.sent = self.sender.sent.max(position);
                let (header, payload) = Header::read(&bytes).expect("our own frame");
                self.send_to_b(header, payload);
            }
            if let Some(bye) = lane.take_bye() {
                self.send_to_b(bye, &[]);
            }
        }
        if !lane.is_consistent() {
            self.violation = Some("the positions are not in order");
        }
        // A sender that has ended, and everything settled: the gateway forgets the lane.
        let over = lane.ended().is_some() && !self.sender.alive;
        self.a = (!over).then_some(lane);
    }

    fn a_sender_ended(&mut self) {
        if let Some(mut lane) = self.a.take() {
            let progress = lane.end_at(MESSAGES[1].1);
            self.a = Some(lane);
            self.pump(progress);
        }
    }

    fn a_receives(&mut self, (header, payload): Packet) {
        let Some(mut lane) = self.a.take() else { return };
        let errno = payload.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        let ends = frame::OWNER_DIED | frame::CLOSED | frame::REFUSED;
        if lane.ended().is_some() && header.flags & ends != 0 {
            self.send_to_b(lane.settled(), &[]);
        }
        match lane.on_status(&header, errno) {
            Ok(progress) => {
                self.a = Some(lane);
                self.pump(progress);
            }
            Err(_) => {
                self.violation = Some("an honest gateway was called dishonest");
                self.a = Some(lane);
            }
        }
    }

    fn b_receives(&mut self, (header, payload): Packet) {
        let Some(mut b) = self.b.take() else { return };
        let Some(mut lane) = b.lane.take() else {
            match header.kind {
                FrameKind::Hello => b.lane = self.b_begins(&header, &mut b.local),
                FrameKind::Bye if header.flags & frame::SETTLED != 0 => {}
                _ => self.send_to_a(incoming::unknown(&header), 0),
            }
            self.b = Some(b);
            if header.kind == FrameKind::Hello {
                self.b_replies(Reply::Status, &header);
            }
            return;
        };
        let reply = match header.kind {
            FrameKind::Hello => lane.on_hello(&header),
            FrameKind::Data => {
                let local = b.local.map(|index| &mut self.lanes[index].messages);
                let mut none = Vec::new();
                let messages = local.unwrap_or(&mut none);
                let mut garbled = false;
                let taken = lane.on_data(&header, &payload, |bytes, end| {
                    garbled |= bytes != [message_at(end); 5];
                    messages.push(end);
                    true
                });
                if garbled {
                    self.violation = Some("a message was changed");
                }
                if !none.is_empty() {
                    self.violation = Some("a message was delivered to no owner");
                }
                taken.unwrap_or_else(|_| {
                    self.violation = Some("an honest gateway's DATA was refused");
                    Reply::Nothing
                })
            }
            FrameKind::Bye if header.flags & frame::SETTLED != 0 => Reply::Nothing,
            FrameKind::Bye => lane.on_bye(&header),
            _ => Reply::Nothing,
        };
        let ended = lane.ended().is_some();
        b.lane = Some(lane);
        if ended && let Some(index) = b.local.take() {
            self.lanes[index].sender_lives = false;
        }
        self.b = Some(b);
        self.b_replies(reply, &header);
    }

    fn b_begins(&mut self, hello: &Header, local: &mut Option<usize>) -> Option<IncomingLane> {
        const ECONNREFUSED: i32 = 111;
        if !self.owner_lives || self.owner_closed {
            return if hello.owner == 0 {
                Some(IncomingLane::refused(hello, ECONNREFUSED))
            } else {
                // No process owns the address, so the former owner has ended, and there is no
                // successor yet.
                (!self.waits).then(|| IncomingLane::new(hello, 0, self.room))
            };
        }
        let lane = IncomingLane::new(hello, u128::from(self.owner), self.room);
        if lane.ended().is_none() {
            *local = Some(self.lanes.len());
            self.lanes.push(LocalLane {
                owner: self.owner,
                messages: Vec::new(),
                taken: 0,
                acked: 0,
                sender_lives: true,
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

    /// The receiving gateway sees what its owner did.
    fn b_looks(&mut self) {
        let Some(mut b) = self.b.take() else { return };
        let (waits, lives, closed) = (self.waits, self.owner_lives, self.owner_closed);
        if let (Some(lane), Some(index)) = (&mut b.lane, b.local) {
            let local = &mut self.lanes[index];
            let before = lane.clone();
            if local.acked > 0 {
                lane.on_acked(local.messages[local.acked - 1]);
            }
            let gone = local.owner != self.owner || !lives || closed;
            if gone && !waits {
                lane.on_owner_end(if closed { LaneEnd::Closed } else { LaneEnd::OwnerDied });
            } else if gone && lives && !closed {
                // The sender hands its lane over to the successor.
                local.owner = self.owner;
                local.taken = local.acked;
            }
            let changed = *lane != before;
            if lane.ended().is_some() {
                local.sender_lives = false;
                b.local = None;
            }
            self.b = Some(b);
            if changed {
                self.b_replies(Reply::Status, &Header::new(FrameKind::Ping, 0, 0));
            }
        } else {
            self.b = Some(b);
        }
    }

    fn lane_is_read(&self, index: usize) -> bool {
        let lane = &self.lanes[index];
        self.owner_lives && !self.owner_closed && lane.owner == self.owner
    }

    fn actions(&self, into: &mut Vec<Action>) {
        into.clear();
        let faults = self.faults > 0;
        for index in 0..self.to_b.len() {
            into.push(Action::ToB(index, false));
            if faults {
                into.extend([Action::ToB(index, true), Action::DropToB(index)]);
            }
        }
        for index in 0..self.to_a.len() {
            into.push(Action::ToA(index, false));
            if faults {
                into.extend([Action::ToA(index, true), Action::DropToA(index)]);
            }
        }
        for index in 0..self.lanes.len() {
            let lane = &self.lanes[index];
            if self.lane_is_read(index) && lane.taken < lane.messages.len() {
                into.push(Action::Take(index));
            }
            if self.lane_is_read(index) && lane.acked < lane.taken {
                into.push(Action::Acknowledge(index));
            }
        }
        if self.sender.alive && !self.sender.closed {
            into.push(Action::SenderCloses);
        }
        if self.suspected {
            into.push(Action::Heal);
        }
        for (victim, lives) in self.lives() {
            if lives && faults {
                into.push(Action::Kill(victim));
            } else if !lives && self.may_restart(victim) {
                into.push(Action::Restart(victim));
            }
        }
        if faults {
            if self.a.as_ref().is_some_and(OutgoingLane::is_waiting) {
                into.push(Action::Timer);
            }
            if self.b_has_ended() {
                into.push(Action::RepeatEnd);
            }
            if self.owner_lives && !self.owner_closed {
                into.push(Action::OwnerCloses);
            }
            if self.a.is_some() {
                into.push(if self.suspected { Action::GiveUp } else { Action::Suspect });
            }
        }
    }

    fn lives(&self) -> [(Victim, bool); 4] {
        [
            (Victim::Sender, self.sender.alive),
            (Victim::A, self.a.is_some()),
            (Victim::B, self.b.is_some()),
            (Victim::Owner, self.owner_lives && !self.owner_closed),
        ]
    }

    fn may_restart(&self, victim: Victim) -> bool {
        match victim {
            Victim::Sender => false,
            // The lane is gone if the sender is, and it is not offered again once it has ended.
            Victim::A => self.sender.alive && self.sender.end.is_none() && !self.gave_up,
            Victim::B => true,
            Victim::Owner => self.owner < 3,
        }
    }

    fn b_has_ended(&self) -> bool {
        let lane = self.b.as_ref().and_then(|b| b.lane.as_ref());
        lane.is_some_and(|lane| lane.ended().is_some_and(|end| end != LaneEnd::Finished))
    }

    fn apply(&mut self, action: Action) {
        let fault = match action {
            Action::ToB(index, again) => {
                let packet = self.to_b[index].clone();
                if !again {
                    self.to_b.remove(index);
                }
                self.b_receives(packet);
                again
            }
            Action::ToA(index, again) => {
                let packet = self.to_a[index].clone();
                if !again {
                    self.to_a.remove(index);
                }
                self.a_receives(packet);
                again
            }
            Action::DropToB(index) => {
                self.to_b.remove(index);
                true
            }
            Action::DropToA(index) => {
                self.to_a.remove(index);
                true
            }
            Action::Timer => {
                self.fire();
                true
            }
            Action::RepeatEnd => {
                self.b_replies(Reply::Status, &Header::new(FrameKind::Ping, 0, 0));
                true
            }
            Action::Take(index) => {
                let lane = &mut self.lanes[index];
                let message = message_at(lane.messages[lane.taken]);
                lane.taken += 1;
                self.received.push((lane.owner, message));
                false
            }
            Action::Acknowledge(index) => {
                let lane = &mut self.lanes[index];
                self.acknowledged[message_at(lane.messages[lane.acked]) as usize] = true;
                lane.acked += 1;
                self.b_looks();
                false
            }
            Action::SenderCloses => {
                self.sender.closed = true;
                self.sender.alive = false;
                self.a_sender_ended();
                false
            }
            Action::Kill(victim) => {
                self.kill(victim);
                true
            }
            Action::Restart(victim) => {
                self.restart(victim);
                false
            }
            Action::OwnerCloses => {
                self.owner_closed = true;
                self.owner_killed = true;
                self.b_looks();
                true
            }
            Action::Suspect => {
                self.suspected = true;
                true
            }
            Action::Heal => {
                self.suspected = false;
                self.pump(Progress::default());
                false
            }
            Action::GiveUp => {
                self.gave_up = true;
                if let Some(lane) = self.a.take() {
                    self.send_to_b(lane.settled(), &[]);
                }
                true
            }
        };
        self.faults -= u8::from(fault);
        self.to_a.sort_by_key(|packet| digest(packet));
        self.to_b.sort_by_key(|packet| digest(packet));
    }

    fn fire(&mut self) {
        let Some(mut lane) = self.a.take() else { return };
        let progress = lane.on_timer();
        if lane.is_open() && !progress.rewound {
            self.send_to_b(lane.probe(), &[]);
        }
        self.a = Some(lane);
        self.pump(progress);
    }

    fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Sender => {
                self.sender.alive = false;
                self.sender_killed = true;
                self.a_sender_ended();
            }
            Victim::A => self.a = None,
            Victim::B => {
                if let Some(b) = self.b.take()
                    && let Some(index) = b.local
                {
                    self.lanes[index].sender_lives = false;
                }
                self.b_killed = true;
            }
            Victim::Owner => {
                self.owner_lives = false;
                self.owner_killed = true;
                self.b_looks();
            }
        }
    }

    fn restart(&mut self, victim: Victim) {
        match victim {
            Victim::Sender => {}
            Victim::A => self.start_a(),
            Victim::B => self.b = Some(ReceivingGateway { lane: None, local: None }),
            Victim::Owner => {
                self.owner += 1;
                self.owner_lives = true;
                self.owner_closed = false;
                self.b_looks();
            }
        }
    }

    /// Returns the property that does not hold.
    fn check(&self) -> Option<&'static str> {
        if self.violation.is_some() {
            return self.violation;
        }
        for (index, (_, end)) in MESSAGES.into_iter().enumerate() {
            if self.sender.acked >= end && !self.acknowledged[index] {
                return Some("a message counts as acknowledged, but no owner acknowledged it");
            }
        }
        for &(_, message) in &self.received {
            if MESSAGES[message as usize].1 > self.sender.sent {
                return Some("a message that counts as unsent was received");
            }
        }
        let mut first = Vec::new();
        for &(_, message) in &self.received {
            if !first.contains(&message) {
                first.push(message);
            } else if !self.b_killed && !self.owner_killed {
                return Some("a message was received twice, but no process at its path was killed");
            }
        }
        if !first.is_sorted() {
            return Some("messages were received out of order");
        }
        let exact = !self.b_killed && self.sender.end == Some(LaneEnd::OwnerDied);
        let acked = self.acknowledged.iter().filter(|acked| **acked).count();
        if exact && acked > 0 && self.sender.acked < MESSAGES[acked - 1].1 {
            return Some("a message that the dead owner acknowledged is in doubt");
        }
        None
    }

    /// Lets all faults stop: each step is one that a working system makes. Returns the next state,
    /// or `None` if the lane has settled.
    fn heal(&self) -> Option<(Action, Self)> {
        let settled = self.sender.end.is_some()
            || self.gave_up
            || MESSAGES[1].1 <= self.sender.acked
            || (!self.sender.alive && self.a.is_none());
        if settled {
            return None;
        }
        let mut next = self.clone();
        let lanes = 0..self.lanes.len();
        let take = |index: &usize| {
            self.lane_is_read(*index)
                && self.lanes[*index].taken < self.lanes[*index].messages.len()
        };
        let acknowledge = |index: &usize| {
            self.lane_is_read(*index) && self.lanes[*index].acked < self.lanes[*index].taken
        };
        let action = if self.suspected {
            Action::Heal
        } else if self.a.is_none() {
            Action::Restart(Victim::A)
        } else if self.b.is_none() {
            Action::Restart(Victim::B)
        } else if (!self.owner_lives || self.owner_closed) && self.waits && self.owner < 9 {
            Action::Restart(Victim::Owner)
        } else if !self.to_b.is_empty() {
            Action::ToB(0, false)
        } else if !self.to_a.is_empty() {
            Action::ToA(0, false)
        } else if let Some(index) = lanes.clone().find(take) {
            Action::Take(index)
        } else if let Some(index) = lanes.clone().find(acknowledge) {
            Action::Acknowledge(index)
        } else {
            next.faults += 1;
            if self.b_has_ended() { Action::RepeatEnd } else { Action::Timer }
        };
        next.apply(action);
        if action == Action::RepeatEnd {
            next.faults += 1;
            next.apply(Action::Timer);
        }
        Some((action, next))
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A number of states, and the first violation with the actions that lead to it.
struct Explored {
    states: usize,
    found: Option<(&'static str, Vec<Action>)>,
}

fn explore(waits: bool, room: u64, faults: u8) -> Explored {
    let (mut seen, mut healed) = (HashSet::new(), HashSet::new());
    let start = World::new(waits, room, faults);
    seen.insert(digest(&start));
    let mut stack = vec![(start, Vec::new())];
    let mut actions = Vec::new();
    while let Some((world, path)) = stack.pop() {
        let violation = world.check().or_else(|| settles(&world, &mut healed));
        if let Some(violation) = violation {
            return Explored { states: seen.len(), found: Some((violation, path)) };
        }
        world.actions(&mut actions);
        for &action in &actions {
            let mut next = world.clone();
            next.apply(action);
            if seen.insert(digest(&next)) {
                let mut path = path.clone();
                path.push(action);
                stack.push((next, path));
            }
        }
    }
    Explored { states: seen.len(), found: None }
}

/// Maximum number of steps in which a lane settles once all faults have stopped.
const MAX_STEPS: usize = 200;

fn settles(world: &World, healed: &mut HashSet<u64>) -> Option<&'static str> {
    let mut way = Vec::new();
    let mut world = world.clone();
    while let Some((_, mut next)) = world.heal() {
        next.faults = 0;
        if let Some(violation) = next.check() {
            return Some(violation);
        }
        let key = digest(&next);
        if healed.contains(&key) {
            break;
        }
        way.push(key);
        if way.len() > MAX_STEPS {
            return Some("the lane does not settle after all faults have stopped");
        }
        world = next;
    }
    healed.extend(way);
    None
}

fn assert_sound(faults: u8) {
    for (waits, room) in [false, true].into_iter().flat_map(|waits| ROOMS.map(|room| (waits, room)))
    {
        assert_sound_with(waits, room, faults);
    }
}

fn assert_sound_with(waits: bool, room: u64, faults: u8) {
    let explored = explore(waits, room, faults);
    println!("{faults} faults, successor {waits}, room {room}: {} states", explored.states);
    if let Some((violation, path)) = explored.found {
        let mut world = World::new(waits, room, faults);
        for action in path {
            println!("{action:?}");
            world.apply(action);
            println!("    {:?}", world.a);
        }
        println!("{world:?}");
        for _ in 0..MAX_STEPS {
            let Some((action, mut next)) = world.heal() else { break };
            next.faults = 0;
            println!("healing {action:?}: {:?} {:?} {:?}", next.a, next.b, next.to_a);
            world = next;
        }
        panic!("{violation}");
    }
    assert!(explored.states > 1000, "{} states are not an exploration", explored.states);
}

#[test]
fn one_fault_breaks_no_promise() {
    assert_sound(1);
}

#[test]
fn two_faults_break_no_promise() {
    assert_sound(2);
}

#[test]
#[ignore = "takes minutes"]
fn three_faults_break_no_promise() {
    assert_sound(3);
}
