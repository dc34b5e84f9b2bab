//! Numbers that identify a gateway, a host and an owner.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a random number, which is not 0.
pub(super) fn random() -> u128 {
    let mut bytes = [0; 16];
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    u128::from_ne_bytes(bytes) | 1
}

/// Returns the kernel's number of this boot (`proc_sys_kernel(5)`).
pub(super) fn boot_id() -> io::Result<u128> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let unreadable = |error| io::Error::new(error, format!("cannot read {PATH}"));
    let text = fs::read_to_string(PATH).map_err(|error| unreadable(error.kind()))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_err(|_| unreadable(io::ErrorKind::InvalidData))
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
    fnv1a(format!("{boot} {pid:?} {started:?} {file:?}").as_bytes()) | 1
}

/// Returns the FNV-1a hash of bytes (Fowler, Noll, Vo), which is the same in every build: a gateway
/// that replaces an older one must find the same owner.
fn fnv1a(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_and_owner_are_the_same_in_every_build() {
        assert_eq!(fnv1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
        let own = owner(7, Some(std::process::id()), None);
        assert_eq!(own, owner(7, Some(std::process::id()), None));
        assert_ne!(own, owner(8, Some(std::process::id()), None));
        assert_ne!(own, owner(7, None, None));
    }
}
