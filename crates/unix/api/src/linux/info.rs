//! The information that accompanies a signal: [`decode`] converts a `siginfo_t` to a [`SigInfo`],
//! and a [`QueuedSiginfo`] is a `siginfo_t` for sending.

#![allow(unsafe_code, reason = "which fields of a siginfo_t hold depends on its code")]

use crate::process::FAULTS;
use crate::signal::Signal;
use crate::sys::{SigCode, SigInfo};

/// The code of a sent fault. Positive codes distinguish kinds of faults, and any positive code is
/// accepted.
const ANY_FAULT: i32 = 1;

/// A `siginfo_t` for sending: its head, and the fields of the union that `sigqueue` fills.
#[derive(Debug)]
#[repr(C)]
pub(super) struct QueuedSiginfo {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    pid: i32,
    uid: u32,
    value: i64,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<QueuedSiginfo>() == size_of::<libc::siginfo_t>());
const _: () = assert!(std::mem::offset_of!(QueuedSiginfo, code) == 8);
const _: () = assert!(std::mem::offset_of!(QueuedSiginfo, pid) == 16);
const _: () = assert!(std::mem::offset_of!(QueuedSiginfo, value) == 24);

impl QueuedSiginfo {
    /// Returns the information for `sigqueue`.
    pub(super) fn queued(signal: i32, value: i32) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let uid = rustix::process::getuid().as_raw();
        let value = i64::from(value);
        Self { signal, errno: 0, code: libc::SI_QUEUE, pad: 0, pid, uid, value, rest: [0; 12] }
    }

    /// Returns the information for a fault of the thread itself. The fault's address, which
    /// overlays the process number, is 0.
    pub(super) fn fault(signal: i32) -> Self {
        Self { signal, errno: 0, code: ANY_FAULT, pad: 0, pid: 0, uid: 0, value: 0, rest: [0; 12] }
    }
}

/// Converts the information that the kernel wrote; returns `None` for the two signals that the C
/// library reserves.
pub(super) fn decode(info: &libc::siginfo_t) -> Option<SigInfo> {
    let signal = Signal::new(info.si_signo)?;
    let code = code(signal, info.si_code);
    let mut decoded = SigInfo { code, ..SigInfo::kernel(signal) };
    match code {
        SigCode::Kernel | SigCode::Fault => {}
        // SAFETY: for these three codes the kernel sets si_pid and si_uid, and for SI_QUEUE also
        // si_value; the union is plain integers, all of which the kernel initializes.
        SigCode::User | SigCode::Tkill | SigCode::Queue => unsafe {
            decoded.pid = info.si_pid();
            decoded.uid = info.si_uid();
            if code == SigCode::Queue {
                decoded.value = info.si_value().sival_ptr.addr() as i32;
            }
        },
        // SAFETY: for a CLD code the kernel sets si_pid, si_uid and si_status.
        _ => unsafe {
            decoded.pid = info.si_pid();
            decoded.uid = info.si_uid();
            decoded.status = info.si_status();
        },
    }
    Some(decoded)
}

fn code(signal: Signal, code: i32) -> SigCode {
    match code {
        libc::SI_USER => SigCode::User,
        libc::SI_QUEUE => SigCode::Queue,
        libc::SI_TKILL => SigCode::Tkill,
        1.. if code != libc::SI_KERNEL && FAULTS.contains(signal) => SigCode::Fault,
        libc::CLD_EXITED if signal == Signal::CHLD => SigCode::Exited,
        libc::CLD_KILLED if signal == Signal::CHLD => SigCode::Killed,
        libc::CLD_DUMPED if signal == Signal::CHLD => SigCode::Dumped,
        libc::CLD_TRAPPED if signal == Signal::CHLD => SigCode::Trapped,
        libc::CLD_STOPPED if signal == Signal::CHLD => SigCode::Stopped,
        libc::CLD_CONTINUED if signal == Signal::CHLD => SigCode::Continued,
        _ => SigCode::Kernel,
    }
}
