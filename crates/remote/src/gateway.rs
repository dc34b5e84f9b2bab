//! A stand-in for the gateway: [`Gateway`].

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::config::Config;
use crate::link::Link;
use crate::status::{GatewayStatus, PeerState, PeerStatus};

pub struct Gateway<L: Link> {
    config: Config,
    _link: L,
    set: OwnedFd,
    started: Instant,
}

#[derive(Debug)]
pub struct GatewayError(tontine::Error);

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<L: Link> Gateway<L> {
    pub fn new(config: &Config, link: L) -> Result<Self, GatewayError> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        Ok(Self { config: config.clone(), _link: link, set, started: Instant::now() })
    }

    pub fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let event = epoll::EventData::new_u64(0);
        epoll::add(&self.set, fd, event, epoll::EventFlags::IN)?;
        Ok(())
    }

    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).expect("short"));
        let mut events = Vec::with_capacity(8);
        match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), timeout.as_ref())
        {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub fn status(&mut self) -> GatewayStatus {
        let peer = |peer: &crate::config::PeerConfig| PeerStatus {
            name: peer.name.clone(),
            state: PeerState::NeverSeen,
            rtt_us: None,
            suspected_for_ms: None,
            frames_sent: 0,
            frames_received: 0,
            faults: 0,
        };
        GatewayStatus {
            name: self.config.name.clone(),
            realm: self.config.realm.clone(),
            carrier: "none".into(),
            instance: "0".into(),
            pid: std::process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            peers: self.config.peers.iter().map(peer).collect(),
            lanes: Vec::new(),
        }
    }
}
