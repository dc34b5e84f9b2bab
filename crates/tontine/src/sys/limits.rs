//! The process's resource limits: [`raise_descriptors`], [`exceeded_file_limit`].

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. `true` if there is room now that was not there before.
pub(crate) fn raise_descriptors() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
}

/// Returns the limit on the size of files (`RLIMIT_FSIZE`) if a file of `bytes` bytes exceeds it.
///
/// To be asked before a file grows: beyond the limit the kernel sends SIGXFSZ, which kills the
/// process unless it handles or ignores the signal. A thread that lowers the limit between this
/// call and the growth still causes the signal.
pub(crate) fn exceeded_file_limit(bytes: u64) -> Option<u64> {
    getrlimit(Resource::Fsize).current.filter(|limit| bytes > *limit)
}
