//! A carrier over TCP: [`TcpLink`]. It neither encrypts nor authenticates: for one machine, and for
//! two hosts on a cable that is trusted.
//!
//! Each connection begins with one line, `tontine/1 REALM FROM TO\n`, from both ends. Frames
//! follow. A frame names its length, so a damaged one ends the connection, and the dialling end
//! connects again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::frame::{HEADER, MAX_FRAME, VERSION};
use crate::link::{HostId, Link, LinkEvent, Queued};

/// Interval between two attempts to connect.
const REDIAL: Duration = Duration::from_millis(250);
/// Maximum number of bytes that wait for space in a socket.
const MAX_QUEUED: usize = 1 << 20;
/// Bytes of a connection's receive buffer.
const BUFFER: usize = 8 * MAX_FRAME;
/// Maximum number of bytes in the first line.
const MAX_GREETING: usize = 512;
/// Maximum number of characters of a wrong first line that are logged.
const MAX_LOGGED: usize = 80;
/// Milliseconds after which a connection ends whose bytes are not acknowledged. Otherwise the
/// kernel would repeat them less and less often, and notice the end of a long cut late.
const USER_TIMEOUT_MS: u32 = 5_000;
/// Maximum number of connections that have not sent their first line.
const MAX_STRANGERS: usize = 64;
/// Maximum time for the first line.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

const LISTENER: u64 = 1 << 32;
const TIMER: u64 = 2 << 32;

/// Settings of a [`TcpLink`].
#[derive(Debug, Clone)]
pub struct TcpOptions {
    /// Name of this host.
    pub name: String,
    /// Name of the realm, the same on all hosts.
    pub realm: String,
    /// Name of each peer, in the order of their [`HostId`]s, and the address to dial.
    pub peers: Vec<(String, Option<SocketAddr>)>,
    /// Addresses to listen at.
    pub listen: Vec<SocketAddr>,
    /// Allow addresses beyond loopback.
    pub plaintext: bool,
}

struct TcpConnection {
    socket: TcpStream,
    /// `None` until the peer's first line has arrived.
    host: Option<HostId>,
    began: Instant,
    /// This gateway dialled, and the peer's first line has not arrived.
    connecting: bool,
    /// The peer dialled.
    accepted: bool,
    buffer: Box<[u8]>,
    /// The part of `buffer` that was received and not returned yet.
    received: Range<usize>,
    queued: VecDeque<u8>,
    refused: bool,
    polled_out: bool,
}

/// The gateway's connections over TCP.
pub struct TcpLink {
    options: TcpOptions,
    set: OwnedFd,
    timer: OwnedFd,
    listeners: Vec<TcpListener>,
    /// `true` while descriptors are short: the listeners rest until the next tick of the timer.
    pauses: bool,
    connections: Vec<Option<TcpConnection>>,
    /// The connection to which frames for each peer go.
    routes: Vec<Option<usize>>,
    ready: VecDeque<(usize, epoll::EventFlags)>,
    /// The connection whose received bytes may contain another frame.
    reading: Option<usize>,
    events: VecDeque<(HostId, LinkChange)>,
    /// A shortage was logged, and no connection was accepted since.
    warned: bool,
}

#[derive(Debug, Clone, Copy)]
enum LinkChange {
    Up,
    Down,
    Writable,
}

/// Returns an error for an address beyond loopback.
fn check_address(address: SocketAddr, plaintext: bool) -> io::Result<()> {
    if plaintext || address.ip().is_loopback() {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "{address} is beyond loopback, and the carrier tcp neither encrypts nor authenticates; \
             use --carrier zenoh with certificates, or --plaintext on a trusted cable"
        ),
    ))
}

impl TcpLink {
    /// Listens and begins to dial. A peer that cannot be reached is dialled again and again.
    ///
    /// # Errors
    /// Returns an error that names the address if an address is beyond loopback and `plaintext` is
    /// not set, or if this process cannot listen at it.
    pub fn new(options: &TcpOptions) -> io::Result<Self> {
        let dialled = options.peers.iter().filter_map(|peer| peer.1);
        for address in options.listen.iter().copied().chain(dialled) {
            check_address(address, options.plaintext)?;
        }
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&set, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
        let every = Timespec::try_from(REDIAL).map_err(io::Error::other)?;
        let spec = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
        let mut listeners = Vec::new();
        for (index, address) in options.listen.iter().enumerate() {
            let cannot = |error: io::Error| {
                io::Error::new(error.kind(), format!("cannot listen at {address}: {error}"))
            };
            let listener = TcpListener::bind(address).map_err(cannot)?;
            listener.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(LISTENER | index as u64);
            epoll::add(&set, &listener, data, epoll::EventFlags::IN)?;
            listeners.push(listener);
        }
        let mut link = Self {
            routes: vec![None; options.peers.len()],
            options: options.clone(),
            set,
            timer,
            listeners,
            pauses: false,
            connections: Vec::new(),
            ready: VecDeque::new(),
            reading: None,
            events: VecDeque::new(),
            warned: false,
        };
        link.dial();
        Ok(link)
    }

    /// Returns the addresses at which the link listens.
    ///
    /// # Errors
    /// Returns the error of `getsockname`.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    fn dial(&mut self) {
        for index in 0..self.options.peers.len() {
            let Some(address) = self.options.peers[index].1 else { continue };
            let host = HostId(index as u16);
            let dialling = |connection: &TcpConnection| connection.host == Some(host);
            if self.connections.iter().flatten().any(dialling) {
                continue;
            }
            // A failure is repeated after the interval.
            if let Ok(socket) = connect(address) {
                self.add(socket, Some(host), true);
            }
        }
    }

    fn add(&mut self, socket: TcpStream, host: Option<HostId>, connecting: bool) {
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or(self.connections.len());
        let data = epoll::EventData::new_u64(index as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        let prepared = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&socket, USER_TIMEOUT_MS);
        if prepared.is_err() || epoll::add(&self.set, &socket, data, flags).is_err() {
            return;
        }
        let connection = TcpConnection {
            socket,
            host,
            began: Instant::now(),
            connecting,
            accepted: host.is_none(),
            buffer: vec![0; BUFFER].into(),
            received: 0..0,
            queued: VecDeque::new(),
            refused: false,
            polled_out: true,
        };
        match free {
            Some(index) => self.connections[index] = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        if let Some(host) = host {
            self.greet(index, host);
        }
    }

    /// Queues the first line.
    fn greet(&mut self, index: usize, to: HostId) {
        let (realm, name) = (&self.options.realm, &self.options.name);
        let line = format!("tontine/1 {realm} {name} {}\n", self.options.peers[to.0 as usize].0);
        if let Some(connection) = &mut self.connections[index] {
            connection.queued.extend(line.as_bytes());
        }
    }

    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections[index].take() else { return };
        if self.reading == Some(index) {
            self.reading = None;
        }
        let Some(host) = connection.host else { return };
        if self.routes[host.0 as usize] == Some(index) {
            let other = |other: &Option<TcpConnection>| {
                other.as_ref().is_some_and(|other| other.host == Some(host) && !other.connecting)
            };
            self.routes[host.0 as usize] = self.connections.iter().position(other);
            self.events.push_back((host, LinkChange::Down));
        }
    }

    /// Handles an event of the kernel. Returns `false` if it has none.
    fn take_event(&mut self) -> bool {
        if self.ready.is_empty() {
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 32];
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let Ok((events, _)) = epoll::wait(&self.set, &mut events, Some(&zero)) else {
                return false;
            };
            let events = events.iter().map(|event| (event.data.u64() as usize, event.flags));
            self.ready.extend(events);
        }
        let Some((source, flags)) = self.ready.pop_front() else { return false };
        match source as u64 {
            TIMER => {
                let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                self.dial();
                self.expire();
                if std::mem::take(&mut self.pauses) {
                    self.listen(epoll::EventFlags::IN);
                }
            }
            listener if listener >= LISTENER => self.accept((listener - LISTENER) as usize),
            _ => self.serve(source, flags),
        }
        true
    }

    fn accept(&mut self, listener: usize) {
        let socket = match self.listeners[listener].accept() {
            Ok((socket, _)) => socket,
            Err(error) => {
                // The kernel would report a connection that cannot be accepted again and again.
                let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                if lacks.iter().any(|lack| error.raw_os_error() == Some(lack.raw_os_error())) {
                    self.pauses = true;
                    self.listen(epoll::EventFlags::empty());
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::warn!(
                            "a connection has to wait: {error}; raise the limit of descriptors \
                             (LimitNOFILE)"
                        );
                    }
                }
                return;
            }
        };
        self.warned = false;
        self.expire();
        // A gateway sends its first line at once, so the oldest connection without one is closed.
        let strangers = self.connections.iter().enumerate().filter_map(|(index, connection)| {
            let stranger = connection.as_ref().filter(|connection| connection.host.is_none())?;
            Some((stranger.began, index))
        });
        let strangers: Vec<(Instant, usize)> = strangers.collect();
        if strangers.len() >= MAX_STRANGERS
            && let Some((_, oldest)) = strangers.into_iter().min()
        {
            self.close(oldest);
        }
        self.add(socket, None, false);
    }

    /// Changes what the kernel reports about the listeners.
    fn listen(&mut self, flags: epoll::EventFlags) {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(LISTENER | index as u64);
            let _ = epoll::modify(&self.set, listener, data, flags);
        }
    }

    /// Closes connections whose first line has not arrived in time.
    fn expire(&mut self) {
        for index in 0..self.connections.len() {
            let late = |connection: &TcpConnection| {
                (connection.host.is_none() || connection.connecting)
                    && connection.began.elapsed() > GREETING_TIMEOUT
            };
            if self.connections[index].as_ref().is_some_and(late) {
                self.close(index);
            }
        }
    }

    fn serve(&mut self, index: usize, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) && self.flush(index).is_err() {
            return self.close(index);
        }
        let readable = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(readable) && self.receive(index).is_err() {
            self.close(index);
        }
    }

    fn flush(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        while !connection.queued.is_empty() {
            match connection.socket.write(connection.queued.as_slices().0) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => drop(connection.queued.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let wanted = !connection.queued.is_empty();
        if wanted != connection.polled_out {
            connection.polled_out = wanted;
            let out = if wanted { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.set, &connection.socket, data, epoll::EventFlags::IN | out)?;
        }
        if connection.refused && connection.queued.len() < MAX_QUEUED / 2 {
            connection.refused = false;
            if let Some(host) = connection.host {
                self.events.push_back((host, LinkChange::Writable));
            }
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        // At most a part of one frame is left.
        connection.buffer.copy_within(connection.received.clone(), 0);
        connection.received = 0..connection.received.len();
        match connection.socket.read(&mut connection.buffer[connection.received.end..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => connection.received.end += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        if connection.host.is_none() || connection.connecting {
            self.meet(index)?;
        }
        self.reading = Some(index);
        Ok(())
    }

    /// Checks the first line of a connection.
    fn meet(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        let received = &connection.buffer[connection.received.clone()];
        let head = &received[..received.len().min(MAX_GREETING)];
        let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
            let long = head.len() == MAX_GREETING;
            return if long { Err(ErrorKind::InvalidData.into()) } else { Ok(()) };
        };
        let line = String::from_utf8_lossy(&received[..end]).into_owned();
        let mut words = line.split(' ');
        let (realm, name) = (&self.options.realm, &self.options.name);
        let own = words.next() == Some("tontine/1") && words.next() == Some(realm);
        let from = words.next().unwrap_or_default();
        let host = self.options.peers.iter().position(|peer| peer.0 == from);
        let host = host.filter(|_| own && words.next() == Some(name)).map(|at| HostId(at as u16));
        let expected = connection.host.or(host);
        let Some(host) = host.filter(|host| Some(*host) == expected) else {
            let found: String = line.chars().take(MAX_LOGGED).collect();
            tracing::warn!(
                "a connection was closed: expected a gateway that is configured here, of realm \
                 {realm}, which calls this host {name}; found {found:?}"
            );
            return Err(ErrorKind::InvalidData.into());
        };
        connection.received.start += end + 1;
        let accepted = connection.host.is_none();
        connection.host = Some(host);
        connection.connecting = false;
        if accepted {
            // A peer that dials again has lost its earlier connection, of which this host may not
            // have heard.
            for other in 0..self.connections.len() {
                let earlier = self.connections[other].as_ref();
                let earlier = earlier.filter(|other| other.accepted && other.host == Some(host));
                if other != index && earlier.is_some() {
                    self.close(other);
                }
            }
            self.greet(index, host);
            self.flush(index)?;
        }
        self.routes[host.0 as usize] = Some(index);
        self.events.push_back((host, LinkChange::Up));
        Ok(())
    }

    /// Returns the bounds of the next whole frame that a connection has received.
    fn next_frame(&mut self) -> Option<(usize, HostId, Range<usize>)> {
        let index = self.reading?;
        let connection = self.connections[index].as_ref()?;
        let host = connection.host.filter(|_| !connection.connecting)?;
        let bytes = &connection.buffer[connection.received.clone()];
        let length = bytes.get(64..68)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        let total = HEADER + length as usize;
        if total > MAX_FRAME || bytes[0] != VERSION {
            tracing::warn!(
                "a connection to peer {} was closed: it carries no frames of version {VERSION}",
                self.options.peers[host.0 as usize].0
            );
            self.close(index);
            return None;
        }
        let begin = connection.received.start;
        (bytes.len() >= total).then_some((index, host, begin..begin + total))
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(errno.into()),
    }
}

impl Link for TcpLink {
    fn try_send(&mut self, to: HostId, frame: &mut Vec<u8>) -> Queued {
        let Some(index) = self.routes.get(to.0 as usize).copied().flatten() else {
            return Queued::Down;
        };
        let Some(connection) = &mut self.connections[index] else { return Queued::Down };
        if connection.queued.len() + frame.len() > MAX_QUEUED {
            connection.refused = true;
            return Queued::Full;
        }
        // Most frames go into the socket at once.
        let mut written = 0;
        if connection.queued.is_empty() {
            match connection.socket.write(frame) {
                Ok(length) => written = length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.close(index);
                    return Queued::Down;
                }
            }
        }
        if written < frame.len() {
            connection.queued.extend(&frame[written..]);
            if self.flush(index).is_err() {
                self.close(index);
                return Queued::Down;
            }
        }
        Queued::Yes
    }

    fn poll(&mut self) -> Option<LinkEvent<'_>> {
        loop {
            if let Some((host, change)) = self.events.pop_front() {
                return Some(match change {
                    LinkChange::Up => LinkEvent::Up(host),
                    LinkChange::Down => LinkEvent::Down(host),
                    LinkChange::Writable => LinkEvent::Writable(host),
                });
            }
            if let Some((index, from, bounds)) = self.next_frame() {
                let connection = self.connections[index].as_mut()?;
                connection.received.start = bounds.end;
                return Some(LinkEvent::Frame { from, bytes: &connection.buffer[bounds] });
            }
            self.reading = None;
            if self.events.is_empty() && !self.take_event() {
                return None;
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    fn carrier(&self) -> &'static str {
        "tcp"
    }
}
