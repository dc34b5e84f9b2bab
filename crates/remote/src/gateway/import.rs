//! The half of a gateway for mailboxes of the peers: [`Imports`].
//!
//! Each import is a [`Relay`]: local senders' messages stay in their lanes until the remote owner
//! has acknowledged them, so a gateway that is killed loses nothing.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tontine::mailbox::{OnDeath, Options, Relay, RelayLane, RemoteEnd, SenderId};

use super::GatewayError;
use super::carrier::Carrier;
use crate::config::Config;
use crate::detector::{Detector, News};
use crate::frame::{self, Header, MAX_PAYLOAD};
use crate::link::{HostId, Link};
use crate::outgoing::{FrameFiller, LaneEnd, LaneProgress, OutgoingLane};
use crate::status::{LaneDirection, LaneState, LaneStatus};

/// Time after which a lane repeats what was not answered; doubled up to [`MAX_REPEAT`].
const REPEAT: Duration = Duration::from_millis(200);
const MAX_REPEAT: Duration = Duration::from_secs(2);
/// Maximum number of frames per lane and turn.
const FRAMES_A_TURN: usize = 16;
/// Maximum number of records that one call of [`Relay::read_ahead`] passes.
const READ_AT_ONCE: usize = 1024;

/// The lanes of local senders to mailboxes of the peers.
pub(super) struct Imports {
    mailboxes: Vec<Import>,
    lanes: HashMap<(usize, SenderId), ImportLane>,
    ready: Vec<SenderId>,
    /// Lanes that are held because the link had no space.
    blocked: Vec<(usize, SenderId)>,
    next_due: Option<Instant>,
}

struct Import {
    relay: Relay,
    peer: HostId,
    name: String,
    unreachable_after: Option<Duration>,
    /// Lanes by the number that the sender gave them.
    numbers: HashMap<u128, SenderId>,
}

struct ImportLane {
    machine: OutgoingLane,
    pid: Option<u32>,
    /// End of the last record that was read.
    last_end: u64,
    due: Option<Instant>,
    interval: Duration,
    /// The lane is in [`Imports::blocked`].
    is_blocked: bool,
    /// The end that the sender was told.
    told: Option<LaneState>,
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
                numbers: HashMap::new(),
            })
        };
        Ok(Self {
            mailboxes: config.imports.iter().map(bind).collect::<Result<_, _>>()?,
            lanes: HashMap::new(),
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
        if let Err(error) = import.relay.service() {
            tracing::warn!("the import {} cannot be serviced: {error}", import.name);
        }
        for error in import.relay.take_errors() {
            tracing::warn!("a sender to {}: {error}", import.name);
        }
        let lanes = import.relay.lanes();
        let known = |lane: &RelayLane| self.lanes.contains_key(&(index, lane.sender));
        let new: Vec<RelayLane> = lanes.iter().filter(|lane| !known(lane)).copied().collect();
        for lane in new {
            self.add(index, lane, carrier, detectors);
        }
        let found: HashMap<SenderId, bool> =
            lanes.iter().map(|lane| (lane.sender, lane.ended)).collect();
        let gone = |key: &(usize, SenderId), lane: &ImportLane| {
            found.get(&key.1).is_none_or(|ended| *ended && lane.told.is_some())
        };
        let of_import = self.lanes.iter().filter(|(key, _)| key.0 == index);
        let over: Vec<_> =
            of_import.filter(|(key, lane)| gone(key, lane)).map(|(key, _)| *key).collect();
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
        if import.numbers.contains_key(&lane.lane) {
            if lane.ended {
                return import.relay.remove(lane.sender);
            }
            import.relay.end(lane.sender, RemoteEnd::Refused { errno: EEXIST });
            import.relay.hold(lane.sender, true);
            return;
        }
        import.numbers.insert(lane.lane, lane.sender);
        let longest = lane.max_message_len as u64;
        let machine = OutgoingLane::new(lane.lane, lane.acked, waits, 0, longest);
        tracing::debug!("lane {:032x} to {} begins", lane.lane, import.name);
        import.relay.set_suspected(
            lane.sender,
            detectors[import.peer.0 as usize].suspected_since().is_some(),
        );
        let key = (index, lane.sender);
        let added = ImportLane {
            machine,
            pid: lane.peer.pid,
            last_end: lane.acked,
            due: None,
            interval: REPEAT,
            is_blocked: false,
            told: None,
        };
        self.lanes.insert(key, added);
        let greet = LaneProgress { greet: true, ..LaneProgress::default() };
        self.apply(key, greet, carrier, detectors, Instant::now());
    }

    fn forget<L: Link>(&mut self, key: (usize, SenderId), carrier: &mut Carrier<L>) {
        let Some(lane) = self.lanes.remove(&key) else { return };
        let import = &mut self.mailboxes[key.0];
        import.relay.remove(key.1);
        import.numbers.remove(&lane.machine.lane());
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
        key: (usize, SenderId),
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) -> bool {
        let import = &mut self.mailboxes[key.0];
        let Some(lane) = self.lanes.get_mut(&key) else {
            // The next service adds the lane.
            return false;
        };
        let peer = import.peer;
        let silent = detectors[peer.0 as usize].suspected_since().is_some();
        let mut frames = 0;
        while frames < FRAMES_A_TURN && !silent && !carrier.is_blocked(peer) {
            if lane.machine.window().is_none() || !fill(import, key.1, lane, &mut carrier.frame) {
                break;
            }
            carrier.send_built(peer);
            frames += 1;
        }
        let drained = import.relay.lane(key.1).is_some_and(|lane| lane.drained);
        let mut progress = LaneProgress::default();
        if drained && lane.told.is_none() && !lane.machine.is_ending() {
            progress = lane.machine.end_at(lane.last_end.max(lane.machine.acknowledged()));
        }
        let blocked = silent || carrier.is_blocked(peer) || lane.machine.window().is_none();
        import.relay.hold(key.1, blocked || drained || lane.told.is_some());
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
        let of_peer = |import: &Import| import.peer == from;
        let found = self.mailboxes.iter().enumerate().filter(|(_, import)| of_peer(import));
        let mut key = found.filter_map(|(index, import)| {
            import.numbers.get(&status.lane).map(|sender| (index, *sender))
        });
        let Some(key) = key.next_back() else { return };
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        if lane.told.is_some() {
            let ends = frame::OWNER_DIED | frame::CLOSED | frame::REFUSED;
            if status.flags & ends != 0 {
                carrier.send(from, &lane.machine.settled(), &[]);
            }
            return;
        }
        match lane.machine.on_status(status, errno) {
            Ok(progress) => {
                if !lane.machine.is_unanswered() {
                    lane.interval = REPEAT;
                }
                lane.due = None;
                self.apply(key, progress, carrier, detectors, now);
            }
            Err(violation) => self.refuse(key, violation.0, carrier),
        }
    }

    /// Ends a lane because the other gateway violates the protocol.
    fn refuse<L: Link>(&mut self, key: (usize, SenderId), what: &str, carrier: &mut Carrier<L>) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let import = &mut self.mailboxes[key.0];
        tracing::warn!("a lane to {} was closed: {what}", import.name);
        lane.told = Some(LaneState::Protocol);
        import.relay.end(key.1, RemoteEnd::Refused { errno: EPROTO });
        import.relay.hold(key.1, true);
        carrier.send(import.peer, &lane.machine.settled(), &[]);
    }

    /// Does what a status or a timer asks for, then sends what the lane may send.
    fn apply<L: Link>(
        &mut self,
        key: (usize, SenderId),
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
            lane.told = progress.end.map(state_of);
            tracing::info!("a lane to {} ended: {:?}", import.name, end);
            relay.end(sender, end);
            carrier.send(import.peer, &lane.machine.settled(), &[]);
            relay.hold(sender, true);
            // A sender that has ended hears nothing.
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
        key: (usize, SenderId),
        carrier: &mut Carrier<L>,
        detectors: &[Detector],
        now: Instant,
    ) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let peer = self.mailboxes[key.0].peer;
        lane.due = None;
        // A suspected peer is asked again when it answers.
        if lane.told.is_some() || !lane.machine.is_waiting() {
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
        for index in 0..self.mailboxes.len() {
            let import = &self.mailboxes[index];
            let since = detectors[import.peer.0 as usize].suspected_since();
            let silent = since.map(|since| now.saturating_duration_since(since));
            let limit = import.unreachable_after;
            if silent.zip(limit).is_some_and(|(silent, limit)| silent >= limit) {
                for key in self.keys(|lane| lane.told.is_none(), Some(index)) {
                    let import = &mut self.mailboxes[index];
                    if let Some(lane) = self.lanes.get_mut(&key) {
                        lane.told = Some(LaneState::Unreachable);
                        import.relay.end(key.1, RemoteEnd::Unreachable);
                        import.relay.hold(key.1, true);
                        carrier.send(import.peer, &lane.machine.settled(), &[]);
                    }
                }
            }
            self.service(index, carrier, detectors);
        }
    }

    fn keys(
        &self,
        matches: impl Fn(&ImportLane) -> bool,
        import: Option<usize>,
    ) -> Vec<(usize, SenderId)> {
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
        for key in self.keys(|lane| lane.told.is_none(), None) {
            let import = &mut self.mailboxes[key.0];
            if import.peer != peer {
                continue;
            }
            import.relay.set_suspected(key.1, false);
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            lane.interval = REPEAT;
            lane.due = None;
            let progress = if news.new_boot {
                lane.machine.on_reboot()
            } else if news.new_instance {
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

    /// Prepares for sleep. Returns `false` if a sender has sent something meanwhile.
    pub(super) fn arm(&mut self) -> bool {
        self.mailboxes.iter_mut().all(|import| import.relay.arm() == Ok(true))
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
                queued_bytes: relayed.read.saturating_sub(acked),
                in_doubt_bytes: lane.machine.sent().saturating_sub(acked),
                acked,
                state: match lane.told {
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

/// Builds the lane's next frame. Returns `false` if there is nothing to send.
fn fill(import: &mut Import, sender: SenderId, lane: &mut ImportLane, frame: &mut Vec<u8>) -> bool {
    let mut filler = FrameFiller::new(&lane.machine, frame);
    let mut last_end = lane.last_end;
    loop {
        let read = import.relay.read_ahead(sender, |record| {
            let copy = |range, into: &mut Vec<u8>| record.append_to(range, into);
            let whole = filler.offer(record.position(), record.end(), record.len(), copy);
            if whole {
                last_end = last_end.max(record.end());
            }
            whole
        });
        match read {
            Ok(READ_AT_ONCE) => {}
            Ok(_) => break,
            Err(error) => {
                tracing::warn!("a lane to {} cannot be read: {error}", import.name);
                break;
            }
        }
    }
    lane.last_end = last_end;
    let Some(position) = filler.finish() else { return false };
    // Stored before the frame leaves: what a sender counts as unsent was never sent.
    import.relay.mark_sent(sender, position);
    lane.machine.on_sent(position);
    true
}

/// Reads a lane up to `position`: an earlier gateway of this host has sent what lies before.
fn read_up_to(relay: &mut Relay, sender: SenderId, position: u64) {
    while relay.lane(sender).is_some_and(|lane| lane.read < position) {
        let read = relay.read_ahead(sender, |record| record.end() <= position);
        if read != Ok(READ_AT_ONCE) {
            return;
        }
    }
}

const _: () = assert!(MAX_PAYLOAD >= 16);
const EEXIST: i32 = 17;
const EPROTO: i32 = 71;
