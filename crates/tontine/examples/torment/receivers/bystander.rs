//! A third process, to which a hostile receiver would lead the rings of a sender: [`Bystander`].

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;

use super::super::common::Random;
use super::super::{raw, wire};

/// The kinds of Unix sockets.
const KINDS: [SocketType; 3] = [SocketType::STREAM, SocketType::DGRAM, SocketType::SEQPACKET];

/// Descriptors that a process made, and at which no message may arrive.
pub(super) struct Bystander {
    /// Pairs of sockets: the end that the process reads, and the other one.
    pairs: Vec<(OwnedFd, OwnedFd)>,
    /// A socket of each kind with a path. The one of type `SOCK_SEQPACKET` listens like a mailbox.
    named: Vec<(OwnedFd, PathBuf)>,
    /// Connections to those that listen.
    accepted: Vec<OwnedFd>,
    udp: UdpSocket,
    pipe: (OwnedFd, OwnedFd),
    counter: OwnedFd,
    file: File,
}

impl Bystander {
    /// Makes the descriptors, with paths in `folder` that no other bystander has.
    pub(super) fn new(folder: &Path, number: u64) -> Self {
        let (domain, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let pair = |kind| rustix::net::socketpair(domain, kind, flags, None).expect("a pair");
        let named = |kind: SocketType| {
            let path = folder.join(format!("bystander-{number}-{}", kind.as_raw()));
            let socket = raw::unbound(kind);
            rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("bind");
            if kind != SocketType::DGRAM {
                rustix::io::ioctl_fionbio(&socket, true).expect("set");
                rustix::net::listen(&socket, 64).expect("listen");
            }
            (socket, path)
        };
        let counter = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self {
            pairs: KINDS.map(pair).into(),
            named: KINDS.map(named).into(),
            accepted: Vec::new(),
            udp: UdpSocket::bind("127.0.0.1:0").expect("bind"),
            pipe: rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
                .expect("a pipe"),
            counter: rustix::event::eventfd(0, counter).expect("an eventfd"),
            file: tempfile::tempfile().expect("a file"),
        }
    }

    /// Returns a descriptor that leads to this process, for another process to pass as a doorbell.
    pub(super) fn doorbell(&self, random: &mut Random) -> Option<OwnedFd> {
        let at = random.below(KINDS.len() as u64) as usize;
        let (socket, path) = &self.named[at];
        match random.below(8) {
            0 | 1 => self.pairs[at].1.try_clone().ok(),
            2 | 3 => {
                let connection = raw::unbound(KINDS[at]);
                rustix::net::connect(&connection, &SocketAddrUnix::new(path).ok()?).ok()?;
                Some(connection)
            }
            // It listens, unless it is of type `SOCK_DGRAM`.
            4 => socket.try_clone().ok(),
            5 => {
                let connection = UdpSocket::bind("127.0.0.1:0").ok()?;
                connection.connect(self.udp.local_addr().ok()?).ok()?;
                Some(connection.into())
            }
            6 => wire::pick(random, &[&self.pipe.1, &self.counter]).try_clone().ok(),
            _ => self.file.try_clone().map(OwnedFd::from).ok(),
        }
    }

    /// Describes what has arrived since the last call, or how a descriptor has changed. The process
    /// that made the descriptors calls this.
    pub(super) fn take_arrived(&mut self) -> Option<String> {
        for (socket, _) in &self.named {
            while let Ok(connection) = rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
                self.accepted.push(connection);
            }
        }
        let mut bytes = [0; 64];
        let mut ended = Vec::new();
        for (at, connection) in self.accepted.iter().enumerate() {
            match rustix::net::recv(connection, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((1.., length)) => return Some(found("a connection", &bytes[..length])),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The hostile receiver has closed its end.
                Ok(_) | Err(_) => ended.push(at),
            }
        }
        for at in ended.into_iter().rev() {
            self.accepted.swap_remove(at);
        }
        // This process holds the other ends, so a pair ends only if a process shuts it down.
        let datagrams = &self.named[1].0;
        for socket in self.pairs.iter().map(|(end, _)| end).chain([datagrams]) {
            match rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok((_, length)) => return Some(found("a socket", &bytes[..length])),
                Err(errno) => return Some(format!("found the error {errno} at a socket")),
            }
        }
        if let Ok((_, length)) = rustix::net::recv(&self.udp, &mut bytes, RecvFlags::DONTWAIT) {
            return Some(found("a UDP socket", &bytes[..length]));
        }
        for (name, fd) in [("a pipe", &self.pipe.0), ("an eventfd", &self.counter)] {
            if let Ok(length) = rustix::io::read(fd, &mut bytes) {
                return Some(found(name, &bytes[..length]));
            }
        }
        let length = self.file.metadata().map_or(0, |file| file.len());
        (length > 0).then(|| format!("found {length} bytes in a file"))
    }
}

fn found(place: &str, bytes: &[u8]) -> String {
    format!("found {bytes:?} at {place}")
}
