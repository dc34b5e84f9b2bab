//! The arguments of `clone`, `clone3`, `fork` and `vfork`, with an explanation of each flag and
//! field: [`Creation`], [`FLAGS`], [`FIELDS`].
//!
//! The text follows clone(2); names and values are the kernel's.

use std::fmt;

use super::words;

/// A flag of `clone` or `clone3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneFlag {
    /// Name of the flag.
    pub name: &'static str,
    /// Bit of the flag.
    pub bit: u64,
    /// Effect of the flag, and the behaviour without it if that is not obvious.
    pub meaning: &'static str,
}

const fn flag(name: &'static str, bit: u64, meaning: &'static str) -> CloneFlag {
    CloneFlag { name, bit, meaning }
}

/// The low byte of `clone`'s flags: the signal that reports the end of the child to the parent.
const EXIT_SIGNAL: u64 = 0xff;
const VM: u64 = 1 << 8;
const PIDFD: u64 = 1 << 12;
const VFORK: u64 = 1 << 14;
const SETTLS: u64 = 1 << 19;
pub(super) const PARENT_SETTID: u64 = 1 << 20;
const CHILD_CLEARTID: u64 = 1 << 21;
const CHILD_SETTID: u64 = 1 << 24;
const INTO_CGROUP: u64 = 1 << 33;

/// Every flag, ordered by bit.
pub const FLAGS: [CloneFlag; 27] = [
    flag(
        "CLONE_NEWTIME",
        1 << 7,
        "a time namespace of its own; accepted only by clone3 and unshare",
    ),
    flag(
        "CLONE_VM",
        VM,
        "one address space for both: each sees what the other writes or maps; without it, a copy",
    ),
    flag("CLONE_FS", 1 << 9, "one working directory, root directory and umask for both"),
    flag(
        "CLONE_FILES",
        1 << 10,
        "one table of descriptors for both: a descriptor is opened or closed for both",
    ),
    flag(
        "CLONE_SIGHAND",
        1 << 11,
        "one table of signal handlers for both; masks and pending signals stay separate. Needs \
         CLONE_VM",
    ),
    flag(
        "CLONE_PIDFD",
        PIDFD,
        "the parent gets a descriptor of the new process, stored at pidfd. The bit was CLONE_PID \
         until Linux 2.5.16: a child with the pid of its parent",
    ),
    flag("CLONE_PTRACE", 1 << 13, "if the caller is traced, the new task is traced too"),
    flag(
        "CLONE_VFORK",
        VFORK,
        "the caller sleeps until the new task has called exec or ended, and so lends it the memory",
    ),
    flag(
        "CLONE_PARENT",
        1 << 15,
        "the new task is a child of the caller's parent: a sibling of the caller, not its child",
    ),
    flag(
        "CLONE_THREAD",
        1 << 16,
        "a thread of the same process: the same getpid(); no process waits for it and no signal \
         reports its end. Needs CLONE_SIGHAND",
    ),
    flag("CLONE_NEWNS", 1 << 17, "a mount namespace of its own"),
    flag(
        "CLONE_SYSVSEM",
        1 << 18,
        "one list of System V semaphore adjustments, undone when the last task that shares it ends",
    ),
    flag(
        "CLONE_SETTLS",
        SETTLS,
        "the new task's thread-local storage is at tls: on x86-64 that becomes its FS base",
    ),
    flag(
        "CLONE_PARENT_SETTID",
        PARENT_SETTID,
        "the kernel stores the new thread id at parent_tid, in the caller's memory, before it \
         returns",
    ),
    flag(
        "CLONE_CHILD_CLEARTID",
        CHILD_CLEARTID,
        "when the new task ends the kernel stores 0 at child_tid and wakes a futex there: a join \
         waits for that",
    ),
    flag(
        "CLONE_DETACHED",
        1 << 22,
        "ignored since Linux 2.6.2; an error together with CLONE_PIDFD",
    ),
    flag("CLONE_UNTRACED", 1 << 23, "a tracer cannot force CLONE_PTRACE on the new task"),
    flag(
        "CLONE_CHILD_SETTID",
        CHILD_SETTID,
        "the kernel stores the new thread id at child_tid, in the new task's memory, before the \
         task runs",
    ),
    flag(
        "CLONE_NEWCGROUP",
        1 << 25,
        "a cgroup namespace of its own. The bit was CLONE_STOPPED until Linux 2.6.38: a child that \
         begins stopped",
    ),
    flag("CLONE_NEWUTS", 1 << 26, "a namespace of its own for the host name and the domain name"),
    flag(
        "CLONE_NEWIPC",
        1 << 27,
        "a namespace of its own for System V IPC and POSIX message queues",
    ),
    flag("CLONE_NEWUSER", 1 << 28, "a user namespace of its own, in which it has all capabilities"),
    flag("CLONE_NEWPID", 1 << 29, "a PID namespace of its own, in which it is number 1"),
    flag("CLONE_NEWNET", 1 << 30, "network devices, addresses, routes and ports of its own"),
    flag("CLONE_IO", 1 << 31, "one I/O context for both: a disk scheduler treats both as one"),
    flag(
        "CLONE_CLEAR_SIGHAND",
        1 << 32,
        "every handled signal is at its default in the new task; ignored ones stay ignored. Only \
         clone3, since Linux 5.5",
    ),
    flag(
        "CLONE_INTO_CGROUP",
        INTO_CGROUP,
        "the new task begins in the cgroup whose descriptor is in cgroup. Only clone3, since Linux \
         5.7",
    ),
];

/// The fields of `clone3`'s structure, in their order.
pub const FIELDS: [(&str, &str); 11] = [
    ("flags", "the flags below; unlike clone's argument, the field contains no signal"),
    ("pidfd", "address at which CLONE_PIDFD stores the descriptor"),
    ("child_tid", "address of the id in the new task's memory, set to 0 when the task ends"),
    ("parent_tid", "address of the id in the caller's memory"),
    (
        "exit_signal",
        "the signal that reports the end to the parent: SIGCHLD for a process, 0 for a thread",
    ),
    ("stack", "the lowest byte of the new task's stack; 0: the same address as the caller's"),
    ("stack_size", "its size in bytes: the kernel computes the top, which clone takes instead"),
    ("tls", "the new task's thread-local storage with CLONE_SETTLS"),
    (
        "set_tid",
        "requested pids, one for each PID namespace, the innermost first: for restored processes",
    ),
    ("set_tid_size", "the number of those pids; 0: the kernel chooses"),
    ("cgroup", "the descriptor of the cgroup with CLONE_INTO_CGROUP"),
];

/// Arguments of a creation: `clone3`'s structure, `struct clone_args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Creation {
    /// [`FLAGS`].
    pub flags: u64,
    /// Described in [`FIELDS`], like the fields below.
    pub pidfd: u64,
    /// Address.
    pub child_tid: u64,
    /// Address.
    pub parent_tid: u64,
    /// Signal.
    pub exit_signal: u64,
    /// Address.
    pub stack: u64,
    /// Bytes.
    pub stack_size: u64,
    /// Address.
    pub tls: u64,
    /// Address.
    pub set_tid: u64,
    /// Count.
    pub set_tid_size: u64,
    /// Descriptor.
    pub cgroup: u64,
}

impl Creation {
    /// Converts the registers of `clone`, whose order depends on the processor.
    pub(super) fn of_clone(arguments: [u64; 6]) -> Self {
        let [flags, stack, parent_tid, third, fourth, _] = arguments;
        let (child_tid, tls) =
            if cfg!(target_arch = "x86_64") { (third, fourth) } else { (fourth, third) };
        Self {
            flags: flags & !EXIT_SIGNAL,
            exit_signal: flags & EXIT_SIGNAL,
            child_tid,
            parent_tid,
            stack,
            tls,
            // One register serves both purposes.
            pidfd: if flags & PIDFD != 0 { parent_tid } else { 0 },
            ..Self::default()
        }
    }

    /// Converts the structure's bytes. Fields that an older caller's shorter structure lacks are 0.
    pub(super) fn of_clone3(bytes: [u8; size_of::<Self>()]) -> Self {
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("chunks of eight bytes")));
        let mut next = || words.next().unwrap_or(0);
        Self {
            flags: next(),
            pidfd: next(),
            child_tid: next(),
            parent_tid: next(),
            exit_signal: next(),
            stack: next(),
            stack_size: next(),
            tls: next(),
            set_tid: next(),
            set_tid_size: next(),
            cgroup: next(),
        }
    }

    pub(super) fn of_fork() -> Self {
        Self { exit_signal: libc::SIGCHLD as u64, ..Self::default() }
    }

    pub(super) fn of_vfork() -> Self {
        Self { flags: VM | VFORK, ..Self::of_fork() }
    }

    /// Returns the flags that are set, each with its meaning.
    pub fn flags(&self) -> impl Iterator<Item = &'static CloneFlag> + use<> {
        let set = self.flags;
        FLAGS.iter().filter(move |flag| set & flag.bit != 0)
    }

    /// Returns the names of the flags, joined by `|`; `0` if none is set.
    pub fn flag_names(&self) -> String {
        let mut names: Vec<String> = self.flags().map(|flag| flag.name.to_owned()).collect();
        let strange = FLAGS.iter().fold(self.flags, |left, flag| left & !flag.bit);
        if strange != 0 {
            names.push(format!("{strange:#x}"));
        }
        if names.is_empty() { "0".to_owned() } else { names.join("|") }
    }

    /// Returns the arguments of `clone`, as strace prints them.
    pub(super) fn as_arguments(&self) -> Vec<String> {
        let mut flags = match self.flag_names().as_str() {
            "0" => Vec::new(),
            names => vec![names.to_owned()],
        };
        if self.exit_signal != 0 || flags.is_empty() {
            flags.push(self.signal());
        }
        let stack = format!("child_stack={}", words::address(self.stack));
        let mut arguments = vec![stack, format!("flags={}", flags.join("|"))];
        arguments.extend(self.named(PARENT_SETTID, "parent_tid", self.parent_tid));
        arguments.extend(self.named(SETTLS, "tls", self.tls));
        arguments.extend(self.named(CHILD_SETTID | CHILD_CLEARTID, "child_tidptr", self.child_tid));
        arguments
    }

    fn signal(&self) -> String {
        match self.exit_signal {
            0 => "0".to_owned(),
            signal => words::signal(signal as i32),
        }
    }

    /// Formats a field that is valid only with one of these flags.
    fn named(&self, with: u64, name: &str, value: u64) -> Option<String> {
        (self.flags & with != 0).then(|| format!("{name}={}", words::address(value)))
    }

    /// Returns each valid field, and each set flag, with its meaning, one per line.
    pub fn explained(&self) -> String {
        let mut text = format!("\n{self}\n");
        let shown = self.to_string();
        for (name, meaning) in FIELDS {
            if shown.contains(&format!("{name}=")) {
                text += &format!("  {name:22} {meaning}\n");
            }
        }
        for CloneFlag { name, meaning, .. } in self.flags() {
            text += &format!("  {name:22} {meaning}\n");
        }
        text
    }
}

/// Prints the structure without the fields that are not valid.
impl fmt::Display for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = vec![format!("flags={}", self.flag_names())];
        fields.extend(self.named(PIDFD, "pidfd", self.pidfd));
        fields.extend(self.named(CHILD_SETTID | CHILD_CLEARTID, "child_tid", self.child_tid));
        fields.extend(self.named(PARENT_SETTID, "parent_tid", self.parent_tid));
        fields.push(format!("exit_signal={}", self.signal()));
        fields.push(format!("stack={}", words::address(self.stack)));
        fields.push(format!("stack_size={:#x}", self.stack_size));
        fields.extend(self.named(SETTLS, "tls", self.tls));
        if self.set_tid_size != 0 {
            fields.push(format!("set_tid={}", words::address(self.set_tid)));
            fields.push(format!("set_tid_size={}", self.set_tid_size));
        }
        fields.extend(self.named(INTO_CGROUP, "cgroup", self.cgroup));
        write!(f, "{{{}}}", fields.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expands to pairs of name and value. The library's constants are signed, and two values do
    /// not fit into its type.
    macro_rules! of_the_library {
        ($($constant:ident)*) => {
            [$((stringify!($constant), u64::from(libc::$constant.cast_unsigned()))),*]
        };
    }

    #[test]
    fn clone_flags_match_library_values() {
        let all = of_the_library! {
            CLONE_NEWTIME CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE
            CLONE_VFORK CLONE_PARENT CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS
            CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID CLONE_DETACHED CLONE_UNTRACED
            CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER CLONE_NEWPID
            CLONE_NEWNET CLONE_IO
        };
        for (name, bit) in all {
            let flag = FLAGS.iter().find(|flag| flag.name == name);
            assert_eq!(flag.map(|flag| flag.bit), Some(bit), "{name}");
        }
        // These flags exceed 32 bits, which is the width of the library's type.
        let wide: Vec<_> = FLAGS[all.len()..].iter().map(|flag| (flag.name, flag.bit)).collect();
        assert_eq!(wide, [("CLONE_CLEAR_SIGHAND", 1 << 32), ("CLONE_INTO_CGROUP", 1 << 33)]);
    }

    /// Every bit from the signal's byte to the newest flag is used.
    #[test]
    fn clone_flags_explain_every_bit_once() {
        let bits: Vec<u64> = FLAGS.iter().map(|flag| flag.bit).collect();
        assert_eq!(bits, (7..=33).map(|bit| 1 << bit).collect::<Vec<u64>>());
        assert!(
            FLAGS.iter().all(|flag| flag.name.starts_with("CLONE_") && flag.meaning.len() > 20)
        );
    }

    #[test]
    fn clone3_fields_are_explained_in_order() {
        let bytes: Vec<u8> =
            (1..=FIELDS.len() as u64).flat_map(|number| number.to_ne_bytes()).collect();
        let debug = format!("{:?}", Creation::of_clone3(bytes.try_into().expect("its size")));
        for (number, (name, _)) in (1..).zip(FIELDS) {
            assert!(debug.contains(&format!("{name}: {number}")), "{name} {number}: {debug}");
        }
    }

    #[test]
    fn published_creation_prints_like_strace() {
        let flags = FLAGS.iter().filter(|flag| {
            "VM FS FILES SIGHAND THREAD SYSVSEM SETTLS PARENT_SETTID CHILD_CLEARTID"
                .split(' ')
                .any(|name| flag.name == format!("CLONE_{name}"))
        });
        let creation = Creation {
            flags: flags.fold(0, |all, flag| all | flag.bit),
            child_tid: 0x7efe_0e1f_f910,
            parent_tid: 0x7efe_0e1f_f910,
            stack: 0x7efe_0d9f_f000,
            stack_size: 0x7f_ff00,
            tls: 0x7efe_0e1f_f640,
            ..Creation::default()
        };
        assert_eq!(
            creation.to_string(),
            "{flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD|CLONE_SYSVSEM|\
             CLONE_SETTLS|CLONE_PARENT_SETTID|CLONE_CHILD_CLEARTID, child_tid=0x7efe0e1ff910, \
             parent_tid=0x7efe0e1ff910, exit_signal=0, stack=0x7efe0d9ff000, stack_size=0x7fff00, \
             tls=0x7efe0e1ff640}"
        );
    }
}
