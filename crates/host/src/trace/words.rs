//! Conversion of numbers to the names in manual pages: flags, signals, errors.

/// Flags by value.
pub(super) type Flags = &'static [(u64, &'static str)];

macro_rules! flags {
    ($($constant:ident)*) => { &[$((libc::$constant as u64, stringify!($constant))),*] };
}

pub(super) const PROT: Flags = flags! { PROT_READ PROT_WRITE PROT_EXEC };
pub(super) const MAP: Flags = flags! {
    MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_LOCKED MAP_NORESERVE
    MAP_POPULATE MAP_STACK MAP_HUGETLB MAP_FIXED_NOREPLACE
};
pub(super) const RANDOM: Flags = flags! { GRND_NONBLOCK GRND_RANDOM };
pub(super) const WAIT: Flags = flags! { WNOHANG WUNTRACED WCONTINUED __WALL __WCLONE };
/// Advice for `madvise`: each value is a number, not a set of bits.
pub(super) const ADVICE: Flags = flags! {
    MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_HUGEPAGE
    MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DODUMP
};
/// Actions of `rt_sigprocmask`: each value is a number.
pub(super) const HOW: Flags = flags! { SIG_BLOCK SIG_UNBLOCK SIG_SETMASK };
/// Operations of `futex`: each value is a number, combined with [`FUTEX_BITS`].
pub(super) const FUTEX: Flags = flags! {
    FUTEX_WAIT FUTEX_WAKE FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI
    FUTEX_UNLOCK_PI FUTEX_TRYLOCK_PI FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET
};
pub(super) const FUTEX_BITS: Flags = flags! { FUTEX_PRIVATE_FLAG FUTEX_CLOCK_REALTIME };

/// The waiters that a futex operation with a set of bits selects.
pub(super) const MATCH: Flags = &[(0xffff_ffff, "FUTEX_BITSET_MATCH_ANY")];

const SIGNALS: Flags = flags! {
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
    SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG
    SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS
};
const ERRORS: Flags = flags! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY
    EEXIST ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE
    ERANGE EDEADLK ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP EOVERFLOW EOPNOTSUPP ETIMEDOUT
};
/// Results that the kernel shows only to a tracer.
const RESTARTS: Flags = &[
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (516, "ERESTART_RESTARTBLOCK"),
];
/// The kernel's number of the first real-time signal; the C library reserves some of these signals.
const REAL_TIME: i32 = 32;

/// Calls that return an address.
const ADDRESSES: [&str; 4] = ["mmap", "mremap", "brk", "shmat"];

/// Returns bits as names joined by `|`; nameless bits as a number; `none` if no bit is set.
pub(super) fn bits(mut value: u64, known: Flags, none: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    for (bits, name) in known.iter().filter(|(bits, _)| *bits != 0) {
        if value & bits == *bits {
            value &= !bits;
            names.push((*name).to_owned());
        }
    }
    if value != 0 {
        names.push(format!("{value:#x}"));
    }
    if names.is_empty() { none.to_owned() } else { names.join("|") }
}

/// Returns the name of a number, or the number in hexadecimal if it has no name.
pub(super) fn one_of(value: u64, known: Flags) -> String {
    find(value, known).map_or_else(|| format!("{value:#x}"), str::to_owned)
}

fn find(value: u64, known: Flags) -> Option<&'static str> {
    known.iter().find(|(number, _)| *number == value).map(|(_, name)| *name)
}

/// Returns a signal's name.
pub(super) fn signal(number: i32) -> String {
    match find(i64::from(number).cast_unsigned(), SIGNALS) {
        Some(name) => name.to_owned(),
        None if number == REAL_TIME => "SIGRTMIN".to_owned(),
        None if (REAL_TIME..=64).contains(&number) => format!("SIGRT_{}", number - REAL_TIME),
        None => number.to_string(),
    }
}

/// Returns a set of signals, without `SIG`: `[CHLD]`; `~[]` is the set of all signals, `~[RTMIN]`
/// all but one.
pub(super) fn signals(set: u64) -> String {
    const MANY: u32 = 43;
    let (not, listed) = if set.count_ones() > MANY { ("~", !set) } else { ("", set) };
    let names: Vec<String> = (0..64)
        .filter(|bit| listed & (1 << bit) != 0)
        .map(|bit| signal(bit + 1).trim_start_matches("SIG").to_owned())
        .collect();
    format!("{not}[{}]", names.join(" "))
}

/// Returns the result of a call as text; `?` if the call did not return.
pub(super) fn returned(name: Option<&str>, value: Option<i64>) -> String {
    let Some(value) = value else { return "?".to_owned() };
    let address = name.is_some_and(|name| ADDRESSES.contains(&name));
    if !(-4095..0).contains(&value) {
        return if address { format!("{value:#x}") } else { value.to_string() };
    }
    let error = value.unsigned_abs();
    if let Some(name) = find(error, RESTARTS) {
        return format!("? {name} (to be restarted)");
    }
    let text = std::io::Error::from_raw_os_error(error as i32).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("-1 {} ({text})", one_of(error, ERRORS))
}

/// Returns an address as text; 0 is NULL.
pub(super) fn address(value: u64) -> String {
    if value == 0 { "NULL".to_owned() } else { format!("{value:#x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_set_is_printed_in_its_shorter_form() {
        assert_eq!(signals(0), "[]");
        assert_eq!(signals(u64::MAX), "~[]");
        assert_eq!(signals(1 << (libc::SIGCHLD - 1)), "[CHLD]");
        assert_eq!(signals(!(0b11 << 31)), "~[RTMIN RT_1]");
    }

    #[test]
    fn unnamed_value_is_printed_as_number() {
        assert_eq!(bits(0x1003, PROT, "PROT_NONE"), "PROT_READ|PROT_WRITE|0x1000");
        assert_eq!(bits(0, PROT, "PROT_NONE"), "PROT_NONE");
        assert_eq!(one_of(4, ADVICE), "MADV_DONTNEED");
        assert_eq!(one_of(4000, ADVICE), "0xfa0");
    }

    #[test]
    fn call_results_are_addresses_numbers_or_errors() {
        assert_eq!(returned(Some("mmap"), Some(0x7000)), "0x7000");
        assert_eq!(returned(Some("wait4"), Some(12)), "12");
        assert_eq!(returned(Some("exit"), None), "?");
        let missing = -i64::from(libc::ENOENT);
        assert_eq!(returned(None, Some(missing)), "-1 ENOENT (No such file or directory)");
    }
}
