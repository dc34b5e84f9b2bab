//! Automatic names of sockets that another user holds: [`HeldNames`].
//!
//! The kernel gives an automatic name to a socket that connects or sends with `SO_PASSCRED` and has
//! no name. It tries one of 2^20 names after the other, from a random one, so that a socket whose
//! first name lies among many that are held gets a name late. The names belong to a network
//! namespace; the run has one of its own, so that no other program waits.

#![allow(unsafe_code, reason = "a namespace, a network device, and a timer")]

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit};

use super::common::sleep_indefinitely;
use super::raw;
use super::senders::STRANGER;
use super::worker::{self, ForkedWorker, SharedWords};

/// Number of consecutive names that are held for each type of socket. The time in which the kernel
/// tries them all grows with the square of this number; it exceeds the maximum duration of a call.
const NAMES: u32 = 80_000;

/// Number of descriptors that a holder needs for other purposes.
const OTHER_FDS: u64 = 64;

/// The types of sockets for which the names are held. Sockets of different types share no names.
const KINDS: [SocketType; 2] = [SocketType::SEQPACKET, SocketType::DGRAM];

/// The processes that hold the names. They end with this value.
#[derive(Debug)]
pub(super) struct HeldNames {
    _holders: Vec<ForkedWorker>,
    taken: SharedWords,
}

impl HeldNames {
    /// Enters a new network namespace, and lets another user take the names in it.
    ///
    /// # Errors
    /// The reason why this machine cannot do so.
    pub(super) fn start() -> Result<Self, String> {
        enter_network().map_err(|error| format!("a network namespace needs root ({error})"))?;
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::from(NAMES) + OTHER_FDS);
        let each = limit.saturating_sub(OTHER_FDS).clamp(1, NAMES.into()) as u32;
        let taken = worker::shared(1);
        let hold = |before: u64, kind, names: Range<u32>| {
            worker::become_user(STRANGER);
            worker::limit_descriptors(limit, None);
            // The run may be longer than a worker's lifetime.
            // SAFETY: the call cancels a timer.
            unsafe { libc::alarm(0) };
            // The holders take turns, to leave the processors to the run.
            while worker::get(&taken[0]) < before {
                std::thread::sleep(Duration::from_millis(10));
            }
            for number in names {
                take_name(kind, number);
                worker::add(&taken[0], 1);
            }
            sleep_indefinitely();
        };
        let (mut _holders, mut before) = (Vec::new(), 0);
        for first in (0..NAMES).step_by(each as usize) {
            for kind in KINDS {
                let names = first..NAMES.min(first + each);
                let count = names.len() as u64;
                let hold = || hold(before, kind, names);
                _holders.push(ForkedWorker::start("holder of names", hold));
                before += count;
            }
        }
        Ok(Self { _holders, taken })
    }

    /// Returns the number of names that are held, and the number to hold.
    pub(super) fn count(&self) -> (u64, u64) {
        (worker::get(&self.taken[0]), u64::from(NAMES) * KINDS.len() as u64)
    }
}

/// Binds a socket that this process never closes, unless another socket has the name.
fn take_name(kind: SocketType, number: u32) {
    let socket = ManuallyDrop::new(raw::unbound(kind));
    let name = SocketAddrUnix::new_abstract_name(format!("{number:05x}").as_bytes());
    match rustix::net::bind(&*socket, &name.expect("a short name")) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => drop(ManuallyDrop::into_inner(socket)),
        Err(errno) => panic!("a name cannot be taken: {errno}"),
    }
}

/// Enters a new network namespace, in which the address 127.0.0.1 works as usual.
fn enter_network() -> std::io::Result<()> {
    // SAFETY: the call takes an integer, and affects only this thread, the only one.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    // SAFETY: all zero is a valid value of this C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the request is the struct that the call reads.
    match unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
