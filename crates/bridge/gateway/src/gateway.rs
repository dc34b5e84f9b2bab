//! The gateway of one host: [`Gateway`].
//!
//! A gateway is one thread that sleeps in one epoll set. `import` is its half for mailboxes of the
//! peers: it binds a [`Relay`](tontine::mailbox::Relay) for each and reads local senders' lanes
//! ahead. `export` is its half for mailboxes of this host: it is a local
//! [`Sender`](tontine::mailbox::Sender) of each owner, so the kernel tells it of the owner's end.
//! `carrier` holds the link and what waits for space in it.

mod carrier;
mod export;
mod identity;
mod import;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use carrier::Carrier;
use export::Exports;
use import::Imports;

use crate::config::Config;
use crate::detector::{Detector, News};
use crate::frame::{FrameKind, Header};
use crate::link::{HostId, Link, LinkEvent};
use crate::status::{GatewayStatus, PeerState, PeerStatus};

/// Maximum number of link events handled per turn, and of bytes in their frames. The notice of an
/// owner's death waits for the end of a turn.
const EVENTS_PER_TURN: usize = 64;
const BYTES_PER_TURN: usize = 1 << 20;
/// Interval of the tasks that no descriptor and no timer of a lane announces.
const TICK: Duration = Duration::from_millis(100);

/// Tokens in the epoll set: a kind in the upper half, an index in the lower.
const WATCHED: u64 = 0;
const LINK: u64 = 1 << 32;
const IMPORT: u64 = 2 << 32;
const EXPORT: u64 = 3 << 32;

/// The gateway of one host.
///
/// # Examples
/// Two gateways in one process, connected in memory:
///
/// ```
/// use std::time::Duration;
/// use tontine::mailbox::{Mailbox, Sender};
/// use tontine_gateway::config::{Config, ExportConfig, ImportConfig, PeerConfig};
/// use tontine_gateway::gateway::Gateway;
/// use tontine_gateway::link::HostId;
/// use tontine_gateway::memory::{Faults, MemoryLink};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let (jobs, remote_jobs) = (folder.path().join("jobs"), folder.path().join("B-jobs"));
/// let peer = |name: &str| {
///     let name = name.into();
///     PeerConfig { name, connect: None, unreachable_after: None }
/// };
/// let mut a = Config::new("A");
/// a.peers.push(peer("B"));
/// a.imports.push(ImportConfig {
///     host: HostId(0),
///     name: "jobs".into(),
///     address: remote_jobs.clone().into(),
/// });
/// let mut b = Config::new("B");
/// b.peers.push(peer("A"));
/// b.exports.push(ExportConfig { name: "jobs".into(), address: jobs.clone().into() });
///
/// let (link_a, link_b, _) = MemoryLink::pair(Faults::default())?;
/// let mut a = Gateway::new(&a, link_a)?;
/// let mut b = Gateway::new(&b, link_b)?;
/// let mut mailbox = Mailbox::bind(&jobs)?;
/// let mut sender = Sender::connect(&remote_jobs)?;
/// sender.send(b"hello")?;
/// let message = loop {
///     a.turn(Some(Duration::ZERO))?;
///     b.turn(Some(Duration::ZERO))?;
///     if let Ok(message) = mailbox.try_recv() {
///         break message.to_vec();
///     }
/// };
/// assert_eq!(message, b"hello");
/// # Ok(())
/// # }
/// ```
pub struct Gateway<L: Link> {
    config: Config,
    carrier: Carrier<L>,
    detectors: Vec<Detector>,
    imports: Imports,
    exports: Exports,
    set: OwnedFd,
    /// Random number of this run.
    instance: u128,
    started: Instant,
    ticked: Instant,
}

/// The reason why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// An import cannot be bound.
    #[error("cannot bind the import {name}: {error}")]
    Import {
        /// Name of the mailbox.
        name: String,
        /// The error of the bind.
        #[source]
        error: tontine::Error,
    },
    /// A system call failed.
    #[error("cannot prepare the gateway: {0}")]
    System(#[source] io::Error),
}

impl<L: Link> Gateway<L> {
    /// Binds the imports. The gateway works only inside [`Gateway::turn`].
    ///
    /// # Errors
    /// [`GatewayError::Import`] if an import cannot be bound, in particular because its address has
    /// a live owner; [`GatewayError::System`] if descriptors or memory are short.
    pub fn new(config: &Config, link: L) -> Result<Self, GatewayError> {
        let system = |errno: rustix::io::Errno| GatewayError::System(errno.into());
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let imports = Imports::bind(config)?;
        let watch = |fd: BorrowedFd<'_>, token| {
            epoll::add(&set, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        };
        watch(link.descriptor(), LINK).map_err(system)?;
        for (index, descriptor) in imports.descriptors().enumerate() {
            watch(descriptor, IMPORT | index as u64).map_err(system)?;
        }
        let now = Instant::now();
        let boot = identity::boot_id().map_err(GatewayError::System)?;
        Ok(Self {
            detectors: vec![Detector::new(now); config.peers.len()],
            carrier: Carrier::new(link, config.peers.len()),
            exports: Exports::new(config, boot),
            config: config.clone(),
            imports,
            set,
            instance: identity::random(),
            started: now,
            ticked: now,
        })
    }

    /// Makes [`Gateway::turn`] return when the descriptor becomes readable.
    ///
    /// # Errors
    /// Returns the error of `epoll_ctl`.
    pub fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(WATCHED);
        Ok(epoll::add(&self.set, fd, data, epoll::EventFlags::IN)?)
    }

    /// Handles what has happened. If nothing has, sleeps until something does, at most for
    /// `timeout`.
    ///
    /// # Errors
    /// Returns the error of `epoll_wait`.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let now = Instant::now();
        let mut worked = self.read_link(now);
        self.detect(now);
        worked |= self.imports.pump(&mut self.carrier, &self.detectors, now);
        worked |= self.exports.poll();
        self.imports.fire(&mut self.carrier, &self.detectors, now);
        if now >= self.ticked + TICK {
            self.ticked = now;
            self.imports.tick(&mut self.carrier, &self.detectors, now);
            self.exports.tick(&self.detectors, &self.set, now);
        }
        self.exports.reply(&mut self.carrier);
        let sleeps = !worked && self.imports.arm() && self.exports.arm();
        let timeout = if sleeps { self.sleep_time(timeout, now) } else { Duration::ZERO };
        self.wait(timeout)?;
        self.exports.reply(&mut self.carrier);
        Ok(())
    }

    fn sleep_time(&self, timeout: Option<Duration>, now: Instant) -> Duration {
        let pings = self.detectors.iter().filter_map(Detector::next_ping);
        // Without lanes, a tick has nothing to do.
        let tick = self.exports.needs_tick().then_some(self.ticked + TICK);
        let next = pings.chain(self.imports.next_due()).chain(tick).min();
        let until = next.map_or(Duration::MAX, |next| next.saturating_duration_since(now));
        until.min(timeout.unwrap_or(Duration::MAX)).min(Duration::from_secs(3600))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let events = match epoll::wait(&self.set, &mut events, Some(&timeout)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for event in events {
            let token = event.data.u64();
            let index = token as u32 as usize;
            match token & !u64::from(u32::MAX) {
                IMPORT => self.imports.service(index, &mut self.carrier, &self.detectors),
                EXPORT => self.exports.service(index, &self.set),
                // The link is read first in each turn; a watched descriptor is the caller's.
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles what the link has received. Returns `true` if it may have more.
    fn read_link(&mut self, now: Instant) -> bool {
        let mut left = BYTES_PER_TURN;
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.carrier.link.poll() else { return false };
            match event {
                // What waits for space in a connection that ended goes to the next one, or is lost.
                LinkEvent::Up(host) | LinkEvent::Down(host) | LinkEvent::Writable(host) => {
                    self.carrier.flush(host);
                    let (carrier, detectors) = (&mut self.carrier, &self.detectors);
                    self.imports.on_space(host, carrier, detectors, now);
                }
                LinkEvent::Frame { from, bytes } => {
                    let Some(counters) = self.carrier.outboxes.get_mut(from.0 as usize) else {
                        continue;
                    };
                    let read = Header::read(bytes);
                    counters.count(&read);
                    let Ok((header, payload)) = read else { continue };
                    left = left.saturating_sub(bytes.len());
                    match header.kind {
                        FrameKind::Hello | FrameKind::Data | FrameKind::Bye => {
                            self.exports.on_frame(from, &header, payload, &self.set, now);
                        }
                        FrameKind::Status => {
                            self.detectors[from.0 as usize].on_answer(now);
                            let errno = payload.first_chunk().map_or(0, |b| i32::from_le_bytes(*b));
                            let (carrier, detectors) = (&mut self.carrier, &self.detectors);
                            self.imports.on_status(from, &header, errno, carrier, detectors, now);
                        }
                        FrameKind::Ping => {
                            let pong = Header { kind: FrameKind::Pong, ..self.identity(header.a) };
                            self.carrier.send(from, &pong, &[]);
                        }
                        FrameKind::Pong => {
                            let detector = &mut self.detectors[from.0 as usize];
                            let news = detector.on_pong(header.a, header.lane, now);
                            self.on_news(from, news, now);
                        }
                    }
                    if left == 0 {
                        break;
                    }
                }
            }
        }
        true
    }

    /// Returns a `PING` with this number.
    fn identity(&self, nonce: u64) -> Header {
        Header { a: nonce, ..Header::new(FrameKind::Ping, self.instance, 0) }
    }

    fn on_news(&mut self, from: HostId, news: News, now: Instant) {
        let (carrier, detectors) = (&mut self.carrier, &self.detectors);
        if news.new_instance {
            self.exports.on_restart(from, now);
        }
        if news.healed || news.new_instance {
            self.imports.on_news(from, news, carrier, detectors, now);
        }
    }

    /// Pings the peers, and notes those that do not answer.
    fn detect(&mut self, now: Instant) {
        for index in 0..self.detectors.len() {
            let host = HostId(index as u16);
            if let Some(nonce) = self.detectors[index].ping(now) {
                let ping = self.identity(nonce);
                let was_blocked = self.carrier.is_blocked(host);
                self.carrier.send(host, &ping, &[]);
                if was_blocked && !self.carrier.is_blocked(host) {
                    self.imports.on_space(host, &mut self.carrier, &self.detectors, now);
                }
            }
            if self.detectors[index].suspects(now) {
                self.imports.on_suspicion(host);
            }
        }
    }

    /// Returns the state of the gateway.
    pub fn status(&mut self) -> GatewayStatus {
        let now = Instant::now();
        let millis = |since: Instant| now.saturating_duration_since(since).as_millis() as u64;
        let peers = self.config.peers.iter().zip(&self.detectors).zip(&self.carrier.outboxes);
        let peers = peers.map(|((peer, detector), outbox)| PeerStatus {
            name: peer.name.clone(),
            state: match detector.suspected_since() {
                _ if !detector.was_seen() => PeerState::NeverSeen,
                None => PeerState::Connected,
                Some(_) => PeerState::Suspected,
            },
            rtt_us: detector.round_trip().map(|time| time.as_micros() as u64),
            suspected_for_ms: detector.suspected_since().map(millis),
            frames_sent: outbox.sent,
            frames_received: outbox.received,
            faults: outbox.faults,
        });
        let peers: Vec<PeerStatus> = peers.collect();
        let mut lanes = self.exports.status(&self.config);
        lanes.extend(self.imports.status(&self.config, &self.detectors));
        GatewayStatus {
            name: self.config.name.clone(),
            realm: self.config.realm.clone(),
            carrier: self.carrier.link.carrier().into(),
            instance: format!("{:032x}", self.instance),
            pid: std::process::id(),
            uptime_ms: millis(self.started),
            peers,
            lanes,
        }
    }
}

/// The descriptor becomes readable when [`Gateway::turn`] has something to do, but not when a timer
/// is due: call `turn` at least every 100 ms.
impl<L: Link> AsFd for Gateway<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
