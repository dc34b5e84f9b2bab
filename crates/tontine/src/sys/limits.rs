//! Resource limits of this process: [`raise_descriptors`], [`exceeded_file_limit`].

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Smallest soft limit of descriptors after it was raised.
const LEAST: u64 = 64;

/// Doubles the soft limit of descriptors, up to the hard limit. Returns `true` if it has changed.
///
/// The hard limit itself may be 2^30, and programs that close every descriptor below the soft limit
/// would then take minutes.
pub(crate) fn raise_descriptors() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current else { return false };
    let raised = current.saturating_mul(2).max(LEAST).min(maximum.unwrap_or(u64::MAX));
    let limit = Rlimit { current: Some(raised), maximum };
    raised > current && setrlimit(Resource::Nofile, limit).is_ok()
}

/// Returns the limit on the size of files (`RLIMIT_FSIZE`) if a file of `bytes` bytes exceeds it.
///
/// Call this function before a file grows: above the limit the kernel sends SIGXFSZ, which kills
/// the process unless it handles or ignores the signal. If a thread lowers the limit between this
/// call and the growth, the kernel still sends the signal.
pub(crate) fn exceeded_file_limit(bytes: u64) -> Option<u64> {
    getrlimit(Resource::Fsize).current.filter(|limit| bytes > *limit)
}
