//! How many descriptors this process may have: [`raise_descriptors`].

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. `true` if there is room now that was not there before.
pub(crate) fn raise_descriptors() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
}
