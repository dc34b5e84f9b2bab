//! The signal masks of the other threads of this process: [`all_block`].
//!
//! The check finds mistakes but proves nothing, because any thread may unblock any signal later.

use std::thread::sleep;
use std::time::Duration;

use super::SignalSet;
use super::error::SignalError;

/// Maximum number of listings, in case each differs from the previous one because threads start and
/// end.
const MAX_LISTINGS: u32 = 64;
/// Maximum number of reads of one thread's mask while the thread blocks everything, as a thread
/// does during its creation.
const MAX_READS: u32 = 200;
/// Interval between two reads of a mask.
const READ_INTERVAL: Duration = Duration::from_millis(1);
/// All signals but SIGKILL and SIGSTOP. If a program blocks all signals through the C library, the
/// library's own signals stay unblocked.
const EVERYTHING: u64 = !((1 << (libc::SIGKILL - 1)) | (1 << (libc::SIGSTOP - 1)));

const TASKS: &str = "/proc/self/task";

/// Returns an error if a thread of the process does not block `set`.
///
/// # Errors
/// [`SignalError::Unblocked`] for the first such thread, and [`SignalError::ProcUnavailable`] if
/// `/proc/self/task` cannot be read.
pub(super) fn all_block(set: SignalSet) -> Result<(), SignalError> {
    let mut before = Vec::new();
    for _ in 0..MAX_LISTINGS {
        let threads = list()?;
        for &thread in &threads {
            check_thread(thread, set)?;
        }
        if threads == before {
            break;
        }
        before = threads;
    }
    Ok(())
}

/// Returns the ids of all threads, sorted.
fn list() -> Result<Vec<u32>, SignalError> {
    let proc_unavailable = |error: std::io::Error| proc_unavailable(TASKS, &error);
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(TASKS).map_err(proc_unavailable)? {
        let name = entry.map_err(proc_unavailable)?.file_name();
        threads.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    threads.sort_unstable();
    Ok(threads)
}

fn check_thread(thread: u32, set: SignalSet) -> Result<(), SignalError> {
    let mut lacked = false;
    for read in 0..MAX_READS {
        if read > 0 {
            sleep(READ_INTERVAL);
        }
        let path = format!("{TASKS}/{thread}/status");
        let status = match std::fs::read_to_string(&path) {
            Ok(status) => status,
            // The thread has ended.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(proc_unavailable(&path, &error)),
        };
        let Some(found) = ThreadStatus::parse(&status) else {
            return Err(SignalError::ProcUnavailable { path, errno: libc::ENODATA });
        };
        if found.is_dead {
            return Ok(());
        }
        let signals = set - SignalSet::from_bits(found.blocks);
        if !signals.is_empty() {
            // A thread that ends while its status is printed no longer has a mask. The next read
            // does not find the thread.
            if std::mem::replace(&mut lacked, true) {
                return Err(SignalError::Unblocked {
                    thread,
                    name: found.name.to_owned(),
                    signals,
                });
            }
            continue;
        }
        // A new thread begins with everything blocked, and a thread blocks everything to create
        // another.
        if found.blocks & EVERYTHING != EVERYTHING {
            return Ok(());
        }
    }
    Ok(())
}

/// Some fields of `/proc/self/task/*/status`.
#[derive(Debug, PartialEq, Eq)]
struct ThreadStatus<'a> {
    name: &'a str,
    blocks: u64,
    /// `true` if the thread is a main thread that has ended before the others.
    is_dead: bool,
}

impl<'a> ThreadStatus<'a> {
    fn parse(status: &'a str) -> Option<Self> {
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let blocks = u64::from_str_radix(line("SigBlk:")?, 16).ok()?;
        let is_dead = line("State:")?.starts_with(['Z', 'X']);
        Some(Self { name: line("Name:")?, blocks, is_dead })
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn proc_unavailable(path: &str, error: &std::io::Error) -> SignalError {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SignalError::ProcUnavailable { path: path.to_owned(), errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_thread_status_is_parsed() {
        let status = "Name:\ta b\nUmask:\t0022\nState:\tS (sleeping)\nSigBlk:\t0000000000004002\n";
        let expected = ThreadStatus { name: "a b", blocks: 0x4002, is_dead: false };
        assert_eq!(ThreadStatus::parse(status), Some(expected));
        let dead = status.replace("S (sleeping)", "Z (zombie)");
        assert!(ThreadStatus::parse(&dead).expect("a status").is_dead);
        assert_eq!(ThreadStatus::parse("Name:\ta\n"), None);
        let own = std::fs::read_to_string("/proc/thread-self/status").expect("proc");
        assert_eq!(ThreadStatus::parse(&own).expect("a status").blocks, 0);
    }
}
