//! POSIX message queues: `posix-mq`, and [`nameless`] queues, whose names are unlinked before the
//! first message.

#![allow(unsafe_code, reason = "POSIX message queues")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::os::checked;
use tontine_bench::os::shared::first_free_name;

use crate::about::{AfterKill, Death, Explored, Listing, Mechanism, RowKind};
use crate::descriptor::again;
use crate::driver::{NAMED_BYTES, NamedDriver, PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{
    Duplex, Inlet, Outlet, Patient, Peers, Transfer, TransferError, check, deadline_in,
};
use crate::location::Location;
use crate::operation::Operation;

/// Capacity of a stream's queue in messages: the number that every system allows (`msg_max`).
const DEPTH: usize = 10;
/// Capacity of a named queue in messages, below that limit.
const NAMED_DEPTH: u32 = 4;

pub struct PosixMq;

pub const MECHANISM: Mechanism = Mechanism {
    shared_up_to: usize::MAX,
    explored: Some(Explored::new(
        "posix-mq",
        "a POSIX message queue",
        &Operation::OF_A_BOUNDED_QUEUE,
        || NAMED_DEPTH,
    )),
    ..Mechanism::new(
        "posix-mq",
        Death::LeavesOne { row: "posix-mq", survivor: AfterKill::Wedged },
        &[
            Listing::new(RowKind::RoundTrip, "two POSIX message queues"),
            Listing::new(RowKind::Throughput, "a POSIX message queue of ten messages"),
            Listing::new(RowKind::Survival, "two POSIX message queues"),
            Listing::new(RowKind::WakeUp, "a POSIX message queue"),
        ],
    )
};

impl PairDriver for PosixMq {
    /// The queue to read from and the queue to write to; each end has both.
    type Half = (OwnedFd, OwnedFd);
    type End<const BYTES: usize> = Duplex<PosixMqSender, Exit<[u8; BYTES]>>;

    fn pair(bytes: usize) -> Result<PairHalves<Self::Half>> {
        let (ask, answer) = (nameless(1, bytes)?, nameless(1, bytes)?);
        let two = (again(&ask)?, again(&answer)?);
        Ok(PairHalves::of(((answer, ask), two)))
    }

    fn open<const BYTES: usize>(
        (read, write): Self::Half,
        _: Peers<'_>,
    ) -> Result<Self::End<BYTES>> {
        Ok(Duplex::new(PosixMqSender(write), Exit { queue: read, buffer: [0; BYTES] }))
    }
}

impl StreamDriver for PosixMq {
    type Fixture = (OwnedFd, Traffic);
    type Out = PosixMqSender;
    type In = Exit<Vec<u8>>;

    fn set_up(traffic: Traffic) -> Result<Self::Fixture> {
        Ok((nameless(DEPTH, traffic.bytes)?, traffic))
    }

    fn outlet((queue, _): &Self::Fixture, _: usize) -> Result<PosixMqSender> {
        again(queue).map(PosixMqSender)
    }

    fn inlet((queue, traffic): &Self::Fixture, _: Peers<'_>) -> Result<Self::In> {
        Ok(Exit { queue: again(queue)?, buffer: vec![0; traffic.bytes] })
    }
}

impl NamedDriver for PosixMq {
    type Out = PosixMqSender;
    type In = Exit<[u8; NAMED_BYTES]>;

    fn create(at: &Location) -> Result<()> {
        by_name(at, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR).map(drop)
    }

    fn sender(at: &Location) -> Result<PosixMqSender> {
        by_name(at, libc::O_WRONLY).map(PosixMqSender)
    }

    fn receiver(at: &Location) -> Result<Self::In> {
        Ok(Exit { queue: by_name(at, libc::O_RDONLY)?, buffer: [0; NAMED_BYTES] })
    }
}

fn by_name(at: &Location, flags: libc::c_int) -> Result<OwnedFd> {
    open(&at.posix_name(), flags, NAMED_DEPTH as usize, NAMED_BYTES).setting_up("mq_open")
}

#[derive(Debug)]
pub struct PosixMqSender(OwnedFd);

impl Outlet for PosixMqSender {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        while let Err(error) = send(&self.0, message) {
            interrupted("mq_send", error, peers)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct Exit<B> {
    queue: OwnedFd,
    buffer: B,
}

impl<B: AsMut<[u8]>> Inlet for Exit<B> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let buffer = self.buffer.as_mut();
        loop {
            match receive(&self.queue, buffer, None) {
                Ok(got) => return Ok(look(&buffer[..got])),
                Err(error) => interrupted("mq_receive", error, peers)?,
            }
        }
    }
}

impl<B: AsMut<[u8]>> Patient for Exit<B> {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        let buffer = self.buffer.as_mut();
        match receive(&self.queue, buffer, Some(&deadline_in(time))) {
            Ok(got) => Ok(Some(look(&buffer[..got]))),
            Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => Ok(None),
            Err(error) => Err(error).during("mq_timedreceive").map_err(TransferError::from),
        }
    }
}

/// Handles a failed call. If the call was only interrupted, checks the peers.
#[cold]
fn interrupted(call: &str, error: io::Error, peers: Peers<'_>) -> Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { check(peers) } else { Err(error).during(call) }
}

/// The file that contains the system's limit on the size of a message.
const LIMIT: &str = "/proc/sys/fs/mqueue/msgsize_max";

/// Creates a queue for up to `depth` messages of up to `bytes` bytes. On Linux its descriptor is a
/// file descriptor.
pub fn nameless(depth: usize, bytes: usize) -> Result<OwnedFd> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let open = |name: &CStr| open(name, flags, depth, bytes);
    let (name, queue) = first_free_name(open).map_err(|error| refused(depth, bytes, error))?;
    // SAFETY: `name` is a C string.
    checked(unsafe { libc::mq_unlink(name.as_ptr()) }).setting_up("mq_unlink")?;
    Ok(queue)
}

fn open(name: &CStr, flags: libc::c_int, depth: usize, bytes: usize) -> io::Result<OwnedFd> {
    let mode: libc::mode_t = 0o600;
    // SAFETY: the name is a C string; the attributes are a valid plain structure that outlives the
    // call; a returned descriptor is new, and owned here.
    unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        attributes.mq_maxmsg = depth as libc::c_long;
        attributes.mq_msgsize = bytes as libc::c_long;
        let flags = flags | libc::O_CLOEXEC;
        checked(libc::mq_open(name.as_ptr(), flags, mode, &raw const attributes))
            .map(|queue| OwnedFd::from_raw_fd(queue))
    }
}

/// Converts an error of `mq_open`: EINVAL means a message size above the system's limit, EMFILE a
/// queue above RLIMIT_MSGQUEUE.
fn refused(depth: usize, bytes: usize, error: io::Error) -> MeasureError {
    let requested = format!("{depth} messages of {bytes} bytes");
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            let limit = std::fs::read_to_string(LIMIT).unwrap_or_default();
            let limit = limit.trim();
            MeasureError::skip(format!("mq_open of {requested}: {error}; {LIMIT} is {limit}"))
        }
        Some(libc::EMFILE) => MeasureError::skip(format!(
            "mq_open of {requested}: {error}, or RLIMIT_MSGQUEUE is too small"
        )),
        _ => MeasureError::setting_up("mq_open", error),
    }
}

#[inline(always)]
fn send(queue: &OwnedFd, message: &[u8]) -> io::Result<()> {
    let (at, length) = (message.as_ptr().cast(), message.len());
    // SAFETY: the queue is open; pointer and length are those of a live slice.
    checked(unsafe { libc::mq_send(queue.as_raw_fd(), at, length, 0) }).map(|_| ())
}

/// Receives a message from a queue. `into` must be as long as the longest message that the queue
/// accepts.
#[inline(always)]
fn receive(queue: &OwnedFd, into: &mut [u8], until: Option<&libc::timespec>) -> io::Result<usize> {
    let (queue, at, length) = (queue.as_raw_fd(), into.as_mut_ptr().cast(), into.len());
    let priority = std::ptr::null_mut();
    // SAFETY: the queue is open; pointer and length are those of a live slice that may be written;
    // the deadline is borrowed for the call.
    let got = unsafe {
        match until {
            None => libc::mq_receive(queue, at, length, priority),
            Some(until) => libc::mq_timedreceive(queue, at, length, priority, until),
        }
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_keeps_messages_whole_and_in_order() {
        let queue = match nameless(2, 16) {
            Ok(queue) => queue,
            Err(trouble) => return eprintln!("{trouble}"),
        };
        send(&queue, b"first").expect("free space");
        send(&queue, b"2nd").expect("free space");
        let mut into = [0; 16];
        assert_eq!(receive(&queue, &mut into, None).expect("a message"), 5);
        assert_eq!(&into[..5], b"first");
        assert_eq!(receive(&queue, &mut into, None).expect("a message"), 3);
    }

    #[test]
    fn size_beyond_limit_is_a_skip() {
        let Err(MeasureError::Skipped(why)) = nameless(1, 1 << 30) else {
            panic!("no queue takes messages of a gibibyte");
        };
        assert!(why.contains("mq_open of 1 messages of 1073741824 bytes"), "{why}");
    }
}
