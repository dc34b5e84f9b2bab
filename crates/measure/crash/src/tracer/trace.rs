//! The tracer's `ptrace` requests, each with its meaning: [`TracedTask`].

#![allow(unsafe_code, reason = "ptrace and process_vm_readv")]

use std::io;
use std::ptr;

use rustix::process::Pid;

use super::registers::{self, Registers};
use super::stores;
use tontine_bench::error::{ErrorContext, Result};

/// A thread that is traced by the calling thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct TracedTask {
    pid: libc::pid_t,
}

/// The event until which a resumed thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resume {
    /// The thread runs one instruction.
    Step,
    /// The thread runs to the next entry or exit of a system call, or to an earlier stop.
    ToCall,
    /// The thread runs to the next stop.
    Freely,
}

impl TracedTask {
    /// Begins to trace the thread, which keeps running. If the tracer ends, the kernel kills the
    /// thread.
    pub(super) fn seize(pid: Pid) -> Result<Self> {
        let trace = Self { pid: pid.as_raw_nonzero().get() };
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        trace
            .request(libc::PTRACE_SEIZE, 0, options as usize)
            .setting_up("ptrace(PTRACE_SEIZE)")?;
        Ok(trace)
    }

    /// Resumes the thread; delivers `signal` to it unless that is 0.
    pub(super) fn resume(self, how: Resume, signal: i32) -> Result<()> {
        let request = match how {
            Resume::Step => libc::PTRACE_SINGLESTEP,
            Resume::ToCall => libc::PTRACE_SYSCALL,
            Resume::Freely => libc::PTRACE_CONT,
        };
        self.request(request, 0, signal.unsigned_abs() as usize).during("ptrace, resuming")
    }

    pub(super) fn registers(self) -> Result<Registers> {
        registers::read(self.pid).during("ptrace(PTRACE_GETREGS)")
    }

    /// Makes the processor stop the thread before the instruction at `at`; `None` removes the stop.
    pub(super) fn stop_at(self, at: Option<u64>) -> io::Result<()> {
        registers::stop_at(self.pid, at)
    }

    /// Returns the bytes at an address, up to the maximum length of an instruction; fewer at the
    /// end of a mapping.
    pub(super) fn instruction(self, at: u64) -> Vec<u8> {
        let mut code = vec![0; stores::LONGEST];
        if self.read(&[(at, code.len())], &mut code).is_err() {
            code.truncate((PAGE - at % PAGE).min(stores::LONGEST as u64) as usize);
            if self.read(&[(at, code.len())], &mut code).is_err() {
                code.clear();
            }
        }
        code
    }

    /// Returns the two bytes at an address; fewer at the end of a mapping.
    pub(super) fn code(self, at: u64) -> [u8; 2] {
        let mut code = [0; 2];
        for (place, at) in code.iter_mut().zip(at..) {
            let mut byte = [0];
            if self.read(&[(at, 1)], &mut byte).is_err() {
                break;
            }
            *place = byte[0];
            // The second byte matters only after this prefix byte.
            if byte[0] != registers::TWO_BYTES {
                break;
            }
        }
        code
    }

    /// Copies regions of the thread's memory, one after the other.
    pub(super) fn read(self, from: &[(u64, usize)], into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        for some in from.chunks(MOST_REGIONS) {
            let remote: Vec<libc::iovec> = some
                .iter()
                .map(|(at, length)| libc::iovec {
                    iov_base: ptr::with_exposed_provenance_mut(*at as usize),
                    iov_len: *length,
                })
                .collect();
            let wanted: usize = some.iter().map(|(_, length)| length).sum();
            let part = &mut into[done..done + wanted];
            let local = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: wanted };
            // SAFETY: `local` is the exclusively borrowed `part`; the kernel checks the addresses
            // of the other process.
            let read = unsafe {
                libc::process_vm_readv(
                    self.pid,
                    &raw const local,
                    1,
                    remote.as_ptr(),
                    remote.len() as libc::c_ulong,
                    0,
                )
            };
            match usize::try_from(read) {
                Ok(read) if read == wanted => done += wanted,
                Ok(_) => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }

    /// Returns the address at which the kernel will look for the thread's robust mutexes when it
    /// dies.
    pub(super) fn robust_list(self) -> Option<u64> {
        let mut head: *mut libc::c_void = ptr::null_mut();
        let mut length: usize = 0;
        // SAFETY: both pointers refer to live local variables of the types that the call fills.
        let returned = unsafe {
            libc::syscall(libc::SYS_get_robust_list, self.pid, &raw mut head, &raw mut length)
        };
        (returned == 0 && !head.is_null()).then(|| head.expose_provenance() as u64)
    }

    fn request(
        self,
        #[cfg(target_env = "musl")] request: libc::c_int,
        #[cfg(not(target_env = "musl"))] request: libc::c_uint,
        address: usize,
        data: usize,
    ) -> io::Result<()> {
        // SAFETY: no request made here lets the kernel write to this process's memory.
        match unsafe { libc::ptrace(request, self.pid, address, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

const PAGE: u64 = 4_096;

/// Maximum number of regions in one call: UIO_MAXIOV.
const MOST_REGIONS: usize = 1_024;
