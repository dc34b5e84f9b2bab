//! The kernel's stand-in for users that a user namespace does not map: [`is_ambiguous`].

use std::fs;
use std::sync::OnceLock;

/// The overflow uid if `/proc` does not tell it.
const OVERFLOW_UID: u32 = 65534;

/// Returns `true` if several users have this uid in this process's user namespace.
///
/// The kernel reports every user that the namespace does not map as the overflow uid
/// (`user_namespaces(7)`). Without `/proc/self/uid_map`, it is unknown which users are mapped.
pub(crate) fn is_ambiguous(uid: u32) -> bool {
    static OVERFLOW: OnceLock<u32> = OnceLock::new();
    let overflow = *OVERFLOW.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        text.trim().parse().unwrap_or(OVERFLOW_UID)
    });
    uid == overflow && !fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_all(&map))
}

/// Returns `true` if a map (first uid inside, first uid outside, number of users) maps each user to
/// itself.
fn maps_all(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_identity_maps_all_users() {
        assert!(maps_all("         0          0 4294967295\n"));
        for map in ["", "0 100000 65536\n", "0 0 65535\n", "0 0 1000\n1000 1000 4294966295\n"] {
            assert!(!maps_all(map), "{map}");
        }
    }

    #[test]
    fn mapped_users_are_not_ambiguous() {
        assert!(!is_ambiguous(0));
    }
}
