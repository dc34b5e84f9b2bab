//! The memory and the descriptors of a gateway since the beginning of its traffic: [`UsageRange`].

use std::fs;

/// The resources of a process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceUse {
    /// Resident memory in KiB.
    pub(crate) resident: u64,
    /// Number of open descriptors.
    pub(crate) descriptors: u64,
}

impl ResourceUse {
    /// Returns the resources of a process, or `None` if it has ended.
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident = line.split_whitespace().next()?.parse().ok()?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
        Some(Self { resident, descriptors })
    }
}

/// The first and the largest resources of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageRange {
    first: ResourceUse,
    max: ResourceUse,
}

impl UsageRange {
    /// Adds the present resources of a process to a range, or begins one.
    pub(crate) fn sample(range: &mut Option<Self>, pid: u32) {
        let Some(present) = ResourceUse::of(pid) else { return };
        let range = range.get_or_insert(Self { first: present, max: present });
        range.max.resident = range.max.resident.max(present.resident);
        range.max.descriptors = range.max.descriptors.max(present.descriptors);
    }

    /// Returns the growth from the first resources to the largest ones.
    pub(crate) fn growth(&self) -> ResourceUse {
        ResourceUse {
            resident: self.max.resident - self.first.resident,
            descriptors: self.max.descriptors - self.first.descriptors,
        }
    }
}

/// Returns the local addresses of a process's connections over TCP to a port, as the kernel writes
/// them.
pub(crate) fn connections(pid: u32, port: u16) -> Vec<String> {
    const ESTABLISHED: &str = "01";
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let remote = format!(":{port:04X}");
    let rows = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_wanted = words.get(2)?.ends_with(&remote) && *words.get(3)? == ESTABLISHED;
        is_wanted.then(|| words[1].to_owned())
    });
    rows.collect()
}
