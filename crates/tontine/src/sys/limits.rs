//! Resource limits of this process: [`raise_descriptors`], [`exceeded_file_limit`].

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of descriptors to the hard limit. Returns `true` if it has changed.
pub(crate) fn raise_descriptors() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
}

/// Returns the limit on the size of files (`RLIMIT_FSIZE`) if a file of `bytes` bytes exceeds it.
///
/// Call this function before a file grows: above the limit the kernel sends SIGXFSZ, which kills
/// the process unless it handles or ignores the signal. If a thread lowers the limit between this
/// call and the growth, the kernel still sends the signal.
pub(crate) fn exceeded_file_limit(bytes: u64) -> Option<u64> {
    getrlimit(Resource::Fsize).current.filter(|limit| bytes > *limit)
}
