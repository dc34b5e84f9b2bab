//! Descriptors that a hostile peer passes: [`Stock`].

#![allow(unsafe_code, reason = "a system call without a wrapper")]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::common::Random;
use super::raw;

/// Number of kinds of [`make`].
const KINDS: u64 = 21;

/// A stock of descriptors, created once for many messages.
#[derive(Debug)]
pub(super) struct Stock<'a> {
    fds: Vec<OwnedFd>,
    /// A file of a file system that never replies, if available. The descriptor is borrowed,
    /// because closing a duplicate would block too.
    unanswered: Option<BorrowedFd<'a>>,
}

impl<'a> Stock<'a> {
    /// Creates a few descriptors of random kinds. `victims` are files on which the peer holds
    /// locks.
    pub(super) fn new(
        random: &mut Random,
        victims: &[&Path],
        unanswered: Option<BorrowedFd<'a>>,
    ) -> Self {
        let mut fds = Vec::new();
        for _ in 0..1 + random.below(5) {
            let kind = random.below(KINDS);
            fds.extend(make(kind, random, victims));
        }
        Self { fds, unanswered }
    }

    /// Returns `count` descriptors, in random order and with repetitions.
    pub(super) fn some(&self, random: &mut Random, count: usize) -> Vec<BorrowedFd<'_>> {
        let one = |random: &mut Random| match self.unanswered {
            Some(fd) if random.below(3) == 0 => fd,
            _ if self.fds.is_empty() => raw::life(),
            _ => self.fds[random.below(self.fds.len() as u64) as usize].as_fd(),
        };
        (0..count).map(|_| one(random)).collect()
    }
}

/// Creates descriptors of one kind, or none if the machine cannot create them.
fn make(kind: u64, random: &mut Random, victims: &[&Path]) -> Vec<OwnedFd> {
    match kind {
        0 => vec![raw::memfd(4096)],
        1 => sealed(raw::memfd(4096), raw::SEALS),
        2 => raw::Memory::new(1 << (12 + random.below(6))).fd.try_clone().into_iter().collect(),
        3 => {
            let huge = MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
            let fd = rustix::fs::memfd_create("huge", huge).ok();
            fd.map_or_else(Vec::new, |fd| sealed(fd, raw::SEALS))
        }
        4 => sealed(raw::memfd(1 << random.below(40)), raw::SEALS),
        5 => sealed(raw::memfd(4096), SealFlags::from_bits_truncate(random.next() as u32)),
        6 => large(random),
        7 => tempfile::tempfile().map(OwnedFd::from).into_iter().collect(),
        // Closing such a descriptor drops the record locks that the closing process holds on the
        // file.
        8 | 9 => {
            victims.iter().filter_map(|path| File::open(path).ok()).map(OwnedFd::from).collect()
        }
        10 => rustix::pipe::pipe().map_or_else(|_| Vec::new(), |(one, other)| vec![one, other]),
        11 => rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).into_iter().collect(),
        12 => inotify(random),
        13 => epoll(random),
        14 => lingering(),
        15 => io_uring(),
        16 => full_pair(random),
        17 => File::open("/").map(OwnedFd::from).into_iter().collect(),
        18 => File::open("/dev/null").map(OwnedFd::from).into_iter().collect(),
        19 => {
            let us = rustix::process::getpid();
            rustix::process::pidfd_open(us, rustix::process::PidfdFlags::empty())
                .into_iter()
                .collect()
        }
        _ => vec![raw::socket()],
    }
}

fn sealed(fd: OwnedFd, seals: SealFlags) -> Vec<OwnedFd> {
    let _ = rustix::fs::fcntl_add_seals(&fd, seals);
    vec![fd]
}

/// Returns a large memory file whose pages the last close must free.
fn large(random: &mut Random) -> Vec<OwnedFd> {
    let size = 1 << (20 + random.below(8));
    let fd = raw::memfd(size);
    let _ = rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size as u64);
    sealed(fd, raw::SEALS)
}

/// Returns inotify instances. Closing an instance waits for an RCU grace period of the kernel.
fn inotify(random: &mut Random) -> Vec<OwnedFd> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let count = if random.below(4) == 0 { 100 } else { 1 };
    let instances: Vec<OwnedFd> =
        (0..count).map_while(|_| init(CreateFlags::CLOEXEC).ok()).collect();
    for fd in &instances {
        let _ = add_watch(fd, "/", WatchFlags::ATTRIB);
    }
    instances
}

/// Returns an epoll set with many entries.
fn epoll(random: &mut Random) -> Vec<OwnedFd> {
    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
    let Ok(set) = create(CreateFlags::CLOEXEC) else { return Vec::new() };
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    let watched: Vec<OwnedFd> =
        (0..random.below(200)).map_while(|_| rustix::event::eventfd(0, flags).ok()).collect();
    for (at, fd) in watched.iter().enumerate() {
        let _ = add(&set, fd, EventData::new_u64(at as u64), EventFlags::IN);
    }
    // An entry is removed when its file is closed, so the files are passed too.
    let mut fds = vec![set];
    fds.extend(watched.into_iter().take(20));
    fds
}

/// Returns a TCP socket whose close waits a minute, because the socket lingers with unsent data.
fn lingering() -> Vec<OwnedFd> {
    let Ok(listener) = std::net::TcpListener::bind("127.0.0.1:0") else { return Vec::new() };
    let Ok(address) = listener.local_addr() else { return Vec::new() };
    let Ok(mut ours) = std::net::TcpStream::connect(address) else { return Vec::new() };
    let theirs = listener.accept().map(|(socket, _)| OwnedFd::from(socket));
    let _ = ours.set_nonblocking(true);
    while ours.write(&[0; 65536]).is_ok() {}
    let _ = ours.set_nonblocking(false);
    let linger = Some(std::time::Duration::from_secs(60));
    let _ = rustix::net::sockopt::set_socket_linger(&ours, linger);
    // The other end stays open in the queue of the socket through which both are passed.
    theirs.into_iter().chain([ours.into()]).collect()
}

/// Returns an io_uring instance.
fn io_uring() -> Vec<OwnedFd> {
    let mut parameters = [0_u8; 120];
    // SAFETY: the kernel's structure has 120 bytes, which may all be zero.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) };
    if fd < 0 {
        return Vec::new();
    }
    // SAFETY: the descriptor is new and has no other owner.
    vec![unsafe { OwnedFd::from_raw_fd(fd as i32) }]
}

/// Returns a Unix socket with queued messages that carry descriptors.
fn full_pair(random: &mut Random) -> Vec<OwnedFd> {
    let (domain, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let Ok((one, other)) = rustix::net::socketpair(domain, kind, SocketFlags::CLOEXEC, None) else {
        return Vec::new();
    };
    let null: Vec<OwnedFd> = File::open("/dev/null").map(OwnedFd::from).into_iter().collect();
    let fds: Vec<BorrowedFd<'_>> = null.iter().map(AsFd::as_fd).collect();
    for _ in 0..random.below(40) {
        raw::send(&one, b"queued", &fds);
    }
    vec![other, one]
}

impl Drop for Stock<'_> {
    /// Disables lingering, because the close of a lingering socket would block if the hostile
    /// process is the last to close it.
    fn drop(&mut self) {
        for fd in &self.fds {
            let _ = rustix::net::sockopt::set_socket_linger(fd, None);
        }
    }
}

/// Returns the inode number and the size in bytes of a descriptor's file, from `fstat`.
pub(super) fn charge(fd: &OwnedFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(fd).ok()?;
    Some((stat.st_ino, stat.st_blocks as u64 * 512))
}
