//! Whether the machine has room for more processes and more memory: asked before an experiment
//! makes many, so that none ends because another one took the rest.

use rustix::process::{Resource, getrlimit, getuid};

use crate::machine::files::Files;
use crate::trouble::{Result, Trouble};

/// What is left for everybody else.
const SPARE: u64 = 64;
/// The share of free memory that an experiment may take: a half.
const SHARE: u64 = 2;

/// Asks whether `count` more processes, or threads, of `bytes` each may be made.
///
/// # Errors
/// Skipped, with the limit and what was found in its way.
pub fn for_processes(count: u64, bytes: u64) -> Result<()> {
    let files = Files::of_this_machine();
    let limit = getrlimit(Resource::Nproc).current;
    // Root's processes are not counted against it.
    if let (Some(limit), false) = (limit, getuid().is_root()) {
        let running = threads_of_ours(&files);
        if running + count + SPARE > limit {
            return Err(Trouble::skip(format!(
                "needs {count} processes; RLIMIT_NPROC allows {limit}, {running} run already"
            )));
        }
    }
    if let (Some(most), Some(running)) = tasks_of_cgroup(&files)
        && running + count + SPARE > most
    {
        return Err(Trouble::skip(format!(
            "needs {count} processes; pids.max of the cgroup allows {most}, {running} run already"
        )));
    }
    for_memory(count.saturating_mul(bytes))
}

/// Asks whether `bytes` of memory may be taken: at most half of what is free.
///
/// # Errors
/// Skipped, with what is free.
pub fn for_memory(bytes: u64) -> Result<()> {
    let files = Files::of_this_machine();
    let Some(free) = available(&files) else {
        return Ok(());
    };
    if bytes > free / SHARE {
        return Err(Trouble::skip(format!(
            "needs {} MiB of memory; {} MiB are free, and it takes at most half",
            bytes >> 20,
            free >> 20
        )));
    }
    Ok(())
}

/// Bytes that could be had without swapping, within the cgroup's limit.
fn available(files: &Files) -> Option<u64> {
    let text = files.text("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10;
    let within = || {
        let folder = cgroup(files)?;
        let most: u64 = files.number(&format!("{folder}/memory.max"))?;
        let used: u64 = files.number(&format!("{folder}/memory.current"))?;
        Some(most.saturating_sub(used))
    };
    Some(within().map_or(machine, |left| left.min(machine)))
}

/// `pids.max` and `pids.current`, where there is a limit.
fn tasks_of_cgroup(files: &Files) -> (Option<u64>, Option<u64>) {
    let Some(folder) = cgroup(files) else {
        return (None, None);
    };
    (files.number(&format!("{folder}/pids.max")), files.number(&format!("{folder}/pids.current")))
}

/// The folder of this process's cgroup, version 2.
fn cgroup(files: &Files) -> Option<String> {
    let text = files.text("proc/self/cgroup")?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(format!("sys/fs/cgroup/{}", path.trim_start_matches('/')))
}

/// Threads of this user, as far as `/proc` shows them.
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

    #[test]
    fn a_few_fit_and_more_than_there_is_does_not() {
        for_processes(1, 1 << 20).expect("one process");
        let lack = for_memory(u64::MAX).expect_err("nobody has that");
        assert!(lack.why().contains("MiB are free"), "{lack}");
    }

    #[test]
    fn we_are_among_those_that_are_counted() {
        assert!(threads_of_ours(&Files::of_this_machine()) >= 1);
    }
}
