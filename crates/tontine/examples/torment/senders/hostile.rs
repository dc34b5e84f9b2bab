//! A hostile sender: [`play`] generates and runs one case after the other.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::common::{Random, is_readable};
use super::super::descriptors::Stock;
use super::super::raw::{self, Memory, RING};
use super::super::slice::Slice;
use super::super::{wire, worker};
use super::Victims;

/// Number of connections that a hostile sender keeps open.
const MAX_KEPT: usize = 30;

/// Number of those that are sound except for their chunks.
const MAX_MAPPED: usize = 8;

/// Maximum number of chunks of a `HELLO`.
const MAX_CHUNKS: u64 = 32;

/// Runs cases until `stop` is set.
pub(super) fn play(slice: &Slice, victims: &Victims, unanswered: Option<&File>, stop: &AtomicU64) {
    let (mut kept, mut mapped) = (VecDeque::new(), VecDeque::new());
    while worker::get(stop) == 0 {
        let mut random = slice.random(slice.next_case());
        if random.below(3) == 0 {
            mapped.extend(match random.below(2) {
                0 => HostileConnection::begin_with_chunks(&mut random, victims),
                _ => HostileConnection::begin_early(&mut random, victims),
            });
            if mapped.len() > MAX_MAPPED {
                mapped.pop_front();
            }
            continue;
        }
        let stock = Stock::new(
            &mut random,
            &[&victims.lock, &victims.database],
            unanswered.map(AsFd::as_fd),
        );
        let Some(mut lane) = HostileConnection::begin(&mut random, victims, &stock) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        for _ in 0..random.below(12) {
            lane.act(&mut random, &stock);
        }
        if random.below(3) == 0 {
            kept.push_back(lane);
        }
        while kept.len() > MAX_KEPT || (!kept.is_empty() && random.below(4) == 0) {
            kept.pop_front();
        }
    }
}

/// A connection with the chunks that were passed through it.
struct HostileConnection {
    socket: OwnedFd,
    chunks: Vec<(Memory, usize)>,
    /// Offset of the end of the last record in the last chunk.
    tail: usize,
    bell: Option<OwnedFd>,
}

impl HostileConnection {
    /// Connects, and passes chunks with `HELLO` and afterwards, of which the receiver maps as many
    /// as it accepts.
    fn begin_with_chunks(random: &mut Random, victims: &Victims) -> Option<Self> {
        let logs = match random.below(3) {
            // Each is as large as all before it together.
            0 => std::iter::once(12).chain(12..12 + random.below(9) as u32).collect(),
            1 => vec![12; 1 + random.below(MAX_CHUNKS) as usize],
            _ => vec![12],
        };
        let lane = Self::dial(victims, &logs)?;
        let names: Vec<u8> = logs.iter().map(|log2| *log2 as u8).collect();
        let mut fds = vec![raw::life()];
        fds.extend(lane.chunks.iter().map(|(chunk, _)| chunk.fd.as_fd()));
        wire::say(&lane.socket, &raw::hello(1 << 20, &names), &fds);
        wire::say(&lane.socket, &raw::note(raw::WANT, &[1 << 20, 0]), &[]);
        // Wait for the grant, which makes the receiver take the chunks at once.
        is_readable(&lane.socket, Duration::from_millis(20));
        let log2 = 12 + random.below(3) as u32;
        let chunk = raw::chunk(log2);
        let most = wire::pick(random, &[4, 2 * MAX_CHUNKS]);
        for sequence in 0..random.below(most) {
            let note = raw::chunk_note(log2, lane.chunks.len() as u64 + sequence);
            wire::say(&lane.socket, &note, &[chunk.fd.as_fd()]);
        }
        Some(lane)
    }

    /// Connects, and passes a chunk before any grant, as an honest sender may. The receiver accepts
    /// it and reads the message in it. Then the sender stays silent, and keeps the memory.
    fn begin_early(random: &mut Random, victims: &Victims) -> Option<Self> {
        let mut lane = Self::dial(victims, &[12])?;
        let fds = [raw::life(), lane.chunks[0].0.fd.as_fd()];
        wire::say(&lane.socket, &raw::hello(1 << 20, &[12]), &fds);
        // 8 to 512 KiB: together with the first chunk at most what needs no grant.
        let log2 = 13 + random.below(7) as u32;
        let next = raw::chunk(log2);
        wire::say(&lane.socket, &raw::chunk_note(log2, 1), &[next.fd.as_fd()]);
        lane.continue_in(next, log2);
        lane.put_message(random);
        Some(lane)
    }

    /// Connects, and makes chunks of these sizes, which are powers of two.
    fn dial(victims: &Victims, logs: &[u32]) -> Option<Self> {
        let socket = wire::dial(&victims.socket)?;
        let chunks = logs.iter().map(|log2| (raw::chunk(*log2), 1_usize << log2)).collect();
        Some(Self { socket, chunks, tail: RING, bell: None })
    }

    /// Connects and sends a valid or an invalid `HELLO`, or nothing.
    fn begin(random: &mut Random, victims: &Victims, stock: &Stock<'_>) -> Option<Self> {
        let count = 1 + random.below(3) as usize;
        let logs: Vec<u32> = (0..count).map(|_| 12 + random.below(5) as u32).collect();
        let mut lane = Self::dial(victims, &logs)?;
        if random.below(12) == 0 {
            return Some(lane);
        }
        let names: Vec<u8> = logs.iter().map(|log2| *log2 as u8).collect();
        let (position, base) = match random.below(4) {
            0 => (wire::edge(random), wire::edge(random)),
            _ => (0, 0),
        };
        let cap = if random.below(3) == 0 { wire::edge(random) } else { 1 << 20 };
        let mut bytes = raw::hello_at(cap, position, base, &names);
        // A chunk that is not the newest ends with the header of the next chunk.
        for ((chunk, _), next) in lane.chunks.iter().zip(&logs[1..]) {
            chunk.put(RING, raw::header(3, u64::from(*next)));
        }
        if random.below(2) == 0 {
            lane.put_message(random);
        }
        if random.below(4) == 0 {
            wire::mutate(random, &mut bytes);
        }
        let mut fds: Vec<BorrowedFd<'_>> = vec![raw::life()];
        fds.extend(lane.chunks.iter().map(|(chunk, _)| chunk.fd.as_fd()));
        match random.below(8) {
            0 => {
                let at = random.below(fds.len() as u64) as usize;
                fds[at] = stock.some(random, 1)[0];
            }
            1 => {
                let more = random.below(wire::MAX_FDS as u64) as usize;
                fds.extend(stock.some(random, more));
            }
            2 => {
                let count = random.below(wire::MAX_FDS as u64 + 1) as usize;
                fds = stock.some(random, count);
            }
            3 => fds.truncate(random.below(fds.len() as u64) as usize),
            _ => {}
        }
        wire::say(&lane.socket, &bytes, &fds);
        Some(lane)
    }

    /// Takes one random action, permitted or not.
    fn act(&mut self, random: &mut Random, stock: &Stock<'_>) {
        match random.below(16) {
            0..3 => self.put_message(random),
            3 | 4 => self.put_garbage(random),
            5 => self.pass_chunk(random, stock),
            6 => {
                let wanted = wire::edge(random);
                let halves = [wanted as u32, (wanted >> 32) as u32];
                for _ in 0..1 + random.below(40) {
                    wire::say(&self.socket, &raw::note(raw::WANT, &halves), &[]);
                }
            }
            7 => {
                let kind = wire::pick(random, &[raw::SPACE, raw::RETURNED, raw::HELLO, 77]);
                wire::say(&self.socket, &raw::note(kind, &[]), &[]);
            }
            8 | 9 => self.flood(random, stock),
            10 => self.hear(random, stock),
            11 => {
                let flags = wire::pick(
                    random,
                    &[
                        rustix::net::Shutdown::Read,
                        rustix::net::Shutdown::Write,
                        rustix::net::Shutdown::Both,
                    ],
                );
                let _ = rustix::net::shutdown(&self.socket, flags);
            }
            12 => {
                let handover = wire::edge(random) as u32;
                self.chunks.iter().for_each(|(chunk, _)| {
                    chunk.half(68).store(handover, Ordering::Relaxed);
                });
            }
            13 => {
                let waiting = random.below(2) as u32;
                self.chunks[0].0.half(64).store(waiting, Ordering::Relaxed);
            }
            _ => std::thread::sleep(Duration::from_micros(random.below(2_000))),
        }
    }

    /// Sends messages with random bytes and many descriptors.
    fn flood(&self, random: &mut Random, stock: &Stock<'_>) {
        for _ in 0..1 + random.below(6) {
            let kind = wire::pick(random, &[raw::CHUNK, raw::WANT, raw::RETURNED, 0, 9]);
            let mut bytes = raw::note(kind, &[random.next() as u32; 4]);
            if random.below(2) == 0 {
                wire::mutate(random, &mut bytes);
            }
            let count = random.below(wire::MAX_FDS as u64 + 1) as usize;
            wire::say(&self.socket, &bytes, &stock.some(random, count));
        }
    }

    /// Publishes a message as an honest sender would.
    fn put_message(&mut self, random: &mut Random) {
        let Some((chunk, size)) = self.chunks.last() else { return };
        let space = size.saturating_sub(self.tail + 16);
        let len = random.below(2_000).min(space as u64);
        let takes = 8 + (len as usize).next_multiple_of(8);
        if space < takes {
            return;
        }
        chunk.put(self.tail + takes, 0);
        chunk.put_message(self.tail, len);
        self.tail += takes;
    }

    /// Writes a header that no honest sender writes.
    fn put_garbage(&mut self, random: &mut Random) {
        let at = random.below(self.chunks.len() as u64) as usize;
        let (chunk, size) = &self.chunks[at];
        let place = match random.below(3) {
            0 => self.tail.min(size - 8),
            1 => RING,
            _ => RING + random.below((size - RING) as u64 / 8) as usize * 8,
        };
        let length = wire::edge(random) & u64::from(u32::MAX);
        let word = match random.below(4) {
            0 => wire::edge(random),
            1 => raw::header(2, (size - place - 8) as u64),
            2 => raw::header(3, 12 + random.below(4)),
            _ => raw::header(random.below(5), length),
        };
        chunk.put(place, word);
    }

    /// Passes another chunk, correctly or not.
    fn pass_chunk(&mut self, random: &mut Random, stock: &Stock<'_>) {
        let log2 = 12 + random.below(6) as u32;
        let next = raw::chunk(log2);
        let sequence = match random.below(3) {
            0 => wire::edge(random),
            _ => self.chunks.len() as u64,
        };
        let mut note = raw::chunk_note(log2, sequence);
        if random.below(4) == 0 {
            wire::mutate(random, &mut note);
        }
        let fds = match random.below(4) {
            0 => stock.some(random, 1),
            1 => Vec::new(),
            _ => vec![next.fd.as_fd()],
        };
        wire::say(&self.socket, &note, &fds);
        self.continue_in(next, log2);
    }

    /// Publishes the header that leads to `next`, the chunk of the next messages.
    fn continue_in(&mut self, next: Memory, log2: u32) {
        let (chunk, size) = self.chunks.last().expect("a chunk");
        if self.tail + 8 <= *size {
            chunk.put(self.tail, raw::header(3, u64::from(log2)));
        }
        self.chunks.push((next, 1 << log2));
        self.tail = RING;
    }

    /// Reads the receiver's replies, and rings its doorbell with descriptors.
    fn hear(&mut self, random: &mut Random, stock: &Stock<'_>) {
        if let wire::SocketLook::Message(raw::WELCOME, mut fds) = wire::hear(&self.socket) {
            self.bell = fds.pop();
        }
        if let Some(bell) = &self.bell {
            let count = random.below(wire::MAX_FDS as u64 + 1) as usize;
            for _ in 0..1 + random.below(20) {
                wire::say(bell, b"ring", &stock.some(random, count));
            }
        }
    }
}
