//! Memory: amount, page sizes, and support for sharing by name.

use crate::os::files::{Files, chosen, keyed};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryFacts {
    pub total_bytes: Option<u64>,
    /// Memory available without swapping, in bytes.
    pub available_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub page_bytes: Option<u64>,
    /// State of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// `true` if the kernel merges equal pages (KSM).
    pub merging: Option<bool>,
    pub nodes: Option<usize>,
    /// `true` if memory can be shared by name, because `/dev/shm` exists.
    pub shared_by_name: Option<bool>,
}

impl MemoryFacts {
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
