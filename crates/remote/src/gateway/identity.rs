//! Numbers that identify a gateway, a host and an owner.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a random number, which is not 0.
pub(super) fn random() -> u128 {
    let mut bytes = [0; 16];
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    u128::from_ne_bytes(bytes) | 1
}

/// Returns the kernel's number of this boot (`proc_sys_kernel(5)`), or a random number if `/proc`
/// is not available.
pub(super) fn boot_id() -> u128 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_else(|_| random())
}

/// Returns a number for the owner of the socket at `path`, a process. Two owners of one address
/// have different numbers: the process id and its start time (`proc_pid_stat(5)`) are unique during
/// a boot. A process in another pid namespace has no id here, and is known by its socket's file.
pub(super) fn owner(boot: u128, pid: Option<u32>, path: Option<&str>) -> u128 {
    let stat = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    // The name of the program, in parentheses, may contain spaces; the start time is field 22.
    let started = stat.as_deref().and_then(|stat| stat.rsplit_once(')'));
    let started = started.and_then(|(_, rest)| rest.split_whitespace().nth(19));
    let file = path.and_then(|path| fs::metadata(path).ok()).map(|file| (file.dev(), file.ino()));
    let digest = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, boot, pid, started, file).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    digest(0) << 64 | digest(1) | 1
}
