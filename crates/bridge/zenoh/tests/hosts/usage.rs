//! The memory and the descriptors of a gateway since the beginning of its traffic: [`UsageRange`].

use std::fs;

use crate::hosts::resources;

/// The first and the largest resources of a process: resident memory in bytes, and descriptors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageRange {
    first: [u64; 2],
    max: [u64; 2],
}

impl UsageRange {
    /// Adds the present resources of a process to a range, or begins one.
    pub(crate) fn sample(range: &mut Option<Self>, pid: u32) {
        let present = [resources::memory(pid).0, resources::descriptors(pid) as u64];
        let range = range.get_or_insert(Self { first: present, max: present });
        range.max = [0, 1].map(|at| range.max[at].max(present[at]));
    }

    /// Returns the growth from the first resources to the largest ones.
    pub(crate) fn growth(&self) -> [u64; 2] {
        [0, 1].map(|at| self.max[at] - self.first[at])
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
