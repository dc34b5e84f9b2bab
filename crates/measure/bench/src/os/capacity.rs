//! Checks, before an experiment creates many processes, that the machine has enough free processes
//! and memory for all of them.

use rustix::process::{Resource, getrlimit, getuid};

use crate::error::{MeasureError, Result};
use crate::os::files::Files;

/// Number of processes that remain free for other programs.
const SPARE: u64 = 64;
/// Divisor of the free memory: an experiment may use half of it.
const SHARE: u64 = 2;

/// Checks that `count` more processes or threads of `bytes` each can be created.
pub fn for_processes(count: u64, bytes: u64) -> Result<()> {
    let files = Files::of_this_machine();
    let limit = getrlimit(Resource::Nproc).current;
    if let (Some(limit), false) = (limit, is_exempt(&files)) {
        let running = threads_of_ours(&files);
        if running + count + SPARE > limit {
            return Err(MeasureError::skip(format!(
                "needs {count} processes; RLIMIT_NPROC allows {limit}, {running} run already"
            )));
        }
    }
    for folder in cgroups(&files) {
        let number = |name: &str| files.number::<u64>(&format!("{folder}/{name}"));
        if let (Some(most), Some(running)) = (number("pids.max"), number("pids.current"))
            && running + count + SPARE > most
        {
            return Err(MeasureError::skip(format!(
                "needs {count} processes; {folder}/pids.max allows {most}, {running} run already"
            )));
        }
    }
    for_memory(count.saturating_mul(bytes))
}

/// Checks that an experiment may use `bytes` of memory: at most half of the free memory.
pub fn for_memory(bytes: u64) -> Result<()> {
    let files = Files::of_this_machine();
    let Some(free) = available(&files) else {
        return Ok(());
    };
    if bytes > free / SHARE {
        return Err(MeasureError::skip(format!(
            "needs {} MiB of memory; {} MiB are free, of which it takes at most half",
            bytes >> 20,
            free >> 20
        )));
    }
    Ok(())
}

/// Returns the bytes available without swapping, within the limits of this cgroup and its
/// ancestors. A cgroup's file pages that were not read recently count as available.
fn available(files: &Files) -> Option<u64> {
    let text = files.text("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10;
    let left_of = |folder: &String| {
        let most: u64 = files.number(&format!("{folder}/memory.max"))?;
        let used: u64 = files.number(&format!("{folder}/memory.current"))?;
        let facts = files.text(&format!("{folder}/memory.stat")).unwrap_or_default();
        let idle = facts.lines().find_map(|line| line.strip_prefix("inactive_file "));
        let idle = idle.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        Some(most.saturating_sub(used.saturating_sub(idle)))
    };
    Some(cgroups(files).iter().filter_map(left_of).fold(machine, u64::min))
}

/// Returns `true` if RLIMIT_NPROC does not apply: for root, unless it is root only of a user
/// namespace.
fn is_exempt(files: &Files) -> bool {
    let whole = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    getuid().is_root() && files.text("proc/self/uid_map").is_none_or(whole)
}

/// Returns the directories of this process's cgroup and its ancestors, version 2.
fn cgroups(files: &Files) -> Vec<String> {
    let text = files.text("proc/self/cgroup").unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let above = std::path::Path::new(path).ancestors();
    above.map(|path| format!("sys/fs/cgroup/{}", path.display())).collect()
}

/// Returns the number of this user's threads that `/proc` shows.
fn threads_of_ours(files: &Files) -> u64 {
    let Ok(folder) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let uid = getuid().as_raw().to_string();
    let pids = folder.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|pid| {
            let status = files.text(&format!("proc/{pid}/status"))?;
            let field = |name: &str| {
                status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
            };
            (field("Uid:")? == uid).then(|| field("Threads:")?.parse::<u64>().ok()).flatten()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::TempTree;

    #[test]
    fn resource_check_accepts_small_and_refuses_large_request() {
        for_processes(1, 1 << 20).expect("one process");
        let lack = for_memory(u64::MAX).expect_err("no machine has that much");
        assert!(lack.why().contains("MiB are free"), "{lack}");
    }

    #[test]
    fn available_memory_obeys_the_tightest_cgroup() {
        let tree = TempTree::empty();
        let limited = "sys/fs/cgroup/user.slice";
        tree.write("proc/self/cgroup", "0::/user.slice/session");
        tree.write("proc/meminfo", "MemAvailable:    8388608 kB");
        tree.write(&format!("{limited}/session/memory.max"), "max");
        tree.write(&format!("{limited}/memory.max"), &(2_u64 << 30).to_string());
        tree.write(&format!("{limited}/memory.current"), &(3_u64 << 29).to_string());
        assert_eq!(available(&tree.files()), Some(1 << 29));
        tree.write(&format!("{limited}/memory.stat"), &format!("inactive_file {}", 1_u64 << 29));
        assert_eq!(available(&tree.files()), Some(1 << 30));
        assert_eq!(cgroups(&tree.files()).len(), 3);
    }

    #[test]
    fn thread_count_includes_this_process() {
        assert!(threads_of_ours(&Files::of_this_machine()) >= 1);
    }
}
