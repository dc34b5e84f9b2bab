//! The processors: model, number, caches and their sharing.

use crate::os::files::{Files, processor_list};
use crate::os::pin;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ProcessorFacts {
    /// Instruction set, such as `x86_64` or `aarch64`.
    pub architecture: Option<String>,
    pub model: Option<String>,
    /// Number of processors (hardware threads) that are online.
    pub online: Option<usize>,
    /// Number of online processors on which this process may run.
    pub allowed: Option<usize>,
    /// Number of sockets with online processors.
    pub sockets: Option<usize>,
    /// Hardware threads of each core that has several, as lists.
    pub siblings: Option<Vec<String>>,
    /// Caches, nearest first, each with the list of processors that share it.
    pub caches: Option<Vec<Cache>>,
    /// Processors isolated from the scheduler (`isolcpus=`).
    pub isolated: Option<Vec<usize>>,
    /// Processors without a periodic tick (`nohz_full=`).
    pub tickless: Option<Vec<usize>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cache {
    /// Level of the cache. Level 1 is nearest to the core.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    pub size: String,
    pub line_bytes: Option<u32>,
    /// Processors that share the cache, such as `0-1`.
    pub shared_by: String,
}

const CPUS: &str = "sys/devices/system/cpu";

impl ProcessorFacts {
    pub fn look(files: &Files) -> Self {
        let online = files.text(&format!("{CPUS}/online"));
        let online = online.and_then(|list| processor_list(&list));
        let each = online.clone().unwrap_or_default();
        Self {
            architecture: Some(std::env::consts::ARCH.to_owned()),
            model: files.text("proc/cpuinfo").and_then(|text| model(&text)),
            online: online.as_ref().map(Vec::len),
            allowed: pin::allowed().ok().map(|cpus| cpus.len()),
            sockets: distinct(files, &each, "topology/physical_package_id").map(|all| all.len()),
            siblings: distinct(files, &each, "topology/thread_siblings_list").map(|all| {
                all.into_iter()
                    .filter(|list| processor_list(list).is_some_and(|cpus| cpus.len() > 1))
                    .collect()
            }),
            caches: caches(files, &each),
            isolated: listed(files, "isolated"),
            tickless: listed(files, "nohz_full"),
        }
    }
}

/// Reads a list of processors from a file of the kernel. An empty file is an empty list.
fn listed(files: &Files, name: &str) -> Option<Vec<usize>> {
    let path = format!("{CPUS}/{name}");
    let text = files.text(&path).unwrap_or_default();
    // If every processor has a tick, some kernels write this text instead of an empty file.
    let text = if text == "(null)" { "" } else { &text };
    files.has(&path).then(|| processor_list(text))?
}

/// Returns the distinct texts in the processors' files of this name.
fn distinct(files: &Files, cpus: &[usize], name: &str) -> Option<Vec<String>> {
    let mut all: Vec<String> =
        cpus.iter().filter_map(|cpu| files.text(&format!("{CPUS}/cpu{cpu}/{name}"))).collect();
    all.sort();
    all.dedup();
    (!all.is_empty()).then_some(all)
}

fn caches(files: &Files, cpus: &[usize]) -> Option<Vec<Cache>> {
    let mut all = Vec::new();
    for cpu in cpus {
        let folder = format!("{CPUS}/cpu{cpu}/cache");
        for index in files.names(&folder) {
            let fact = |name: &str| files.text(&format!("{folder}/{index}/{name}"));
            let Some(level) = fact("level").and_then(|level| level.parse().ok()) else {
                continue;
            };
            all.push(Cache {
                level,
                kind: fact("type").unwrap_or_else(|| "unknown".to_owned()),
                size: fact("size").unwrap_or_else(|| "unknown".to_owned()),
                line_bytes: fact("coherency_line_size").and_then(|bytes| bytes.parse().ok()),
                shared_by: fact("shared_cpu_list").unwrap_or_else(|| cpu.to_string()),
            });
        }
    }
    all.sort();
    all.dedup();
    (!all.is_empty()).then_some(all)
}

/// Returns the model's name. Arm's file has no name, but contains the numbers of the implementer
/// and the part.
fn model(cpuinfo: &str) -> Option<String> {
    let value = |key: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
        })
    };
    value("model name").or_else(|| {
        let (maker, part) = (value("CPU implementer")?, value("CPU part")?);
        Some(format!("Arm implementer {maker}, part {part}"))
    })
}
