//! The processors that this process may use, and the resources that they share: [`Topology`].
//!
//! [`HardwareThread`] describes the resources that one hardware thread shares with others, as read
//! from `/sys/devices/system/cpu/cpu*/{topology,cache}`. [`Topology::of`] converts a list of them
//! to [`Placement`]s without access to the system, so that it can be tested with invented machines.
//!
//! The module does not pin threads; [`crate::os::pin`] does.

use crate::os::files::{Files, processor_list};
use crate::os::pin;

/// An assignment of two ends to processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// `same-core`, `siblings`, `cross-core`, `cross-cache` or `cross-socket`.
    pub name: &'static str,
    /// Processor of the measuring end.
    pub here: usize,
    /// Processor of the other end.
    pub there: usize,
}

/// The placements that the machine offers, the usual one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    placements: Vec<Placement>,
    processors: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareThread {
    pub cpu: usize,
    /// The lowest number among the hardware threads of its core. Its own number if that is unknown.
    pub core: usize,
    /// The lowest number among the hardware threads that share its last-level cache.
    pub cache: Option<usize>,
    pub socket: Option<usize>,
}

impl Topology {
    pub fn of_this_machine() -> Self {
        let allowed = pin::allowed().unwrap_or_else(|_| vec![0]);
        Self::of(&threads(&Files::of_this_machine(), &allowed))
    }

    /// Returns the placements that `threads` allow. For every kind, this is the first pair in
    /// ascending order.
    ///
    /// `cross-core` prefers two cores that share a last-level cache, then two cores of one socket,
    /// then any two cores. It is missing if there is only one core. `cross-cache` stays within a
    /// socket. A kind that depends on an unknown fact is also missing.
    pub fn of(threads: &[HardwareThread]) -> Self {
        let cores = |a: &HardwareThread, b: &HardwareThread| a.core != b.core;
        let one_cache =
            |a: &HardwareThread, b: &HardwareThread| a.cache.is_some() && a.cache == b.cache;
        let one_socket =
            |a: &HardwareThread, b: &HardwareThread| a.socket.is_some() && a.socket == b.socket;
        let differ =
            |a: Option<usize>, b: Option<usize>| matches!((a, b), (Some(a), Some(b)) if a != b);

        let cross_core = first_pair(threads, |a, b| cores(a, b) && one_cache(a, b))
            .or_else(|| first_pair(threads, |a, b| cores(a, b) && one_socket(a, b)))
            .or_else(|| first_pair(threads, cores));
        let siblings = first_pair(threads, |a, b| a.core == b.core);
        let cross_cache = first_pair(threads, |a, b| one_socket(a, b) && differ(a.cache, b.cache));
        let cross_socket = first_pair(threads, |a, b| differ(a.socket, b.socket));
        let same_core = threads.first().map(|only| (only.cpu, only.cpu));

        let placements = [
            ("cross-core", cross_core),
            ("siblings", siblings),
            ("cross-cache", cross_cache),
            ("cross-socket", cross_socket),
            ("same-core", same_core),
        ]
        .into_iter()
        .filter_map(|(name, pair)| pair.map(|(here, there)| Placement { name, here, there }))
        .collect();
        Self { placements, processors: threads.iter().map(|thread| thread.cpu).collect() }
    }

    /// Returns the topology of an invented machine of two cores.
    pub fn of_two_cores() -> Self {
        Self::of_cores(2)
    }

    /// Returns the topology of an invented machine.
    pub fn of_cores(cores: usize) -> Self {
        let thread = |cpu| HardwareThread { cpu, core: cpu, cache: None, socket: None };
        Self::of(&(0..cores).map(thread).collect::<Vec<_>>())
    }

    /// Returns the numbers of all processors, in ascending order.
    pub fn processors(&self) -> &[usize] {
        &self.processors
    }

    /// Returns `true` if two ends can be placed on two processors.
    pub fn spans_processors(&self) -> bool {
        self.placements.iter().any(|placement| placement.here != placement.there)
    }

    /// Returns all placements of two ends. If there are several cores, the nearest pair of
    /// different cores is first.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    pub fn placement(&self, name: &str) -> Option<Placement> {
        self.placements.iter().copied().find(|placement| placement.name == name)
    }
}

/// Returns the kernel's description of each processor in `cpus`.
pub fn threads(files: &Files, cpus: &[usize]) -> Vec<HardwareThread> {
    cpus.iter().map(|&cpu| thread(files, cpu)).collect()
}

fn thread(files: &Files, cpu: usize) -> HardwareThread {
    let folder = format!("sys/devices/system/cpu/cpu{cpu}");
    let lowest = |path: &str| processor_list(&files.text(path)?)?.into_iter().min();
    HardwareThread {
        cpu,
        // Kernels before 5.3 have only the second file.
        core: lowest(&format!("{folder}/topology/core_cpus_list"))
            .or_else(|| lowest(&format!("{folder}/topology/thread_siblings_list")))
            .unwrap_or(cpu),
        cache: last_level_cache(files, &folder)
            .and_then(|index| lowest(&format!("{folder}/cache/{index}/shared_cpu_list"))),
        // Some Arm machines report -1, which is not a socket.
        socket: files.number(&format!("{folder}/topology/physical_package_id")),
    }
}

/// Returns the name of the directory that describes the cache farthest from the core.
fn last_level_cache(files: &Files, folder: &str) -> Option<String> {
    let cache = format!("{folder}/cache");
    files
        .names(&cache)
        .into_iter()
        .filter(|index| index.starts_with("index"))
        .filter(|index| {
            files.text(&format!("{cache}/{index}/type")).as_deref() != Some("Instruction")
        })
        .filter_map(|index| {
            let level: u32 = files.number(&format!("{cache}/{index}/level"))?;
            Some((level, index))
        })
        .max()
        .map(|(_, index)| index)
}

fn first_pair(
    threads: &[HardwareThread],
    wanted: impl Fn(&HardwareThread, &HardwareThread) -> bool,
) -> Option<(usize, usize)> {
    threads.iter().enumerate().find_map(|(at, here)| {
        let there = threads[at + 1..].iter().find(|there| wanted(here, there))?;
        Some((here.cpu, there.cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::TempTree;

    /// Writes the kernel's files for one hardware thread.
    fn plant(tree: &TempTree, cpu: usize, core: &str, cache: &str, socket: &str) {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        tree.write(&format!("{folder}/topology/core_cpus_list"), core);
        tree.write(&format!("{folder}/topology/physical_package_id"), socket);
        for (index, level, kind, shared) in [
            (0, "1", "Data", core),
            (1, "1", "Instruction", core),
            (2, "2", "Unified", core),
            (3, "3", "Unified", cache),
        ] {
            let index = format!("{folder}/cache/index{index}");
            tree.write(&format!("{index}/level"), level);
            tree.write(&format!("{index}/type"), kind);
            tree.write(&format!("{index}/shared_cpu_list"), shared);
        }
    }

    fn found(tree: &TempTree, cpus: &[usize]) -> Vec<(&'static str, usize, usize)> {
        Topology::of(&threads(&tree.files(), cpus))
            .placements()
            .iter()
            .map(|placement| (placement.name, placement.here, placement.there))
            .collect()
    }

    /// A machine, as the arguments of [`plant`]; the allowed processors; the placements.
    type Case = (
        &'static [(usize, &'static str, &'static str, &'static str)],
        &'static [usize],
        &'static [(&'static str, usize, usize)],
    );

    #[test]
    fn placements_follow_from_cores_caches_and_sockets() {
        const TWO_PER_CORE: &[(usize, &str, &str, &str)] = &[
            (0, "0,4", "0-1,4-5", "0"),
            (1, "1,5", "0-1,4-5", "0"),
            (4, "0,4", "0-1,4-5", "0"),
            (5, "1,5", "0-1,4-5", "0"),
        ];
        const TWO_SOCKETS: &[(usize, &str, &str, &str)] = &[
            (0, "0", "0-1", "0"),
            (1, "1", "0-1", "0"),
            (2, "2", "2-3", "0"),
            (3, "3", "2-3", "0"),
            (4, "4", "4-5", "1"),
        ];
        const CASES: &[Case] = &[
            (TWO_PER_CORE, &[0, 1, 4, 5], &[("cross-core", 0, 1), ("siblings", 0, 4)]),
            // An affinity to one core leaves no other core.
            (TWO_PER_CORE, &[1, 5], &[("siblings", 1, 5)]),
            (
                TWO_SOCKETS,
                &[0, 1, 2, 3, 4],
                &[("cross-core", 0, 1), ("cross-cache", 0, 2), ("cross-socket", 0, 4)],
            ),
            (
                &[(0, "0", "0", "0"), (1, "1", "1", "0")],
                &[0, 1],
                &[("cross-core", 0, 1), ("cross-cache", 0, 1)],
            ),
            (&[(0, "0", "0-1", "0"), (1, "1", "0-1", "0")], &[0, 1], &[("cross-core", 0, 1)]),
            (&[(0, "0", "0", "0")], &[0], &[]),
            (&[], &[2, 3], &[("cross-core", 2, 3)]),
        ];
        for (machine, cpus, expected) in CASES {
            let tree = TempTree::empty();
            for (cpu, core, cache, socket) in *machine {
                plant(&tree, *cpu, core, cache, socket);
            }
            let expected = [*expected, &[("same-core", cpus[0], cpus[0])]].concat();
            assert_eq!(found(&tree, cpus), expected);
        }
    }

    #[test]
    fn old_sibling_list_and_unknown_socket_are_read() {
        let tree = TempTree::empty();
        for cpu in ["0", "1"] {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            tree.write(&format!("{folder}/thread_siblings_list"), "0-1");
            tree.write(&format!("{folder}/physical_package_id"), "-1");
        }
        assert_eq!(found(&tree, &[0, 1]), [("siblings", 0, 1), ("same-core", 0, 0)]);
    }

    #[test]
    fn placements_use_only_allowed_processors() {
        let topology = Topology::of_this_machine();
        let allowed = pin::allowed().expect("affinity");
        let same = topology.placement("same-core").expect("same-core");
        assert_eq!((same.here, same.there), (allowed[0], allowed[0]));
        assert!(topology.placements().iter().all(|placement| {
            allowed.contains(&placement.here) && allowed.contains(&placement.there)
        }));
    }
}
