//! Memory, descriptors, threads and processor time of a process, from `/proc`.

use std::fs;
use std::time::Duration;

/// Returns the number of open descriptors.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of this user").count()
}

/// Returns the number of threads.
pub fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).expect("a process of this user").count()
}

/// Returns the number of a process's threads with a name.
pub fn threads_named(pid: u32, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process of this user");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Returns a value of `/proc/PID/status` in bytes.
fn status(pid: u32, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a known key");
    let kib = line.trim_start_matches(':').trim().trim_end_matches("kB").trim();
    kib.parse::<u64>().expect("a number") << 10
}

/// Returns the resident memory in bytes: all of it, and the part that is not shared.
pub fn memory(pid: u32) -> (u64, u64) {
    (status(pid, "VmRSS"), status(pid, "RssAnon"))
}

/// Returns the processor time that a process has used (`proc_pid_stat(5)`, fields 14 and 15).
pub fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks = |field: usize| -> u64 {
        rest.split_whitespace().nth(field - 3).and_then(|word| word.parse().ok()).expect("a number")
    };
    let per_second = rustix::param::clock_ticks_per_second();
    Duration::from_millis((ticks(14) + ticks(15)) * 1000 / per_second)
}
