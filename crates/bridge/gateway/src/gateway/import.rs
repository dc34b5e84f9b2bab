//! The half of a gateway for mailboxes of the peers: [`Imports`].
//!
//! Each import is a [`Relay`]: local senders' messages stay in their lanes until the remote owner
//! has acknowledged them, so a gateway that is killed loses nothing.

mod lane;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tontine::mailbox::{OnDeath, Options, Relay, RelayLane, RemoteEnd, SenderId};

use lane::{FillResult, ImportLane, fill, read_up_to};

use super::GatewayError;
use super::carrier::Carrier;
use crate::config::Config;
use crate::detector::{Detector, News};
use crate::frame::{self, FrameKind, Header};
use crate::link::{HostId, Link};
use crate::outgoing::{LaneEnd, LaneProgress, OutgoingLane};
use crate::status::{LaneDirection, LaneState, LaneStatus};

/// Time after which a lane repeats what was not answered; doubled up to [`MAX_REPEAT`].
const REPEAT: Duration = Duration::from_millis(200);
const MAX_REPEAT: Duration = Duration::from_secs(2);
/// Maximum number of frames per lane and turn.
const FRAMES_PER_TURN: usize = 16;
/// Maximum number of lanes per tick that are reported as absent. A receiving gateway asks for each
/// lane once per minute.
const ABSENT_PER_TICK: u32 = 64;
/// Time after the start in which the senders of an earlier gateway hand their lanes over.
const TAKEOVER: Duration = Duration::from_secs(60);

/// The lanes of local senders to mailboxes of the peers.
pub(super) struct Imports {
    mailboxes: Vec<Import>,
    lanes: HashMap<LaneKey, ImportLane>,
    /// Lanes by their peer and by the number that the sender gave them.
    numbers: HashMap<(HostId, u128), LaneKey>,
    started: Instant,
    /// Number of lanes that may be reported as absent until the next tick.
    absent_quota: u32,
    ready: Vec<SenderId>,
    /// Lanes that are held because the link had no space.
    blocked: Vec<LaneKey>,
    next_due: Option<Instant>,
}

/// The index of an import, and its lane.
type LaneKey = (usize, SenderId);

struct Import {
    relay: Relay,
    peer: HostId,
    name: String,
    unreachable_after: Option<Duration>,
    /// [`Relay::lane_changes`] at the last service.
    changes: u64,
    /// A lane is not known yet.
    is_changed: bool,
}

/// Returns the state that `tontine bridge status` shows for an end.
pub(super) fn state_of(end: LaneEnd) -> LaneState {
    match end {
        LaneEnd::Finished => LaneState::Ending,
        LaneEnd::OwnerDied => LaneState::OwnerDied,
        LaneEnd::Closed => LaneState::Closed,
        LaneEnd::Refused(_) => LaneState::Refused,
    }
}

impl Imports {
    /// Binds a relay for each import.
    pub(super) fn bind(config: &Config) -> Result<Self, GatewayError> {
        let mut options = Options::new().mode(config.mode);
        for uid in &config.allowed_uids {
            options = options.allow_uid(*uid);
        }
        if let Some(cap) = config.lane_cap {
            options = options.lane_cap(cap);
        }
        if let Some(lanes) = config.max_lanes {
            options = options.max_lanes(lanes);
        }
        let bind = |import: &crate::config::ImportConfig| {
            let relay = options.bind_relay(import.address.clone());
            let name = format!("{}/{}", config.peer(import.host).name, import.name);
            Ok(Import {
                relay: relay.map_err(|error| GatewayError::Import { name, error })?,
                peer: import.host,
                name: import.name.clone(),
                unreachable_after: config.peer(import.host).unreachable_after,
                changes: 0,
                is_changed: false,
            })
        };
        Ok(Self {
            mailboxes: config.imports.iter().map(bind).collect::<Result<_, _>>()?,
            lanes: HashMap::new(),
            numbers: HashMap::new(),
            started: Instant::now(),
            absent_quota: ABSENT_PER_TICK,
            ready: Vec::new(),
            blocked: Vec::new(),
            next_due: None,
        })
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.mailboxes.iter().map(|import| import.relay.as_fd())
    }

    /// Returns the time at which a lane repeats what was not answered.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.next_due
    }

    /// Handles an event of a relay's descriptor: accepts new lanes and forgets lanes that are over.
    pub(super) fn service<L: Link>(
        &mut self,
        index: usize,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
    ) {
        let Some(import) = self.mailboxes.get_mut(index) else { return };
        import.is_changed = false;
        if let Err(error) = import.relay.service() {
            tracing::warn!("the import {} cannot be serviced: {error}", import.name);
        }
        for error in import.relay.take_errors() {
            tracing::warn!("a sender to {}: {error}", import.name);
        }
        let changes = import.relay.lane_changes();
        let is_changed = std::mem::replace(&mut import.changes, changes) != changes;
        if is_changed {
            let lanes = import.relay.lanes();
            // To read a lane whose sender broke the protocol removes it.
            import.changes = import.relay.lane_changes();
            for lane in lanes {
                if !self.lanes.contains_key(&(index, lane.sender)) {
                    self.add(index, lane, carrier, detectors);
                }
            }
        }
        let relay = &mut self.mailboxes[index].relay;
        let mut over = Vec::new();
        for (&key, lane) in self.lanes.iter().filter(|(key, _)| key.0 == index) {
            let is_reported = lane.reported_end.is_some();
            if (is_changed || is_reported)
                && relay.lane(key.1).is_none_or(|lane| lane.ended && is_reported)
            {
                over.push(key);
            }
        }
        for key in over {
            self.forget(key, carrier);
        }
    }

    fn add<L: Link>(
        &mut self,
        index: usize,
        lane: RelayLane,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
    ) {
        let import = &mut self.mailboxes[index];
        let waits = match lane.on_death {
            OnDeath::Fail => 0,
            OnDeath::WaitForSuccessor => frame::WAITS,
            _ => frame::WAITS | frame::WAITS_THROUGH_RESTARTS,
        };
        // A lane that was handed over twice, or a sender that copies another one's number.
        let number = (import.peer, lane.lane);
        if self.numbers.contains_key(&number) {
            if lane.ended {
                return import.relay.remove(lane.sender);
            }
            import.relay.end(lane.sender, RemoteEnd::Refused { errno: EEXIST });
            import.relay.hold(lane.sender, true);
            return;
        }
        let key = (index, lane.sender);
        self.numbers.insert(number, key);
        let longest = lane.max_message_len as u64;
        let machine = OutgoingLane::new(lane.lane, lane.acked, waits, longest);
        tracing::debug!("lane {:032x} to {} begins", lane.lane, import.name);
        import.relay.set_suspected(
            lane.sender,
            detectors[import.peer.0 as usize].suspected_since().is_some(),
        );
        let added = ImportLane {
            machine,
            pid: lane.peer.pid,
            last_end: lane.acked,
            due: None,
            interval: REPEAT,
            is_blocked: false,
            reported_end: None,
        };
        self.lanes.insert(key, added);
        let greet = LaneProgress { greet: true, ..LaneProgress::default() };
        self.apply(key, greet, carrier, detectors, Instant::now());
    }

    fn forget<L: Link>(&mut self, key: LaneKey, carrier: &mut Carrier<L>) {
        let Some(lane) = self.lanes.remove(&key) else { return };
        let import = &mut self.mailboxes[key.0];
        import.relay.remove(key.1);
        self.numbers.remove(&(import.peer, lane.machine.lane()));
        carrier.send(import.peer, &lane.machine.settled(), &[]);
        tracing::debug!("lane {:032x} to {} is over", lane.machine.lane(), import.name);
    }

    /// Sends what the lanes contain. Returns `true` if a frame was sent.
    pub(super) fn pump<L: Link>(
        &mut self,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) -> bool {
        let mut sent = false;
        for index in 0..self.mailboxes.len() {
            if self.mailboxes[index].is_changed {
                self.service(index, carrier, detectors);
            }
            let mut ready = std::mem::take(&mut self.ready);
            ready.clear();
            self.mailboxes[index].relay.ready(&mut ready);
            for &sender in &ready {
                sent |= self.pump_lane((index, sender), carrier, detectors, now);
            }
            self.ready = ready;
        }
        sent
    }

    /// Continues the lanes to a peer that had to wait for space in the link.
    pub(super) fn on_space<L: Link>(
        &mut self,
        peer: HostId,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        for key in std::mem::take(&mut self.blocked) {
            if self.mailboxes[key.0].peer != peer || carrier.is_blocked(peer) {
                self.blocked.push(key);
            } else if let Some(lane) = self.lanes.get_mut(&key) {
                lane.is_blocked = false;
                self.pump_lane(key, carrier, detectors, now);
            }
        }
    }

    fn pump_lane<L: Link>(
        &mut self,
        key: LaneKey,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) -> bool {
        let import = &mut self.mailboxes[key.0];
        let Some(lane) = self.lanes.get_mut(&key) else {
            // The next service adds the lane.
            import.is_changed = true;
            return false;
        };
        if lane.reported_end.is_some() {
            import.relay.hold(key.1, true);
            return false;
        }
        let peer = import.peer;
        let silent = detectors[peer.0 as usize].suspected_since().is_some();
        let mut frames = 0;
        let mut lacks_space = lane.machine.window().is_none();
        while frames < FRAMES_PER_TURN && !silent && !lacks_space && !carrier.is_blocked(peer) {
            match fill(import, key.1, lane, &mut carrier.frame) {
                FillResult::Frame => carrier.send_built(peer),
                FillResult::Nothing => break,
                FillResult::NoSpace => {
                    lacks_space = true;
                    break;
                }
            }
            frames += 1;
            lacks_space = lane.machine.window().is_none();
        }
        let drained = import.relay.lane(key.1).is_some_and(|lane| lane.drained);
        let mut progress = LaneProgress::default();
        if drained && !lane.machine.is_ending() {
            progress = lane.machine.end_at(lane.last_end.max(lane.machine.acknowledged()));
        }
        import.relay.hold(key.1, silent || carrier.is_blocked(peer) || lacks_space || drained);
        if carrier.is_blocked(peer) && !std::mem::replace(&mut lane.is_blocked, true) {
            self.blocked.push(key);
        }
        if let Some(bye) = lane.machine.take_bye() {
            carrier.send(peer, &bye, &[]);
        }
        if lane.due.is_none() && lane.machine.is_waiting() {
            let due = now + lane.interval;
            lane.due = Some(due);
            self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
        }
        if progress.end.is_some() {
            self.apply(key, progress, carrier, detectors, now);
        }
        frames > 0
    }

    /// Processes the `STATUS` of a receiving gateway.
    pub(super) fn on_status<L: Link>(
        &mut self,
        from: HostId,
        status: &Header,
        errno: i32,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        let Some(&key) = self.numbers.get(&(from, status.lane)) else {
            let may_answer = now >= self.started + TAKEOVER && self.absent_quota > 0;
            if may_answer && status.flags & frame::UNKNOWN == 0 {
                self.absent_quota -= 1;
                let bye = Header::new(FrameKind::Bye, status.lane, status.attempt);
                carrier.send(from, &Header { flags: frame::ABSENT, ..bye }, &[]);
            }
            return;
        };
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        if lane.reported_end.is_some() {
            let ends = frame::OWNER_DIED | frame::CLOSED | frame::REFUSED;
            if status.flags & ends != 0 {
                carrier.send(from, &lane.machine.settled(), &[]);
            }
            return;
        }
        let positions = |machine: &OutgoingLane| (machine.accepted(), machine.acknowledged());
        let before = positions(&lane.machine);
        match lane.machine.on_status(status, errno) {
            Ok(progress) => {
                // A peer that repeats itself does not keep the timer from expiring.
                if progress.greet || positions(&lane.machine) != before {
                    lane.interval = REPEAT;
                    lane.due = None;
                }
                self.apply(key, progress, carrier, detectors, now);
            }
            Err(violation) => self.refuse(key, violation.0, carrier),
        }
    }

    /// Ends a lane because the other gateway violates the protocol.
    fn refuse<L: Link>(&mut self, key: LaneKey, what: &str, carrier: &mut Carrier<L>) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let import = &mut self.mailboxes[key.0];
        tracing::warn!("a lane to {} was closed: {what}", import.name);
        lane.reported_end = Some(LaneState::Protocol);
        import.relay.end(key.1, RemoteEnd::Refused { errno: EPROTO });
        import.relay.hold(key.1, true);
        carrier.send(import.peer, &lane.machine.settled(), &[]);
    }

    /// Does what a status or a timer asks for, then sends what the lane may send.
    fn apply<L: Link>(
        &mut self,
        key: LaneKey,
        progress: LaneProgress,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let import = &mut self.mailboxes[key.0];
        let (relay, sender) = (&mut import.relay, key.1);
        let mut moved = Ok(());
        if let Some(acked) = progress.acked {
            read_up_to(relay, sender, acked);
            lane.last_end = lane.last_end.max(acked);
            moved = relay.ack_to(sender, acked);
        }
        if progress.rewound && moved.is_ok() {
            moved = relay.seek(sender, lane.machine.acknowledged());
        }
        if let Err(error) = moved {
            let what = format!("STATUS acknowledges what was not sent: {error}");
            return self.refuse(key, &what, carrier);
        }
        if progress.greet {
            carrier.send(import.peer, &lane.machine.hello(), import.name.as_bytes());
        }
        let end = match progress.end {
            None => None,
            Some(LaneEnd::Finished) => return self.forget(key, carrier),
            Some(LaneEnd::OwnerDied) => Some(RemoteEnd::Died),
            Some(LaneEnd::Closed) => Some(RemoteEnd::Closed),
            Some(LaneEnd::Refused(errno)) => Some(RemoteEnd::Refused { errno }),
        };
        if let Some(end) = end {
            lane.reported_end = progress.end.map(state_of);
            tracing::info!("a lane to {} ended: {:?}", import.name, end);
            relay.end(sender, end);
            carrier.send(import.peer, &lane.machine.settled(), &[]);
            relay.hold(sender, true);
            // A sender that has ended does not learn it.
            if relay.lane(sender).is_none_or(|lane| lane.ended) {
                self.forget(key, carrier);
            }
            return;
        }
        self.pump_lane(key, carrier, detectors, now);
    }

    /// Repeats what was not answered in time.
    pub(super) fn fire<L: Link>(
        &mut self,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        if self.next_due.is_none_or(|due| now < due) {
            return;
        }
        let due = |lane: &ImportLane| lane.due.is_some_and(|due| due <= now);
        let lanes = self.lanes.iter().filter(|(_, lane)| due(lane));
        let late: Vec<_> = lanes.map(|(key, _)| *key).collect();
        for key in late {
            self.repeat(key, carrier, detectors, now);
        }
        self.next_due = self.lanes.values().filter_map(|lane| lane.due).min();
    }

    fn repeat<L: Link>(
        &mut self,
        key: LaneKey,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let peer = self.mailboxes[key.0].peer;
        lane.due = None;
        // A suspected peer is asked again when it answers.
        if lane.reported_end.is_some() || !lane.machine.is_waiting() {
            return;
        }
        lane.interval = (lane.interval * 2).min(MAX_REPEAT);
        let silent = detectors[peer.0 as usize].suspected_since().is_some();
        if silent {
            return;
        }
        let progress = lane.machine.on_timer();
        if lane.machine.is_open() && !progress.rewound {
            carrier.send(peer, &lane.machine.probe(), &[]);
        }
        self.apply(key, progress, carrier, detectors, now);
    }

    /// Ends lanes to peers that were silent for too long.
    pub(super) fn tick<L: Link>(
        &mut self,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        self.absent_quota = ABSENT_PER_TICK;
        for index in 0..self.mailboxes.len() {
            let import = &self.mailboxes[index];
            let since = detectors[import.peer.0 as usize].suspected_since();
            let silent = since.map(|since| now.saturating_duration_since(since));
            let limit = import.unreachable_after;
            if silent.zip(limit).is_some_and(|(silent, limit)| silent >= limit) {
                for key in self.keys(|lane| lane.reported_end.is_none(), Some(index)) {
                    let import = &mut self.mailboxes[index];
                    if let Some(lane) = self.lanes.get_mut(&key) {
                        lane.reported_end = Some(LaneState::Unreachable);
                        import.relay.end(key.1, RemoteEnd::Unreachable);
                        import.relay.hold(key.1, true);
                        carrier.send(import.peer, &lane.machine.settled(), &[]);
                    }
                }
            }
            self.service(index, carrier, detectors);
        }
    }

    fn keys(&self, matches: impl Fn(&ImportLane) -> bool, import: Option<usize>) -> Vec<LaneKey> {
        let lanes = self
            .lanes
            .iter()
            .filter(|(key, lane)| import.is_none_or(|import| import == key.0) && matches(lane));
        lanes.map(|(key, _)| *key).collect()
    }

    /// Tells the senders to a peer that it does not answer.
    pub(super) fn on_suspicion(&mut self, peer: HostId) {
        for key in self.lanes.keys() {
            let import = &mut self.mailboxes[key.0];
            if import.peer == peer {
                import.relay.set_suspected(key.1, true);
                import.relay.hold(key.1, true);
            }
        }
    }

    /// Continues the lanes to a peer that answers again, or was restarted.
    pub(super) fn on_news<L: Link>(
        &mut self,
        peer: HostId,
        news: News,
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        for key in self.keys(|lane| lane.reported_end.is_none(), None) {
            let import = &mut self.mailboxes[key.0];
            if import.peer != peer {
                continue;
            }
            import.relay.set_suspected(key.1, false);
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            lane.interval = REPEAT;
            lane.due = None;
            let progress = if news.new_instance {
                lane.machine.on_restart()
            } else {
                let progress = lane.machine.on_timer();
                if lane.machine.is_open() && lane.machine.is_waiting() && !progress.rewound {
                    carrier.send(peer, &lane.machine.probe(), &[]);
                }
                progress
            };
            self.apply(key, progress, carrier, detectors, now);
        }
    }

    /// Prepares for sleep. Returns `false` if a sender has sent something or connected meanwhile.
    pub(super) fn arm(&mut self) -> bool {
        self.mailboxes.iter_mut().all(|import| {
            let sleeps = import.relay.arm() == Ok(true);
            // Arming may have accepted a sender, of which the descriptor then reports nothing.
            import.is_changed |= import.relay.lane_changes() != import.changes;
            sleeps && !import.is_changed
        })
    }

    /// Returns the state of each lane.
    pub(super) fn status(&mut self, config: &Config, detectors: &[Detector]) -> Vec<LaneStatus> {
        let mut all = Vec::new();
        for (key, lane) in &self.lanes {
            let import = &mut self.mailboxes[key.0];
            let Some(relayed) = import.relay.lane(key.1) else { continue };
            let acked = lane.machine.acknowledged();
            let silent = detectors[import.peer.0 as usize].suspected_since().is_some();
            all.push(LaneStatus {
                direction: LaneDirection::Import,
                mailbox: import.name.clone(),
                peer: config.peer(import.peer).name.clone(),
                lane: format!("{:032x}", lane.machine.lane()),
                pid: lane.pid,
                queued_bytes: relayed.read.max(lane.machine.sent()).saturating_sub(acked),
                in_doubt_bytes: lane.machine.sent().saturating_sub(acked),
                acked,
                state: match lane.reported_end {
                    Some(state) => state,
                    None if silent => LaneState::Suspected,
                    None if lane.machine.is_ending() => LaneState::Ending,
                    None if lane.machine.is_open() => LaneState::Open,
                    None => LaneState::Greeting,
                },
            });
        }
        all.sort_by(|one, other| (&one.mailbox, &one.lane).cmp(&(&other.mailbox, &other.lane)));
        all
    }
}

const EEXIST: i32 = 17;
const EPROTO: i32 = 71;
