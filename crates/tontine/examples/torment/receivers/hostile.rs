//! The hostile receiver of a pair: [`play`].

#![allow(unsafe_code, reason = "mappings, and words that a peer writes")]

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::super::common::{Random, is_readable};
use super::super::descriptors::{Stock, charge};
use super::super::raw::{self, Memory, RING};
use super::super::slice::Slice;
use super::super::wire;
use super::super::worker::{self, SharedWords};
use super::bystander::Bystander;
use super::{ACKNOWLEDGED, CURRENT, Case, RECEIVER_DONE, ReceiverEnd, ReceiverMode, SENDER_DONE};

/// Offsets in the control page.
const STATE: usize = 64;
const GRANTED: usize = 72;
const POSITION: usize = 128;
const SPACE: usize = 192;

/// Offset in the process page: the first mailbox's receiver sleeps.
const SLEEPING: usize = 128;

/// Bits of the state.
const CLOSED: u32 = 1;
const GIVE_BACK: u32 = 2;

/// Bit that the kernel sets in the liveness word of a dead process.
const DEAD: u32 = 1 << 30;

/// Runs one case after the other, in step with the sender, until it is killed.
pub(super) fn play(
    slice: &Slice,
    path: &Path,
    board: SharedWords,
    bystander: &Bystander,
    unanswered: Option<&File>,
) {
    let listener = raw::listen(path);
    loop {
        let number = worker::get(&board[CURRENT]);
        let done = || worker::get(&board[SENDER_DONE]) > number;
        let mut case = Case::new(slice, number);
        worker::set(&board[ACKNOWLEDGED], 0);
        while !done() {
            let Some(socket) = wire::accept(&listener, Duration::from_millis(5)) else { continue };
            if let Some(mut lane) = HostileLane::welcome(socket, &mut case, bystander, unanswered) {
                lane.play(slice, &mut case, board, &done);
                // The connection of a dead process may outlive it.
                while case.mode == ReceiverMode::Exact(ReceiverEnd::DeadConnected) && !done() {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
        worker::set(&board[RECEIVER_DONE], number + 1);
        while worker::get(&board[CURRENT]) == number {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A chunk of the sender, mapped for reading.
struct MappedChunk {
    base: *const u8,
    size: usize,
    _fd: OwnedFd,
}

impl MappedChunk {
    fn new(fd: OwnedFd) -> Option<Self> {
        let size = rustix::fs::fstat(&fd).ok()?.st_size as usize;
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the mapping is new, at an address that the kernel chooses.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, flags, &fd, 0) };
        Some(Self { base: base.ok()?.cast(), size, _fd: fd })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.size);
        // SAFETY: the address is inside the mapping and aligned, and lives as long as `self`.
        unsafe { &*self.base.add(at).cast() }
    }
}

impl Drop for MappedChunk {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and nothing borrows it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.size) };
    }
}

/// The receiver's half of one lane.
struct HostileLane<'a> {
    socket: OwnedFd,
    page: Memory,
    control: Memory,
    _bell: (OwnedFd, OwnedFd),
    chunks: VecDeque<MappedChunk>,
    /// Position of the lane at the first record of the first chunk.
    base: u64,
    position: u64,
    /// Position after the last record that was read, and the number of messages read.
    read: (u64, u64),
    /// Size in bytes of every passed chunk, by inode; no chunk is closed.
    held: BTreeMap<u64, u64>,
    hoard: Vec<OwnedFd>,
    unanswered: Option<&'a File>,
}

impl<'a> HostileLane<'a> {
    /// Receives `HELLO` and replies, correctly unless the case is wild.
    fn welcome(
        socket: OwnedFd,
        case: &mut Case,
        bystander: &Bystander,
        unanswered: Option<&'a File>,
    ) -> Option<Self> {
        if !is_readable(&socket, Duration::from_secs(1)) {
            return None;
        }
        let wire::SocketLook::Message(raw::HELLO, fds) = wire::hear(&socket) else { return None };
        let flags = SocketFlags::CLOEXEC;
        let bell = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let mut lane = Self {
            socket,
            page: raw::process_page(1),
            control: raw::control(0, case.cap),
            _bell: bell.ok()?,
            chunks: VecDeque::new(),
            base: 0,
            position: 0,
            read: (0, 0),
            held: BTreeMap::new(),
            hoard: Vec::new(),
            unanswered,
        };
        fds.into_iter().skip(1).for_each(|fd| lane.take_chunk(fd));
        let random = &mut case.random;
        if case.mode == ReceiverMode::Deputy {
            // An honest sender rings if the receiver sleeps.
            lane.page.half(SLEEPING).store(1, Ordering::Relaxed);
            let bell = bystander.doorbell(random)?;
            let fds = [lane.page.fd.as_fd(), lane.control.fd.as_fd(), bell.as_fd()];
            wire::say(&lane.socket, &raw::note(raw::WELCOME, &[0, 0]), &fds);
            return Some(lane);
        }
        if case.mode != ReceiverMode::Wild || random.below(2) == 0 {
            let fds = [lane.page.fd.as_fd(), lane.control.fd.as_fd(), lane._bell.1.as_fd()];
            wire::say(&lane.socket, &raw::note(raw::WELCOME, &[0, 0]), &fds);
            return Some(lane);
        }
        lane.welcome_badly(random);
        Some(lane)
    }

    fn welcome_badly(&self, random: &mut Random) {
        let stock = Stock::new(random, &[], self.unanswered.map(AsFd::as_fd));
        let mut fds: Vec<BorrowedFd<'_>> =
            vec![self.page.fd.as_fd(), self.control.fd.as_fd(), self._bell.1.as_fd()];
        let mut bytes = raw::note(raw::WELCOME, &[0, 0]);
        match random.below(6) {
            0 => {
                bytes = raw::note(raw::REFUSED, &[wire::edge(random) as u32]);
                fds.clear();
            }
            1 => wire::mutate(random, &mut bytes),
            2 => {
                let at = random.below(3) as usize;
                fds[at] = stock.some(random, 1)[0];
            }
            3 => {
                let count = random.below(wire::MAX_FDS as u64 + 1) as usize;
                fds = stock.some(random, count);
            }
            4 => self.page.half(12).store(wire::edge(random) as u32, Ordering::Relaxed),
            _ => {
                self.control.put(POSITION, wire::edge(random));
                self.control.put(GRANTED, wire::edge(random));
            }
        }
        wire::say(&self.socket, &bytes, &fds);
    }

    fn take_chunk(&mut self, fd: OwnedFd) {
        if let Some((inode, bytes)) = charge(&fd) {
            self.held.insert(inode, bytes);
        }
        self.hoard.extend(fd.try_clone());
        self.chunks.extend(MappedChunk::new(fd));
    }

    /// Runs the case until the sender has finished the case or the lane ends.
    fn play(
        &mut self,
        slice: &Slice,
        case: &mut Case,
        board: SharedWords,
        done: &dyn Fn() -> bool,
    ) {
        let ends_after = case.random.below(200);
        let ends_at = Instant::now() + Duration::from_millis(5 + case.random.below(250));
        let mut steps = 0_u64;
        while !done() {
            if !self.hear(case) {
                return;
            }
            match case.mode {
                ReceiverMode::Exact(end) => {
                    self.read(1 + case.random.below(20));
                    if case.random.below(3) > 0 {
                        self.acknowledge(board);
                    }
                    if self.read.1 >= ends_after || Instant::now() >= ends_at {
                        return self.end(end);
                    }
                }
                ReceiverMode::Hoard => self.demand(slice, case, board),
                ReceiverMode::Deputy => {}
                ReceiverMode::Wild => self.lie(&mut case.random, board),
            }
            steps += 1;
            if steps.is_multiple_of(8) {
                std::thread::sleep(Duration::from_micros(case.random.below(300)));
            }
        }
    }

    /// Receives the sender's control messages. Returns `false` once it has hung up.
    fn hear(&mut self, case: &mut Case) -> bool {
        for _ in 0..32 {
            match wire::hear(&self.socket) {
                wire::SocketLook::Nothing => return true,
                wire::SocketLook::HungUp => return false,
                wire::SocketLook::Message(raw::RETURNED, _) => {
                    self.control.half(STATE).store(0, Ordering::Relaxed);
                    self.control.put(GRANTED, case.cap);
                }
                wire::SocketLook::Message(_, fds) => {
                    fds.into_iter().for_each(|fd| self.take_chunk(fd));
                }
            }
        }
        true
    }

    /// Reads up to `count` messages as an honest receiver does.
    fn read(&mut self, count: u64) {
        for _ in 0..count {
            loop {
                let Some(chunk) = self.chunks.front() else { return };
                let ring = (chunk.size - RING) as u64;
                let at = RING + ((self.read.0 - self.base) % ring) as usize;
                // SYNC publish: pairs with the header stores in `LaneWriter`.
                let header = chunk.word(at).load(Ordering::Acquire);
                let length = (header & u64::from(u32::MAX)).next_multiple_of(8);
                match header >> 32 {
                    1 => {
                        self.read = (self.read.0 + 8 + length, self.read.1 + 1);
                        break;
                    }
                    2 => self.read.0 += 8 + length,
                    3 => {
                        self.read.0 += 8;
                        self.base = self.read.0;
                        self.chunks.pop_front();
                    }
                    _ => return,
                }
            }
        }
    }

    /// Acknowledges everything that was read.
    fn acknowledge(&mut self, board: SharedWords) {
        if self.position != self.read.0 {
            self.position = self.read.0;
            worker::set(&board[ACKNOWLEDGED], self.read.1);
            self.control.put(POSITION, self.position);
            self.control.put(SPACE, self.position);
            wire::say(&self.socket, &raw::note(raw::SPACE, &[]), &[]);
        }
    }

    fn end(&mut self, end: ReceiverEnd) {
        match end {
            ReceiverEnd::Dead | ReceiverEnd::DeadConnected => {
                self.page.half(64).store(DEAD, Ordering::Relaxed);
            }
            ReceiverEnd::Closed => self.control.half(STATE).store(CLOSED, Ordering::Relaxed),
            ReceiverEnd::HungUp => {}
        }
    }

    /// Reads everything and requests memory back, without ever closing a chunk.
    fn demand(&mut self, slice: &Slice, case: &mut Case, board: SharedWords) {
        self.read(u64::MAX);
        self.acknowledge(board);
        if case.random.below(4) == 0 {
            self.control.half(STATE).store(GIVE_BACK, Ordering::Relaxed);
        }
        let held: u64 = self.held.values().sum();
        // One chunk more than the cap may be in flight.
        let most = 2 * case.cap + (64 << 10);
        slice.check(case.number, held <= most, || {
            format!("expected at most {most} bytes charged to the sender, found {held} held")
        });
    }

    /// Takes one random action, permitted or not.
    fn lie(&mut self, random: &mut Random, board: SharedWords) {
        match random.below(24) {
            0..8 => {
                self.read(1 + random.below(50));
                self.acknowledge(board);
            }
            8 => self.control.put(POSITION, wire::edge(random)),
            9 => self.control.put(SPACE, wire::edge(random)),
            10 => self
                .control
                .put(POSITION, self.read.0.wrapping_add(8 * random.below(9)).wrapping_sub(8)),
            11 => self.control.half(STATE).store(wire::edge(random) as u32, Ordering::Relaxed),
            12 | 13 => self.control.put(GRANTED, wire::edge(random)),
            14 => self.control.put(80, wire::edge(random)),
            15 => self.page.half(64).store(wire::edge(random) as u32, Ordering::Relaxed),
            16 => self.page.half(SLEEPING).store(random.below(2) as u32, Ordering::Relaxed),
            17 => {
                for _ in 0..random.below(200) {
                    wire::say(&self.socket, &raw::note(raw::SPACE, &[]), &[]);
                }
            }
            18 => {
                let kind = random.below(9) as u32;
                let mut bytes = raw::note(kind, &[wire::edge(random) as u32]);
                if random.below(2) == 0 {
                    wire::mutate(random, &mut bytes);
                }
                let stock = Stock::new(random, &[], self.unanswered.map(AsFd::as_fd));
                let count = random.below(wire::MAX_FDS as u64 + 1) as usize;
                wire::say(&self.socket, &bytes, &stock.some(random, count));
            }
            19 if random.below(4) == 0 => {
                let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
            }
            20 => {
                let flags = rustix::net::SendFlags::DONTWAIT;
                let _ = rustix::io::ioctl_fionbio(&self._bell.1, false);
                while rustix::net::send(&self._bell.1, &[1; 1000], flags).is_ok() {}
            }
            _ => std::thread::sleep(Duration::from_micros(random.below(500))),
        }
    }
}
