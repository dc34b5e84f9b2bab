//! `posix-mq`: a POSIX message queue under a name.

#![allow(unsafe_code, reason = "POSIX message queues")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{End, Endpoint, Kind, Operation, Queue, Subject, Wait};
use crate::message::{LENGTH, Message};
use crate::place::Place;

/// Below the system's default limit of ten.
const CAPACITY: u32 = 4;

pub(super) struct PosixMq;

impl Subject for PosixMq {
    fn name(&self) -> &'static str {
        "posix-mq"
    }

    fn summary(&self) -> &'static str {
        "a POSIX message queue"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::OF_A_BOUNDED_QUEUE
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for PosixMq {
    fn capacity(&self) -> u32 {
        CAPACITY
    }

    fn create(&self, place: &Place) -> io::Result<()> {
        open(place, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR).map(drop)
    }

    fn open(&self, place: &Place, end: End) -> io::Result<Box<dyn Endpoint>> {
        let access = match end {
            End::Sender => libc::O_WRONLY,
            End::Receiver => libc::O_RDONLY,
        };
        Ok(Box::new(Descriptor(open(place, access)?)))
    }
}

fn open(place: &Place, flags: libc::c_int) -> io::Result<OwnedFd> {
    let name = place.posix_name();
    let mode: libc::mode_t = 0o600;
    // SAFETY: the name is a C string; the all-zero attributes are a valid plain structure that
    // outlives the call; a descriptor that is returned is new and ours.
    unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        attributes.mq_maxmsg = libc::c_long::from(CAPACITY);
        attributes.mq_msgsize = LENGTH as libc::c_long;
        let flags = flags | libc::O_CLOEXEC;
        match libc::mq_open(name.as_ptr(), flags, mode, &raw const attributes) {
            -1 => Err(io::Error::last_os_error()),
            queue => Ok(OwnedFd::from_raw_fd(queue)),
        }
    }
}

/// On Linux its descriptor is a file descriptor.
struct Descriptor(OwnedFd);

impl Endpoint for Descriptor {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        // SAFETY: the queue is open; the message is a live array of that length.
        match unsafe { libc::mq_send(self.0.as_raw_fd(), message.as_ptr().cast(), LENGTH, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        let (queue, into) = (self.0.as_raw_fd(), into.as_mut_ptr().cast());
        // SAFETY: the queue is open; its messages are as long as the array; the deadline is a live
        // local.
        let length = unsafe {
            match &wait.deadline() {
                None => libc::mq_receive(queue, into, LENGTH, std::ptr::null_mut()),
                Some(until) => {
                    libc::mq_timedreceive(queue, into, LENGTH, std::ptr::null_mut(), until)
                }
            }
        };
        if let Ok(length) = usize::try_from(length) {
            return Ok(Some(length));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ETIMEDOUT) { Ok(None) } else { Err(error) }
    }
}
