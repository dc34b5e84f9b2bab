//! What the other threads of this process block: [`all_block`].
//!
//! It finds mistakes and proves nothing: any thread may unblock what it likes, later.

use std::thread::sleep;
use std::time::Duration;

use rustix::io::Errno;

use super::Set;
use super::error::{Error, Result};

/// Listings after which it is well that each differed from the one before: threads come and go.
const LISTINGS: u32 = 64;
/// Looks at a thread that blocks everything, as one does that is being born, and the time between.
const LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// All signals but SIGKILL and SIGSTOP. A program that blocks all by the C library leaves out that
/// library's own.
const EVERYTHING: u64 = !((1 << (libc::SIGKILL - 1)) | (1 << (libc::SIGSTOP - 1)));

const TASKS: &str = "/proc/self/task";

/// Whether every thread of the process blocks `set`.
///
/// # Errors
/// [`Error::Unblocked`] for the first that does not; [`Error::NoProc`].
pub(super) fn all_block(set: Set) -> Result<()> {
    let mut before = Vec::new();
    for _ in 0..LISTINGS {
        let threads = list()?;
        for &thread in &threads {
            look_at(thread, set)?;
        }
        if threads == before {
            break;
        }
        before = threads;
    }
    Ok(())
}

/// The ids of all threads.
fn list() -> Result<Vec<u32>> {
    let no_proc = |error: std::io::Error| no_proc(TASKS, &error);
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(TASKS).map_err(no_proc)? {
        let name = entry.map_err(no_proc)?.file_name();
        threads.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    threads.sort_unstable();
    Ok(threads)
}

fn look_at(thread: u32, set: Set) -> Result<()> {
    let mut lacked = false;
    for look in 0..LOOKS {
        if look > 0 {
            sleep(BETWEEN_LOOKS);
        }
        let path = format!("{TASKS}/{thread}/status");
        let status = match std::fs::read_to_string(&path) {
            Ok(status) => status,
            // It has ended.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(no_proc(&path, &error)),
        };
        let Some(seen) = Seen::in_status(&status) else {
            return Err(Error::NoProc { path, errno: Errno::NODATA });
        };
        if seen.is_dead {
            return Ok(());
        }
        let signals = set - Set::from_bits(seen.blocks);
        if !signals.is_empty() {
            // One that ends between the lines of its status has no mask any more: it will have
            // gone when it is looked at again.
            if std::mem::replace(&mut lacked, true) {
                return Err(Error::Unblocked { thread, name: seen.name.to_owned(), signals });
            }
            continue;
        }
        // A thread is born with everything blocked, and makes one so.
        if seen.blocks & EVERYTHING != EVERYTHING {
            return Ok(());
        }
    }
    Ok(())
}

/// What the status of a thread says.
#[derive(Debug, PartialEq, Eq)]
struct Seen<'a> {
    name: &'a str,
    blocks: u64,
    /// A main thread that has ended before the others.
    is_dead: bool,
}

impl<'a> Seen<'a> {
    fn in_status(status: &'a str) -> Option<Self> {
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let blocks = u64::from_str_radix(line("SigBlk:")?, 16).ok()?;
        let is_dead = line("State:")?.starts_with(['Z', 'X']);
        Some(Self { name: line("Name:")?, blocks, is_dead })
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn no_proc(path: &str, error: &std::io::Error) -> Error {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    Error::NoProc { path: path.to_owned(), errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_the_kernel_writes_it() {
        let status = "Name:\ta b\nUmask:\t0022\nState:\tS (sleeping)\nSigBlk:\t0000000000004002\n";
        let seen = Seen { name: "a b", blocks: 0x4002, is_dead: false };
        assert_eq!(Seen::in_status(status), Some(seen));
        let dead = status.replace("S (sleeping)", "Z (zombie)");
        assert!(Seen::in_status(&dead).expect("a status").is_dead);
        assert_eq!(Seen::in_status("Name:\ta\n"), None);
        let own = std::fs::read_to_string("/proc/thread-self/status").expect("proc");
        assert_eq!(Seen::in_status(&own).expect("a status").blocks, 0);
    }
}
