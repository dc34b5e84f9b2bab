//! Formatting of a system call's arguments in the style of strace: [`on_entry`], and the values
//! known only after the call: [`on_exit`].
//!
//! [`shape`] has one row per call. A call without a row is shown as its six registers.

use super::clone::{self, Creation};
use super::requests::Traced;
use super::{Call, words};

/// The interpretation of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgKind {
    /// A signed 32-bit number, such as a descriptor or a pid.
    Number,
    /// An unsigned number.
    Count,
    /// An address.
    Address,
    /// Named bits, and the name of the empty set.
    Bits(words::Flags, &'static str),
    /// One of several numbers.
    OneOf(words::Flags),
    /// A set of signals, as input.
    Signals,
    /// A set of signals, as output.
    OldSignals,
    /// Bytes, as output; the call returns their number.
    Filled,
    /// A futex operation.
    Futex,
    /// A signal.
    Signal,
    /// Status of a child, as output.
    Status,
    /// The structure of `clone3`; its size is the next argument.
    Creation,
}

/// Maximum number of output bytes shown.
const SHOWN: usize = 32;

/// Returns the kinds of a call's arguments.
fn shape(name: &str) -> Option<&'static [ArgKind]> {
    use ArgKind::{
        Address, Bits, Count, Creation, Filled, Futex, Number, OldSignals, OneOf, Signal, Signals,
        Status,
    };
    const PROT: ArgKind = Bits(words::PROT, "PROT_NONE");
    Some(match name {
        "brk" | "exit" | "exit_group" | "close" | "dup" | "epoll_create1" => match name {
            "brk" => &[Address],
            _ => &[Number],
        },
        "getpid" | "gettid" | "getppid" | "getuid" | "geteuid" | "getgid" | "getegid" | "fork"
        | "vfork" | "sched_yield" | "rt_sigreturn" | "pause" => &[],
        "mmap" => &[Address, Count, PROT, Bits(words::MAP, "0"), Number, Count],
        "mprotect" => &[Address, Count, PROT],
        "munmap" => &[Address, Count],
        "madvise" => &[Address, Count, OneOf(words::ADVICE)],
        "rt_sigprocmask" => &[OneOf(words::HOW), Signals, OldSignals, Count],
        "getrandom" => &[Filled, Count, Bits(words::RANDOM, "0")],
        "read" => &[Number, Filled, Count],
        "write" => &[Number, Address, Count],
        "futex" => &[Address, Futex, Count, Address, Address, OneOf(words::MATCH)],
        "wait4" => &[Number, Status, Bits(words::WAIT, "0"), Address],
        "set_robust_list" => &[Address, Count],
        "rseq" => &[Address, Count, Count, Address],
        "set_tid_address" => &[Address],
        "clone3" => &[Creation, Count],
        "kill" => &[Number, Signal],
        "tgkill" => &[Number, Number, Signal],
        "rt_sigaction" => &[Signal, Address, Address, Count],
        "sigaltstack" => &[Address, Address],
        "sched_getaffinity" | "sched_setaffinity" => &[Number, Count, Address],
        "pidfd_open" => &[Number, Count],
        "execve" => &[Address, Address, Address],
        _ => return None,
    })
}

/// Returns the arguments of a creation, if the call is one.
pub(super) fn creation(
    traced: Traced,
    name: Option<&str>,
    arguments: [u64; 6],
) -> Option<Creation> {
    match name? {
        "clone" => Some(Creation::of_clone(arguments)),
        "clone3" => {
            // A caller built for an older kernel passes a shorter structure.
            let mut bytes = [0; size_of::<Creation>()];
            let size = bytes.len().min(arguments[1] as usize);
            traced.read(arguments[0], &mut bytes[..size]).ok()?;
            Some(Creation::of_clone3(bytes))
        }
        "vfork" => Some(Creation::of_vfork()),
        "fork" => Some(Creation::of_fork()),
        _ => None,
    }
}

/// Returns the arguments of a call at its entry; output arguments are still shown as addresses.
pub(super) fn on_entry(traced: Traced, name: Option<&str>, arguments: [u64; 6]) -> Vec<String> {
    if name == Some("clone") {
        return Creation::of_clone(arguments).as_arguments();
    }
    match name.and_then(shape) {
        Some(kinds) => {
            let extra = arguments.into_iter().skip(1).chain([0]);
            let values = arguments.into_iter().zip(extra);
            kinds
                .iter()
                .zip(values)
                .map(|(kind, (at, next))| text(traced, *kind, at, next))
                .collect()
        }
        None => arguments.map(|value| format!("{value:#x}")).to_vec(),
    }
}

/// Replaces the addresses of a call's output with its contents.
pub(super) fn on_exit(traced: Traced, call: &mut Call, arguments: [u64; 6]) {
    let Some(returned) = call.returned.filter(|value| *value >= 0) else { return };
    let kinds = call.name.and_then(shape).unwrap_or_default();
    for (at, (kind, value)) in kinds.iter().zip(arguments).enumerate() {
        let filled = match kind {
            ArgKind::OldSignals => set(traced, value),
            ArgKind::Filled => bytes(traced, value, returned),
            ArgKind::Status if returned > 0 => status(traced, value),
            ArgKind::Creation => {
                let told = call.creates.and_then(|creation| told(traced, creation));
                told.map(|told| format!("{} => {told}", call.arguments[at]))
            }
            _ => None,
        };
        if let Some(filled) = filled {
            call.arguments[at] = filled;
        }
    }
}

/// Formats an argument; `next` is the following argument, which may be its length.
fn text(traced: Traced, kind: ArgKind, value: u64, next: u64) -> String {
    match kind {
        ArgKind::Number => (value as i32).to_string(),
        ArgKind::Count => value.to_string(),
        ArgKind::Address | ArgKind::OldSignals | ArgKind::Filled | ArgKind::Status => {
            words::address(value)
        }
        ArgKind::Bits(known, none) => words::bits(value, known, none),
        ArgKind::OneOf(known) => words::one_of(value, known),
        ArgKind::Signals => set(traced, value).unwrap_or_else(|| words::address(value)),
        ArgKind::Futex => futex(value),
        ArgKind::Signal => words::signal(value as i32),
        ArgKind::Creation => creation(traced, Some("clone3"), [value, next, 0, 0, 0, 0])
            .map_or_else(|| words::address(value), |creation| creation.to_string()),
    }
}

fn set(traced: Traced, at: u64) -> Option<String> {
    let mut set = [0; 8];
    if at == 0 {
        return None;
    }
    traced.read(at, &mut set).ok()?;
    Some(words::signals(u64::from_ne_bytes(set)))
}

fn bytes(traced: Traced, at: u64, length: i64) -> Option<String> {
    let length = usize::try_from(length).ok()?;
    let mut bytes = vec![0; length.min(SHOWN)];
    traced.read(at, &mut bytes).ok()?;
    let text: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    Some(format!("\"{text}\"{}", if length > SHOWN { "..." } else { "" }))
}

fn status(traced: Traced, at: u64) -> Option<String> {
    let mut status = [0; 4];
    if at == 0 {
        return None;
    }
    traced.read(at, &mut status).ok()?;
    let status = i32::from_ne_bytes(status);
    Some(if libc::WIFEXITED(status) {
        format!("[{{WIFEXITED(s) && WEXITSTATUS(s) == {}}}]", libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        let signal = words::signal(libc::WTERMSIG(status));
        format!("[{{WIFSIGNALED(s) && WTERMSIG(s) == {signal}}}]")
    } else {
        format!("[{status:#x}]")
    })
}

fn futex(operation: u64) -> String {
    let extra: u64 = words::FUTEX_BITS.iter().map(|(bit, _)| bit).sum();
    let operation_name = words::one_of(operation & !extra, words::FUTEX);
    match words::bits(operation & extra, words::FUTEX_BITS, "").replace("_FLAG", "") {
        none if none.is_empty() => operation_name,
        // The operation and its private flag are joined into one word, as in strace.
        bits => match bits.strip_prefix("FUTEX_PRIVATE") {
            Some(rest) => format!("{operation_name}_PRIVATE{rest}"),
            None => format!("{operation_name}|{bits}"),
        },
    }
}

/// Returns the thread id that the kernel stored in the creator's memory.
fn told(traced: Traced, creation: Creation) -> Option<String> {
    if creation.flags & clone::PARENT_SETTID == 0 {
        return None;
    }
    let mut id = [0; 4];
    traced.read(creation.parent_tid, &mut id).ok()?;
    Some(format!("{{parent_tid=[{}]}}", i32::from_ne_bytes(id)))
}
