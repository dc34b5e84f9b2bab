//! Chunks that a receiver does not release count against the sender's cap. Released chunks do not
//! count, so an honest lane grows and shrinks without limit.

#![allow(unsafe_code, reason = "mappings, and a filter of system calls")]

use crate::raw;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::RecvFlags;
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender};

const CAP: u64 = 1 << 20;

/// Bytes that a lane may have in addition to its cap: its first chunk, and the chunk to which it
/// returns.
const SMALL: u64 = 2 * 4096;

const STATE_AT: usize = 64;
const POSITION_AT: usize = 128;
const SPACE_AT: usize = 192;
const GIVE_BACK: u32 = 2;

/// The way in which a hostile receiver holds a chunk.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Descriptor,
    /// A descriptor opened with `O_PATH`, which keeps no open file of the chunk.
    PathDescriptor,
    Mapping,
    /// The descriptor is in the queue of a socket.
    InFlight,
}

/// A raw receiver that acknowledges everything and releases nothing.
struct Hostile {
    sender: Sender,
    socket: OwnedFd,
    control: raw::Memory,
    _page: raw::Memory,
    _bell: (OwnedFd, OwnedFd),
    hold: Hold,
    held: Vec<OwnedFd>,
    /// Total bytes of the chunks that the receiver holds.
    bytes: u64,
    position: u64,
}

impl Hostile {
    fn new(options: &Options, hold: Hold) -> Self {
        let lane = raw::receiver(&place().path, options, u64::MAX);
        let (held, bytes, position) = (Vec::new(), 0, 0);
        let raw::Receiver { sender, socket, page: _page, control, bell: _bell, chunk } = lane;
        let mut hostile =
            Self { sender, socket, control, _page, _bell, hold, held, bytes, position };
        hostile.keep(chunk);
        hostile
    }

    fn keep(&mut self, chunk: OwnedFd) {
        let size = rustix::fs::fstat(&chunk).expect("fstat").st_size as u64;
        self.bytes += size;
        match self.hold {
            Hold::Descriptor => self.held.push(chunk),
            Hold::PathDescriptor => {
                let path = format!("/proc/self/fd/{}", chunk.as_raw_fd());
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                self.held.push(rustix::fs::open(path, flags, Mode::empty()).expect("opens"));
            }
            Hold::Mapping => {
                let (any, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
                // SAFETY: the mapping is new; the kernel chooses its address.
                let mapping = unsafe {
                    rustix::mm::mmap(any, size as usize, ProtFlags::READ, flags, &chunk, 0)
                };
                mapping.expect("maps");
            }
            Hold::InFlight => {
                let (ours, theirs) = raw::pair();
                assert!(raw::send(&ours, b"x", &[chunk.as_fd()]));
                self.held.extend([ours, theirs]);
            }
        }
    }

    /// Keeps every chunk that was passed; returns `true` if the sender sent `RETURNED`.
    fn listen(&mut self) -> bool {
        let mut returned = false;
        let waits = |socket: &OwnedFd| {
            let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
            rustix::net::recv(socket, &mut [0; 1], flags).is_ok()
        };
        while waits(&self.socket) {
            let (kind, _, chunks) = raw::receive(&self.socket);
            returned |= kind == raw::RETURNED;
            chunks.into_iter().for_each(|chunk| self.keep(chunk));
        }
        let most = CAP + SMALL;
        assert!(self.bytes <= most, "{:?}: {} bytes of {most}", self.hold, self.bytes);
        returned
    }

    fn acknowledge_all(&mut self) {
        self.position += self.sender.unread_bytes();
        self.control.put(POSITION_AT, self.position);
        self.control.put(SPACE_AT, self.position);
        assert_eq!(self.sender.unread_bytes(), 0);
    }

    /// Sends until the lane is full.
    fn fill(&mut self, length: usize) -> usize {
        let mut sent = 0;
        loop {
            match self.sender.try_send(&vec![7; length]) {
                Ok(()) => sent += 1,
                Err(error) => {
                    assert_eq!(error, Error::WouldBlock);
                    return sent;
                }
            }
        }
    }

    /// Sends the longest message and short ones: held chunks block none of them.
    fn send_on(&mut self) {
        let longest = vec![3; self.sender.max_message_len()];
        self.sender.try_send(&longest).expect("there is space for the longest");
        self.acknowledge_all();
        for _ in 0..1000 {
            self.sender.try_send(&[1; 1000]).expect("space is free");
            self.acknowledge_all();
        }
        self.listen();
    }

    /// Requests the sender's large chunk back.
    fn request_back(&mut self) {
        self.control.half(STATE_AT).store(GIVE_BACK, std::sync::atomic::Ordering::Relaxed);
        self.sender.service().expect("alive");
        assert!(self.listen(), "the receiver answers each time");
        self.control.half(STATE_AT).store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Regression: a receiver acknowledged everything, kept every chunk mapped and repeatedly requested
/// the large chunk. The sender counted returned chunks as free, and created a new chunk each time.
/// A sender with a cap of 64 MiB was charged 5 GiB; in a control group with a limit, the kernel
/// killed it.
#[test]
fn chunks_given_back_and_held_count_against_cap() {
    alone!();
    give_back_again_and_again();
}

fn give_back_again_and_again() {
    for hold in [Hold::Descriptor, Hold::PathDescriptor, Hold::Mapping, Hold::InFlight] {
        let mut lane = Hostile::new(&Options::new().lane_cap(CAP), hold);
        for round in 0..100 {
            lane.fill([100_000, 20_000, 3_000][round % 3]);
            lane.listen();
            lane.acknowledge_all();
            lane.request_back();
        }
        assert!(lane.bytes >= CAP / 4, "the memory grew: {} bytes", lane.bytes);
        lane.send_on();
    }
}

/// Regression: a chunk that its receiver had read to the end was no longer counted, although the
/// receiver could keep it. A lane that was repeatedly filled and read kept allocating new chunks.
#[test]
fn chunks_read_and_held_count_against_cap() {
    alone!();
    read_again_and_again();
}

fn read_again_and_again() {
    for hold in [Hold::Descriptor, Hold::PathDescriptor, Hold::Mapping, Hold::InFlight] {
        let mut lane = Hostile::new(&Options::new().lane_cap(CAP), hold);
        for round in 0..100 {
            assert!(lane.fill([100_000, 20_000, 3_000][round % 3]) > 0, "the sender continues");
            lane.listen();
            lane.acknowledge_all();
        }
        lane.send_on();
    }
}

/// Runs an honest receiver that requests memory after each of many large messages. Returns the
/// number of times that the memory was released.
///
/// After each message, checks up to `looks` times, 2 ms apart, whether the memory is released.
fn grow_and_shrink(rounds: usize, looks: u32, options: &Options) -> u64 {
    // A forked child inherits the mappings of this process's other tests.
    let inherited = mapped_chunks();
    let place = place();
    let receiving = options.clone().shrink_after(Duration::from_millis(1));
    let mut mailbox = receiving.bind(&place.path).expect("binds");
    let mut sender = options.connect(&place.path).expect("connects");
    let mut shrunk = 0;
    for round in 0..rounds {
        let large = vec![round as u8; [200_000, 60_000, 250_000][round % 3]];
        let mut received = None;
        until("the lane has space", || {
            match sender.try_send(&large) {
                Ok(()) | Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
            received = mailbox.try_recv().map(|message| message.to_vec()).ok();
            received.is_some()
        });
        assert!(received.expect("received") == large);
        while mailbox.try_recv().is_ok() {}
        let before = mapped_chunks() - inherited;
        assert!(before >= large.len() as u64, "{before} bytes");
        for _ in 0..looks {
            sender.service().expect("alive");
            assert_eq!(mailbox.try_recv().map(drop), Err(Error::WouldBlock));
            if mapped_chunks() - inherited <= 4 * 4096 {
                shrunk += 1;
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(mailbox.take_errors(), []);
    }
    shrunk
}

/// Regression: a lane whose large messages came rarely made its chunk again for each of them, which
/// took 43 ms for frames of 8 MiB. Each return in vain doubles the time until the next one.
#[test]
fn lane_that_grows_again_keeps_its_chunk_longer() {
    alone!();
    const AFTER: Duration = Duration::from_millis(4);
    let child = fork(|| {
        let (place, mut mailbox) = bound_with(&Options::new().shrink_after(AFTER));
        let mut sender = Options::new().connect(&place.path).expect("connects");
        let inherited = mapped_chunks();
        for returns in 0..5 {
            cross(&mut mailbox, &mut sender, &[7; 200_000]);
            let received = Instant::now();
            until("the lane returns its chunk", || {
                sender.service().expect("alive");
                assert_eq!(mailbox.try_recv().map(drop), Err(Error::WouldBlock));
                mapped_chunks().saturating_sub(inherited) <= 4 * 4096
            });
            let kept = received.elapsed();
            assert!(kept >= AFTER * (1 << returns), "return {returns} after {kept:?}");
        }
    });
    assert_eq!(reap(child), 0);
}

/// Memory that an honest receiver releases is available to the lane again. The lane grows and
/// shrinks as often as requested, to a total of many times its cap.
#[test]
fn honest_lane_grows_and_shrinks_many_times_over_cap() {
    alone!();
    let child = fork(|| {
        // A user may have 128 instances, some of which other programs may hold.
        let init = || rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC);
        until("an inotify instance is free", || init().is_ok());
        assert_eq!(grow_and_shrink(60, 1_000, &Options::new().lane_cap(CAP)), 60);
    });
    assert_eq!(reap(child), 0);
}

/// Denies this process any further inotify instance.
fn forbid_inotify() {
    forbid_call(libc::SYS_inotify_init1, libc::EMFILE, None);
}

/// If no instance is available (a user may have 128 by default), each released chunk counts against
/// the cap until the connection ends. A hostile receiver cannot exceed the cap.
#[test]
fn held_chunks_count_against_cap_without_inotify() {
    alone!();
    let child = fork(|| {
        forbid_inotify();
        give_back_again_and_again();
        read_again_and_again();
    });
    assert_eq!(reap(child), 0);
}

/// An honest lane does not stall without inotify either: it shrinks while its cap permits, then
/// keeps its large chunk and continues to send.
#[test]
fn honest_lane_keeps_large_chunk_without_inotify() {
    alone!();
    let child = fork(|| {
        forbid_inotify();
        let shrunk = grow_and_shrink(30, 20, &Options::new().lane_cap(CAP));
        assert!((1..30).contains(&shrunk), "{shrunk} times");
    });
    assert_eq!(reap(child), 0);
}

/// Sends and receives `message`, with as many calls as necessary.
fn cross(mailbox: &mut Mailbox, sender: &mut Sender, message: &[u8]) {
    let mut sent = false;
    until("the message has crossed", || {
        if !sent {
            match sender.try_send(message) {
                Ok(()) => sent = true,
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
        }
        mailbox.try_recv().is_ok_and(|received| {
            assert!(*received == *message);
            true
        })
    });
    while mailbox.try_recv().is_ok() {}
    assert_eq!(mailbox.take_errors(), []);
}

/// Runs `body` in a process with inotify, and in one that can have no instance. Passes it whether
/// it has inotify.
fn with_and_without_inotify(body: fn(bool)) {
    for inotify in [true, false] {
        let child = fork(|| {
            if !inotify {
                forbid_inotify();
            }
            body(inotify);
        });
        assert_eq!(reap(child), 0, "inotify: {inotify}");
    }
}

/// Regression: a receiver forked a worker while a lane was large, and while the worker lives, its
/// copy of the mapping holds the large chunk. A lane that shrank and grew a little must not be
/// permanently prevented from sending its longest message.
#[test]
fn chunk_held_by_forked_worker_does_not_block_messages() {
    alone!();
    with_and_without_inotify(|_| {
        let place = place();
        let options = Options::new().lane_cap(CAP);
        let receiving = options.clone().shrink_after(Duration::from_millis(1));
        let mut mailbox = receiving.bind(&place.path).expect("binds");
        let mut sender = options.connect(&place.path).expect("connects");
        let longest = vec![1; sender.max_message_len()];
        cross(&mut mailbox, &mut sender, &longest);
        let worker = fork(sleep_indefinitely);
        for length in [8, 60_000, longest.len(), 8, 30_000, 60_000, 120_000, longest.len()] {
            for _ in 0..5 {
                thread::sleep(Duration::from_millis(2));
                sender.service().expect("alive");
                assert_eq!(mailbox.try_recv().map(drop), Err(Error::WouldBlock));
            }
            cross(&mut mailbox, &mut sender, &vec![2; length]);
        }
        kill(worker);
    });
}

/// Regression: the chunks of an earlier connection used up the cap, and a sender waited
/// indefinitely although its lane was empty and its receiver idle. It now learns why: the release
/// of the chunks cannot be observed, or workers of the earlier receiver map them.
#[test]
fn message_without_space_for_held_chunks_fails_with_reason() {
    alone!();
    with_and_without_inotify(|inotify| {
        let place = place();
        let small = Options::new().lane_cap(1 << 15).shrink_after(Duration::from_millis(1));
        let mut mailbox = small.bind(&place.path).expect("binds");
        let sending = Options::new().lane_cap(1 << 17).on_death(OnDeath::WaitThroughRestarts);
        let sending = sending.handshake_timeout(Duration::from_millis(200));
        let mut sender = sending.connect(&place.path).expect("connects");
        let mut workers = Vec::new();
        for _ in 0..10 {
            cross(&mut mailbox, &mut sender, &[1; 7_000]);
            workers.push(fork(sleep_indefinitely));
            for _ in 0..40 {
                thread::sleep(Duration::from_millis(2));
                sender.service().expect("alive");
                assert_eq!(mailbox.try_recv().map(drop), Err(Error::WouldBlock));
            }
        }
        drop(mailbox);
        let mut mailbox = Options::new().bind(&place.path).expect("a free address");
        cross(&mut mailbox, &mut sender, &[2; 8]);
        let mut error = None;
        until("the sender learns the reason", || {
            error = sender.try_send(&[3; 20_000]).err().filter(|it| *it != Error::WouldBlock);
            mailbox.try_recv().map(drop).expect_err("no space");
            error.is_some()
        });
        let Some(Error::ChunksHeld { is_unknown, .. }) = error else { panic!("{error:?}") };
        assert_eq!(is_unknown, !inotify);
        cross(&mut mailbox, &mut sender, &[4; 8]);
        workers.into_iter().for_each(kill);
    });
}
