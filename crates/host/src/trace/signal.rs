//! Information about a signal: [`Arrived`], read from its `siginfo`, and an explanation of the
//! [`FIELDS`].

#![allow(unsafe_code, reason = "reads the union inside siginfo_t")]

use std::fmt;

use super::words;

/// A signal and its information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Number of the signal.
    pub signo: i32,
    /// Cause of the signal.
    pub code: i32,
    /// Sender of a signal from a process; for SIGCHLD, the child.
    pub sender: Option<SignalSource>,
    /// The child's end, for SIGCHLD.
    pub end: Option<ChildEnd>,
}

/// The process that sent a signal, or the child that a SIGCHLD reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalSource {
    /// Process id.
    pub pid: i32,
    /// Real user id.
    pub uid: u32,
}

/// The end of a child, as reported by SIGCHLD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildEnd {
    /// The exit status, or the signal that killed the child.
    pub status: i32,
    /// Time in user mode, in clock ticks.
    pub utime: i64,
    /// Time in the kernel, in clock ticks.
    pub stime: i64,
}

/// The fields of a `siginfo`, each with its meaning.
pub const FIELDS: [(&str, &str); 7] = [
    ("si_signo", "the number of the signal"),
    (
        "si_code",
        "the cause: CLD_EXITED, a child exited; CLD_KILLED, a signal killed it; CLD_DUMPED, the \
         same with a core dump; CLD_STOPPED and CLD_CONTINUED; SI_USER, kill; SI_TKILL, tgkill; \
         SI_QUEUE, sigqueue; SI_KERNEL, the kernel itself",
    ),
    ("si_pid", "the child that a SIGCHLD reports; otherwise the sender"),
    ("si_uid", "the real user id of that process"),
    (
        "si_status",
        "the exit status after CLD_EXITED; otherwise the signal that ended or stopped it",
    ),
    ("si_utime", "the child's time in user mode, in clock ticks (100 per second)"),
    ("si_stime", "the child's time in the kernel, in clock ticks"),
];

const CHILD_CODES: [(i32, &str); 6] = [
    (libc::CLD_EXITED, "CLD_EXITED"),
    (libc::CLD_KILLED, "CLD_KILLED"),
    (libc::CLD_DUMPED, "CLD_DUMPED"),
    (libc::CLD_TRAPPED, "CLD_TRAPPED"),
    (libc::CLD_STOPPED, "CLD_STOPPED"),
    (libc::CLD_CONTINUED, "CLD_CONTINUED"),
];
const CODES: [(i32, &str); 5] = [
    (libc::SI_USER, "SI_USER"),
    (libc::SI_KERNEL, "SI_KERNEL"),
    (libc::SI_QUEUE, "SI_QUEUE"),
    (libc::SI_TIMER, "SI_TIMER"),
    (libc::SI_TKILL, "SI_TKILL"),
];

impl Arrived {
    pub(super) fn of(info: &libc::siginfo_t) -> Self {
        let of_a_child = info.si_signo == libc::SIGCHLD && info.si_code > 0;
        let of_somebody = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.si_code);
        // SAFETY: these parts of the union are plain integers, filled for these codes.
        let (pid, uid) = unsafe { (info.si_pid(), info.si_uid()) };
        // SAFETY: as above.
        let end = unsafe {
            ChildEnd { status: info.si_status(), utime: info.si_utime(), stime: info.si_stime() }
        };
        Self {
            signo: info.si_signo,
            code: info.si_code,
            sender: (of_a_child || of_somebody).then_some(SignalSource { pid, uid }),
            end: of_a_child.then_some(end),
        }
    }

    /// Returns the name of the cause.
    pub fn code_name(&self) -> String {
        let find = |codes: &[(i32, &'static str)]| {
            codes.iter().find(|(code, _)| *code == self.code).map(|(_, name)| *name)
        };
        let name = if self.end.is_some() { find(&CHILD_CODES) } else { find(&CODES) };
        name.map_or_else(|| self.code.to_string(), str::to_owned)
    }

    /// Returns each field that the signal has, with its meaning, one per line.
    pub fn explained(&self) -> String {
        let shown = self.to_string();
        let mut text = format!("\n{shown}\n");
        for (name, meaning) in FIELDS {
            if shown.contains(&format!("{name}=")) {
                text += &format!("  {name:22} {meaning}\n");
            }
        }
        text
    }
}

impl fmt::Display for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = words::signal(self.signo);
        write!(f, "{name} {{si_signo={name}, si_code={}", self.code_name())?;
        if let Some(SignalSource { pid, uid }) = self.sender {
            write!(f, ", si_pid={pid}, si_uid={uid}")?;
        }
        if let Some(ChildEnd { status, utime, stime }) = self.end {
            let status = match self.code {
                libc::CLD_EXITED => status.to_string(),
                _ => words::signal(status),
            };
            write!(f, ", si_status={status}, si_utime={utime}, si_stime={stime}")?;
        }
        f.write_str("}")
    }
}
