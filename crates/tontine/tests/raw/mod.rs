//! Peers that speak the protocol without the library, correctly or not: sockets, control messages
//! and sealed memory, made according to `docs/internals/layout.md`.

#![allow(unsafe_code, reason = "mappings, and words that a peer reads")]
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(missing_docs, unreachable_pub, reason = "a module of each test")]

pub mod fuse;

use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tontine::life::Life;
use tontine::mailbox::{Options, Sender, Sends};

/// Version of the protocol.
pub const VERSION: u32 = 4;

pub const HELLO: u32 = 1;
pub const WELCOME: u32 = 2;
pub const REFUSED: u32 = 3;
pub const CHUNK: u32 = 4;
pub const WANT: u32 = 5;
pub const SPACE: u32 = 6;
pub const RETURNED: u32 = 7;

/// Size of a process page.
pub const PROCESS_PAGE: usize = 69_632;

/// Offset of a chunk's ring.
pub const RING: usize = 128;

/// All seals that an honest peer sets.
pub const SEALS: SealFlags =
    SealFlags::FUTURE_WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Sealed memory that this process may write and others read.
pub struct Memory {
    base: *mut u8,
    size: usize,
    pub fd: OwnedFd,
}

// SAFETY: a mapping belongs to the process, not to a thread, and its words are atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(size: usize) -> Self {
        let fd = memfd(size);
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size as u64).expect("fallocate");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the mapping is new, and the kernel chooses its address.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, &fd, 0)
        };
        rustix::fs::fcntl_add_seals(&fd, SEALS).expect("seals");
        Self { base: base.expect("mmap").cast(), size, fd }
    }

    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.size);
        // SAFETY: the word is inside the mapping, aligned, and valid as long as `self` is.
        unsafe { &*self.base.add(at).cast() }
    }

    pub fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.size);
        // SAFETY: the word is inside the mapping, aligned, and valid as long as `self` is.
        unsafe { &*self.base.add(at).cast() }
    }

    pub fn put(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }

    /// Writes a message of zeros at `at`.
    pub fn put_message(&self, at: usize, length: u64) {
        self.put(at, header(1, length));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own and no longer borrowed.
        unsafe { rustix::mm::munmap(self.base.cast(), self.size).expect("munmap") };
    }
}

/// Returns a record's header word.
pub fn header(kind: u64, length: u64) -> u64 {
    kind << 32 | length
}

/// Creates a sealable, sparse memfd.
pub fn memfd(size: usize) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("raw", flags).expect("memfd_create");
    rustix::fs::ftruncate(&fd, size as u64).expect("ftruncate");
    fd
}

/// Creates a chunk of 2^`log2` bytes.
pub fn chunk(log2: u32) -> Memory {
    Memory::new(1 << log2)
}

/// Creates a control page.
pub fn control(position: u64, granted: u64) -> Memory {
    let page = Memory::new(4096);
    page.put(0, u64::from_le_bytes(*b"TONTLANE"));
    page.half(8).store(VERSION, Ordering::Relaxed);
    page.put(72, granted);
    page.put(128, position);
    page
}

/// Creates a process page whose liveness word, at 64, is `life`.
pub fn process_page(life: u32) -> Memory {
    let page = Memory::new(PROCESS_PAGE);
    page.put(0, u64::from_le_bytes(*b"TONTPROC"));
    page.half(8).store(VERSION, Ordering::Relaxed);
    page.half(12).store(64, Ordering::Relaxed);
    page.half(64).store(life, Ordering::Relaxed);
    page
}

/// Returns this process's page, which is honest.
pub fn life() -> BorrowedFd<'static> {
    Life::register().expect("registered").as_fd()
}

/// Returns a control message of this kind, with `words` after its kind and version.
pub fn note(kind: u32, words: &[u32]) -> Vec<u8> {
    [&[kind, VERSION], words].concat().iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns a `HELLO` for a new lane.
pub fn hello(cap: u64, chunks: &[u8]) -> Vec<u8> {
    hello_at(cap, 0, 0, chunks)
}

/// Returns a `HELLO` that hands over a lane.
pub fn hello_at(cap: u64, position: u64, base: u64, chunks: &[u8]) -> Vec<u8> {
    let mut bytes = note(HELLO, &[0, 0]);
    for word in [cap, position, base] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(chunks);
    bytes
}

/// Returns the message that announces a passed chunk.
pub fn chunk_note(log2: u32, sequence: u64) -> Vec<u8> {
    note(CHUNK, &[log2, 0, sequence as u32, 0])
}

pub fn socket() -> OwnedFd {
    unbound(SocketType::SEQPACKET)
}

/// Returns a Unix socket of this type without a name.
pub fn unbound(kind: SocketType) -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("socket")
}

/// Returns two connected sockets, for a lane without an address.
pub fn pair() -> (OwnedFd, OwnedFd) {
    let (domain, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socketpair(domain, kind, SocketFlags::CLOEXEC, None).expect("socketpair")
}

/// Connects to a mailbox. Later reads of the socket time out.
pub fn dial(path: &Path) -> OwnedFd {
    let socket = socket();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("connect");
    patient(&socket);
    socket
}

/// Connects to a mailbox with an abstract name, like [`dial`].
pub fn dial_abstract(name: &str) -> OwnedFd {
    let socket = socket();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    rustix::net::connect(&socket, &address).expect("connect");
    patient(&socket);
    socket
}

/// Returns a socket that listens like a mailbox.
pub fn listen(path: &Path) -> OwnedFd {
    let socket = socket();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("bind");
    rustix::net::listen(&socket, 16).expect("listen");
    patient(&socket);
    socket
}

/// Accepts the next connection.
pub fn accept(listener: &OwnedFd) -> OwnedFd {
    let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC).expect("accept");
    patient(&socket);
    socket
}

fn patient(socket: &OwnedFd) {
    let limit = Some(Duration::from_secs(60));
    sockopt::set_socket_timeout(socket, Timeout::Recv, limit).expect("SO_RCVTIMEO");
}

/// Sends one message; returns `false` if there is no space or no peer.
pub fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
}

/// Returns the next message: kind, all bytes, descriptors. The kind is 0 if the other end hung up.
pub fn receive(socket: &OwnedFd) -> (u32, Vec<u8>, Vec<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 256];
    let mut next = || {
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    };
    // The kernel reports ECONNRESET once, before the messages that are still queued.
    let received = match next() {
        Err(rustix::io::Errno::CONNRESET) => next(),
        received => received,
    };
    let length = match received {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::CONNRESET) => 0,
        Err(errno) => panic!("no message arrived: {errno}"),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    let kind = bytes.first_chunk().map_or(0, |kind| u32::from_le_bytes(*kind));
    (if length == 0 { 0 } else { kind }, bytes[..length].to_vec(), fds)
}

/// Returns `true` if the next [`receive`] does not wait.
pub fn is_readable(socket: &OwnedFd) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    rustix::net::recv(socket, &mut [0; 1], flags) != Err(rustix::io::Errno::AGAIN)
}

/// Returns the error number of a `REFUSED`.
pub fn refusal(socket: &OwnedFd) -> i32 {
    let (kind, bytes, _) = receive(socket);
    assert_eq!(kind, REFUSED, "refused");
    i32::from_le_bytes(bytes[8..12].try_into().expect("an errno"))
}

/// Welcomes a sender that connected to [`listen`]: liveness page, control page, doorbell.
pub fn welcome(socket: &OwnedFd, page: BorrowedFd<'_>, control: &Memory, bell: BorrowedFd<'_>) {
    assert!(send(socket, &note(WELCOME, &[0, 0]), &[page, control.fd.as_fd(), bell]));
}

/// A raw receiver that has been honest so far, and the sender that it has welcomed.
pub struct Receiver {
    pub sender: Sender,
    pub socket: OwnedFd,
    pub page: Memory,
    pub control: Memory,
    /// The ends of the doorbell: the receiver's, and the one that the sender rings.
    pub bell: (OwnedFd, OwnedFd),
    /// The lane's first chunk.
    pub chunk: OwnedFd,
}

/// Listens at `path` for one sender, and welcomes it with a grant of `granted` bytes.
pub fn receiver<E: Sends>(path: &Path, options: &Options<E>, granted: u64) -> Receiver {
    let listener = listen(path);
    let mut sender = options.connect(path).expect("connects");
    let socket = accept(&listener);
    std::fs::remove_file(path).expect("the name is removed");
    let (kind, _, mut passed) = receive(&socket);
    assert_eq!(kind, HELLO);
    let (page, control, bell) = (process_page(1), self::control(0, granted), pair());
    welcome(&socket, page.fd.as_fd(), &control, bell.1.as_fd());
    sender.service().expect("welcomed");
    Receiver { sender, socket, page, control, bell, chunk: passed.remove(1) }
}

/// Begins a lane without the library; returns its socket and its first chunk of 4 KiB.
pub fn lane(path: &Path) -> (OwnedFd, Memory) {
    let socket = dial(path);
    let chunk = chunk(12);
    assert!(send(&socket, &hello(1 << 20, &[12]), &[life(), chunk.fd.as_fd()]));
    (socket, chunk)
}

/// Returns a TCP socket whose last close waits for a minute, with unsent data for its silent other
/// end.
pub fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let mut stream = TcpStream::connect(listener.local_addr().expect("a port")).expect("connected");
    let silent = listener.accept().expect("accepts").0;
    stream.set_nonblocking(true).expect("set");
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).expect("set");
    sockopt::set_socket_linger(&stream, Some(Duration::from_secs(60))).expect("linger");
    (stream.into(), silent)
}
