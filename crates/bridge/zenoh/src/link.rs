//! The carrier over Zenoh: [`ZenohLink`].

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tontine_gateway::link::{HostId, Link, LinkEvent, Queued};
use zenoh::liveliness::LivelinessToken;
use zenoh::qos::CongestionControl;
use zenoh::sample::{Sample, SampleKind};
use zenoh::{Session, Wait};

use crate::peer_sender::{PeerSender, SendQueue, join_within};
use crate::receive_queues::{ReceiveEvent, ReceiveQueues, ReceivedFrame};
use crate::settings::{config, frame_key, prefix, token_key};
use crate::{ZenohError, ZenohOptions};

/// Maximum wait until the session has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between two attempts to open a client's session, and between two checks of an open one.
const RETRY: Duration = Duration::from_millis(500);

/// Time without a peer after which a client's session is replaced. Zenoh connects again itself; yet
/// in about one of twenty partitions of a second, its session (Zenoh 1.10) is connected afterwards
/// and receives nothing: neither tokens nor frames that the router sends.
const REPLACE_AFTER: Duration = Duration::from_secs(5);

/// A carrier of frames over Zenoh.
///
/// Frames between two hosts have a key for each direction. `from` of a received frame is the host
/// that its key names; with certificates, the access control of Zenoh lets a host use only the keys
/// with its own name.
///
/// `Up` and `Down` come from tokens of the gateways (Zenoh's liveliness). They are hints: a router
/// that is killed ends the tokens of hosts that are alive.
pub struct ZenohLink {
    senders: Vec<PeerSender>,
    received: Arc<ReceiveQueues>,
    /// The frame of the last event.
    current: Option<ReceivedFrame>,
    /// The thread that has the session.
    keeper: Option<JoinHandle<()>>,
}

/// Frames that a link dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarrierCounts {
    /// Received frames whose key names an unknown host.
    pub strangers: u64,
    /// Received frames that are longer than any gateway sends.
    pub oversized: u64,
    /// Received frames that the gateway did not take in time.
    pub overflowed: u64,
    /// Frames that were not sent, because their peer had gone.
    pub discarded: u64,
}

/// A session and the token that says so.
struct OpenSession {
    session: Session,
    _token: LivelinessToken,
}

impl OpenSession {
    fn close(&self) {
        let _ = self.session.close().wait();
    }
}

/// The purpose for which a session is opened.
struct Opening {
    realm: String,
    keys: Arc<KeyReader>,
    received: Arc<ReceiveQueues>,
    queues: Vec<Arc<SendQueue>>,
}

/// Maps keys to peers, in Zenoh's threads.
struct KeyReader {
    prefix: String,
    name: String,
    peers: Vec<String>,
}

impl ZenohLink {
    /// Opens a session, without waiting for peers or routers. A peer or router that cannot be
    /// reached is not an error; Zenoh tries again.
    pub fn open(options: &ZenohOptions) -> Result<Self, ZenohError> {
        let config = config(options)?;
        let received =
            Arc::new(ReceiveQueues::new(options.peers.len()).map_err(ZenohError::System)?);
        let starts = (0..options.peers.len()).map(|peer| PeerSender::start(peer, received.clone()));
        let senders: Result<Vec<PeerSender>, _> = starts.collect();
        let mut link = Self {
            senders: senders.map_err(ZenohError::System)?,
            received,
            current: None,
            keeper: None,
        };
        let keys = KeyReader {
            prefix: prefix(&options.realm),
            name: options.name.clone(),
            peers: options.peers.clone(),
        };
        let opening = Opening {
            realm: options.realm.clone(),
            keys: Arc::new(keys),
            received: link.received.clone(),
            queues: link.senders.iter().map(|sender| sender.queue().clone()).collect(),
        };
        // A client's session opens only when a router has answered.
        let is_client = !options.routers.is_empty();
        let session = if is_client { None } else { Some(opening.open(config.clone())?) };
        let keeper = std::thread::Builder::new().name("session".into());
        let keep = move || opening.keep(&config, session, is_client);
        link.keeper = Some(keeper.spawn(keep).map_err(ZenohError::System)?);
        Ok(link)
    }

    /// Returns the numbers of frames that were dropped.
    pub fn counts(&self) -> CarrierCounts {
        let dropped = self.received.counts();
        CarrierCounts {
            strangers: dropped.strangers,
            oversized: dropped.oversized,
            overflowed: dropped.overflowed,
            discarded: self.senders.iter().map(|sender| sender.queue().discarded()).sum(),
        }
    }
}

impl Link for ZenohLink {
    fn try_send(&mut self, to: HostId, frame: &mut Vec<u8>) -> Queued {
        match self.senders.get(usize::from(to.0)) {
            Some(sender) => sender.queue().try_send(frame),
            None => Queued::Down,
        }
    }

    fn poll(&mut self) -> Option<LinkEvent<'_>> {
        let (peer, event) = self.received.next(self.current.take())?;
        let host = HostId(peer as u16);
        Some(match event {
            ReceiveEvent::Up => LinkEvent::Up(host),
            ReceiveEvent::Down => LinkEvent::Down(host),
            ReceiveEvent::Writable => LinkEvent::Writable(host),
            ReceiveEvent::Frame(frame) => {
                LinkEvent::Frame { from: host, bytes: self.current.insert(frame).bytes() }
            }
        })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.received.descriptor()
    }

    fn carrier(&self) -> &'static str {
        "zenoh"
    }
}

impl Drop for ZenohLink {
    fn drop(&mut self) {
        self.received.close();
        self.senders.iter().for_each(PeerSender::close);
        self.senders.iter_mut().for_each(PeerSender::join);
        if let Some(keeper) = self.keeper.take() {
            join_within(keeper, CLOSE_TIMEOUT);
        }
    }
}

impl std::fmt::Debug for ZenohLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZenohLink").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Opening {
    /// Opens the session, replaces a client's that sees no peer, and closes it with the link.
    fn keep(&self, config: &zenoh::Config, mut session: Option<OpenSession>, is_client: bool) {
        let mut seen = Instant::now();
        while !self.received.is_closing() {
            if session.is_none() {
                session = self.open(config.clone()).ok();
                seen = Instant::now();
            } else if !is_client || self.received.is_any_up() {
                seen = Instant::now();
            } else if seen.elapsed() > REPLACE_AFTER {
                session.take().inspect(OpenSession::close);
                continue;
            }
            self.received.sleep(RETRY);
        }
        session.iter().for_each(OpenSession::close);
    }

    fn open(&self, config: zenoh::Config) -> Result<OpenSession, ZenohError> {
        let refused = |error| ZenohError::Zenoh(format!("{error}"));
        let (realm, name) = (&self.realm, &self.keys.name);
        let session = zenoh::open(config).wait().map_err(refused)?;
        let declare = |peer: &String| {
            let publisher = session.declare_publisher(frame_key(realm, name, peer));
            publisher.congestion_control(CongestionControl::Block).express(true).wait()
        };
        let publishers: Result<Vec<_>, _> = self.keys.peers.iter().map(declare).collect();
        let publishers = publishers.map_err(refused)?;
        // The subscriber comes before the token, so that a peer which sees the token is heard.
        let (keys, received) = (self.keys.clone(), self.received.clone());
        let receive = move |sample: Sample| match keys.sender(sample.key_expr().as_str()) {
            Some(peer) => received.receive(peer, sample.payload()),
            None => received.count_stranger(),
        };
        let subscriber = session.declare_subscriber(frame_key(realm, "*", name));
        subscriber.callback(receive).background().wait().map_err(refused)?;
        let token = token_key(realm, name, &session.zid().to_string());
        let token = session.liveliness().declare_token(token).wait().map_err(refused)?;
        let (keys, received) = (self.keys.clone(), self.received.clone());
        let watch = move |sample: Sample| {
            let Some((peer, instance)) = keys.token(sample.key_expr().as_str()) else { return };
            match sample.kind() {
                SampleKind::Put => received.add_token(peer, instance),
                SampleKind::Delete => received.remove_token(peer, instance),
            }
        };
        let tokens = session.liveliness().declare_subscriber(token_key(realm, "*", "*"));
        tokens.history(true).callback(watch).background().wait().map_err(refused)?;
        for (publisher, queue) in publishers.into_iter().zip(&self.queues) {
            queue.set_publisher(publisher);
        }
        Ok(OpenSession { session, _token: token })
    }
}

impl KeyReader {
    /// Returns the peer that sends frames under this key to this host.
    fn sender(&self, key: &str) -> Option<usize> {
        let (from, to) = self.after_prefix(key)?.split_once('/')?;
        if to == self.name { self.peer(from) } else { None }
    }

    /// Returns the peer and the instance of a gateway's token.
    fn token<'a>(&self, key: &'a str) -> Option<(usize, &'a str)> {
        let (name, instance) = self.after_prefix(key)?.split_once("/up/")?;
        Some((self.peer(name)?, instance))
    }

    fn after_prefix<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.prefix)?.strip_prefix('/')
    }

    fn peer(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_known_sender_and_this_receiver() {
        let peers = vec!["a".into(), "b".into()];
        let keys = KeyReader { prefix: prefix("plant"), name: "c".into(), peers };
        assert_eq!(keys.sender("tontine/1/plant/b/c"), Some(1));
        for key in ["tontine/1/plant/d/c", "tontine/1/plant/b/a", "tontine/1/plan/b/c", "", "b/c"] {
            assert_eq!(keys.sender(key), None, "{key}");
        }
        assert_eq!(keys.token(&token_key("plant", "a", "5f")), Some((0, "5f")));
        assert_eq!(keys.token("tontine/1/plant/d/up/5f"), None);
        assert_eq!(keys.token("tontine/1/plant/a/c"), None);
    }
}
