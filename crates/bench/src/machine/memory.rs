//! Memory: amount, page sizes, and support for sharing by name.

use serde::Serialize;
use tontine_host::os::files::{Files, chosen, keyed};

/// Facts about memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryFacts {
    /// Total memory in bytes.
    pub total_bytes: Option<u64>,
    /// Memory available without swapping, in bytes.
    pub available_bytes: Option<u64>,
    /// Swap space in bytes.
    pub swap_bytes: Option<u64>,
    /// Size of a page in bytes.
    pub page_bytes: Option<u64>,
    /// State of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// `true` if the kernel merges equal pages (KSM).
    pub merging: Option<bool>,
    /// Number of NUMA nodes.
    pub nodes: Option<usize>,
    /// `true` if memory can be shared by name, because `/dev/shm` exists.
    pub shared_by_name: Option<bool>,
}

impl MemoryFacts {
    /// Reads the facts.
    pub fn look(files: &Files) -> Self {
        let info = files.text("proc/meminfo").unwrap_or_default();
        let bytes = |key: &str| keyed::<u64>(&info, key).map(|kib| kib * 1024);
        let nodes = files.names("sys/devices/system/node");
        let is_node = |name: &&String| {
            name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let nodes = nodes.iter().filter(is_node).count();
        Self {
            total_bytes: bytes("MemTotal"),
            available_bytes: bytes("MemAvailable"),
            swap_bytes: bytes("SwapTotal"),
            page_bytes: Some(rustix::param::page_size() as u64),
            huge_pages: files
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            merging: files.number::<u8>("sys/kernel/mm/ksm/run").map(|run| run == 1),
            nodes: (nodes > 0).then_some(nodes),
            shared_by_name: Some(files.path("dev/shm").is_dir()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::os::files::TempTree;

    #[test]
    fn memory_amounts_pages_and_nodes_are_read() {
        let tree = TempTree::empty();
        tree.write("proc/meminfo", "MemTotal:  2048 kB\nSwapTotal: 0 kB");
        tree.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
        tree.write("sys/kernel/mm/ksm/run", "1");
        tree.write("sys/devices/system/node/node0/cpulist", "0");
        tree.write("sys/devices/system/node/node1/cpulist", "1");
        tree.write("sys/devices/system/node/online", "0-1");
        tree.write("dev/shm/some", "");
        let memory = MemoryFacts::look(&tree.files());
        assert_eq!(memory.total_bytes, Some(2 << 20));
        assert_eq!(memory.available_bytes, None);
        assert_eq!(memory.swap_bytes, Some(0));
        assert_eq!(memory.huge_pages.as_deref(), Some("always"));
        assert_eq!(memory.merging, Some(true));
        assert_eq!(memory.nodes, Some(2));
        assert_eq!(memory.shared_by_name, Some(true));
        assert_eq!(MemoryFacts::look(&TempTree::empty().files()).shared_by_name, Some(false));
    }
}
