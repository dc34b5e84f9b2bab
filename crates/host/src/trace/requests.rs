//! The tracer's `ptrace` requests, each as a function: [`Traced`], [`wait_for_any`].

#![allow(unsafe_code, reason = "ptrace and waitpid")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// A stopped thread that the calling thread traces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traced(pub(super) libc::pid_t);

/// The position at which a system call is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyscallStop {
    /// At the entry, with the number and the arguments.
    Entry(u64, [u64; 6]),
    /// At the exit, with the result: a negative `errno` if it failed.
    Exit(i64),
    /// Any other stop, for example that of a filter.
    Other,
}

/// The kernel's `struct ptrace_syscall_info`, whose union is flat here. musl does not declare it.
#[repr(C)]
#[derive(Default)]
struct SyscallInfo {
    op: u8,
    flags: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// At the entry, the number of the call; at the exit, its result.
    first: u64,
    arguments: [u64; 6],
    filter_data: u64,
}

impl SyscallInfo {
    /// The `op` at the entry of a call.
    const ENTRY: u8 = 1;
    /// The `op` at the exit of a call.
    const EXIT: u8 = 2;
}

/// Options of every traced thread: distinguish calls from signals, also trace each created task,
/// and kill all tasks when the tracer ends.
const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

/// Lets the thread that forked this process trace it.
pub(super) fn trace_me() -> io::Result<()> {
    // SAFETY: the call only selects the thread that is notified of this process's stops.
    check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) }).map(|_| ())
}

/// Stops the calling single-threaded process until its tracer resumes it.
pub(super) fn stop_here() -> io::Result<()> {
    // SAFETY: the call sends a signal to this process.
    check(unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) }.into()).map(|_| ())
}

/// Unblocks all signals and resets SIGCHLD, as in a newly started program.
pub(super) fn as_in_a_fresh_program() -> io::Result<()> {
    // SAFETY: the set is filled before it is used; both calls only read their arguments.
    unsafe {
        if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        check(libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()).into())?;
    }
    Ok(())
}

/// Waits for a state change of any child or traced thread of the calling thread; returns its id and
/// status. Children of other threads are left to those threads.
pub(super) fn wait_for_any() -> io::Result<(libc::pid_t, libc::c_int)> {
    let mut status = 0;
    // SAFETY: the pointer refers to a live local variable.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    check(pid.into()).map(|_| (pid, status))
}

impl Traced {
    /// Sets [`OPTIONS`].
    pub(super) fn set_options(self) -> io::Result<()> {
        // SAFETY: the call accesses no memory of this process.
        let set =
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, self.0, 0_usize, OPTIONS as usize) };
        check(set).map(|_| ())
    }

    /// Resumes the thread until its next call; delivers `signal` to it unless the number is 0. A
    /// thread that has been killed is not an error: its end is the next event.
    pub(super) fn resume(self, signal: libc::c_int) -> io::Result<()> {
        let signal = signal.unsigned_abs() as usize;
        // SAFETY: the call accesses no memory of this process.
        match check(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.0, 0_usize, signal) }) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns `true` if the thread belongs to process `group`.
    pub(super) fn is_thread_of(self, group: libc::pid_t) -> bool {
        // SAFETY: signal 0 only checks.
        unsafe { libc::syscall(libc::SYS_tgkill, group, self.0, 0) == 0 }
    }

    /// Kills the thread's process.
    pub(super) fn kill(self) {
        // SAFETY: the number is not reused before its tracer, the calling thread, has reaped it.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Returns the position of a thread that a system call stopped.
    pub(super) fn system_call(self) -> io::Result<SyscallStop> {
        let mut info = SyscallInfo::default();
        let size = size_of::<SyscallInfo>();
        // PTRACE_GET_SYSCALL_INFO, whose type and existence depend on the C library.
        // SAFETY: the kernel writes at most `size` bytes to the live local variable, whose fields
        // are integers.
        check(unsafe { libc::ptrace(0x420e, self.0, size, &raw mut info) })?;
        Ok(match info.op {
            SyscallInfo::ENTRY => SyscallStop::Entry(info.first, info.arguments),
            SyscallInfo::EXIT => SyscallStop::Exit(info.first.cast_signed()),
            _ => SyscallStop::Other,
        })
    }

    /// Returns the information of the signal that the thread is about to receive; `None` if it
    /// stopped for another reason.
    pub(super) fn signal(self) -> Option<libc::siginfo_t> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the kernel fills the structure, as this request requires.
        let got =
            unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.0, 0_usize, info.as_mut_ptr()) };
        // SAFETY: the structure was zeroed and then filled; all bytes are valid.
        check(got).ok().map(|_| unsafe { info.assume_init() })
    }

    /// Copies memory of the stopped thread one word at a time, which any tracer is permitted to do.
    pub(super) fn read(self, at: u64, into: &mut [u8]) -> io::Result<()> {
        const WORD: u64 = size_of::<u64>() as u64;
        for (place, at) in into.iter_mut().zip(at..) {
            let offset = at % WORD;
            *place = self.word(at - offset)?.to_ne_bytes()[offset as usize];
        }
        Ok(())
    }

    fn word(self, at: u64) -> io::Result<u64> {
        let mut word = 0_u64;
        let request = libc::c_long::from(libc::PTRACE_PEEKDATA);
        // SAFETY: unlike its wrapper, the system call stores the word at the last argument, which
        // points to a live local variable. The address belongs to the other process and is checked
        // by the kernel.
        let got = unsafe { libc::syscall(libc::SYS_ptrace, request, self.0, at, &raw mut word) };
        check(got).map(|_| word)
    }
}

fn check(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
