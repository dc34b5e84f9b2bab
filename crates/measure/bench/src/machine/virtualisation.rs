//! The layers below this process: hypervisor, stolen time, container, system-call filters.

use crate::os::files::{Files, keyed};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Virtualisation {
    /// Name of the hypervisor; `None` if no sign of a hypervisor was found.
    pub hypervisor: Option<String>,
    /// Time that the hypervisor gave to others while this system was ready to run, in ms since
    /// boot, summed over all processors.
    pub stolen_ms: Option<f64>,
    /// Stolen time as a share of the non-idle time.
    pub stolen_share: Option<f64>,
    /// Kind of container; `None` if no sign of a container was found.
    pub container: Option<String>,
    /// Number of system-call filters (seccomp) that each call of this process passes.
    pub call_filters: Option<u32>,
    /// Socket of a Docker engine that replies.
    pub docker_engine: Option<String>,
}

impl Virtualisation {
    pub fn look(files: &Files) -> Self {
        let times = ProcessorTimes::read(files);
        let status = files.text("proc/self/status").unwrap_or_default();
        Self {
            hypervisor: hypervisor(files),
            stolen_ms: times.map(|times| times.stolen_ms),
            stolen_share: times.and_then(|times| times.share()),
            container: container(files),
            // Before Linux 5.9, the kernel reports the mode and not the number of filters.
            call_filters: keyed(&status, "Seccomp_filters")
                .or_else(|| keyed::<u32>(&status, "Seccomp").map(|mode| u32::from(mode == 2))),
            docker_engine: docker_engine(files),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProcessorTimes {
    /// Time taken by the hypervisor, in ms.
    pub(super) stolen_ms: f64,
    /// Time spent working, for this system or for others, in ms.
    busy_ms: f64,
}

impl ProcessorTimes {
    pub(super) fn read(files: &Files) -> Option<Self> {
        let text = files.text("proc/stat")?;
        let mut words = text.lines().next()?.split_whitespace();
        (words.next()? == "cpu").then_some(())?;
        let ticks: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        // The fields are user nice system idle iowait irq softirq steal; user and nice include the
        // guests' time.
        let [user, nice, system, _, _, irq, softirq, stolen, ..] = ticks[..] else {
            return None;
        };
        let ms = 1e3 / rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            stolen_ms: stolen * ms,
            busy_ms: (user + nice + system + irq + softirq + stolen) * ms,
        })
    }

    fn share(self) -> Option<f64> {
        (self.busy_ms > 0.0).then(|| self.stolen_ms / self.busy_ms)
    }
}

fn hypervisor(files: &Files) -> Option<String> {
    by_processor().or_else(|| {
        let xen = files.text("sys/hypervisor/type");
        let tree = files.text("proc/device-tree/hypervisor/compatible");
        let board = ["sys_vendor", "product_name"]
            .iter()
            .filter_map(|name| files.text(&format!("sys/class/dmi/id/{name}")))
            .collect::<Vec<_>>()
            .join(" ");
        xen.or(tree).or_else(|| by_board(&board).map(str::to_owned))
    })
}

/// Returns the hypervisor named in the processor's identification, in leaves that the architecture
/// reserves for hypervisors.
#[cfg(target_arch = "x86_64")]
fn by_processor() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const PRESENT: u32 = 1 << 31;
    const VENDOR: u32 = 0x4000_0000;
    (__cpuid(1).ecx & PRESENT != 0).then(|| {
        let leaf = __cpuid(VENDOR);
        let bytes: Vec<u8> =
            [leaf.ebx, leaf.ecx, leaf.edx].into_iter().flat_map(u32::to_le_bytes).collect();
        by_signature(&String::from_utf8_lossy(&bytes))
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn by_processor() -> Option<String> {
    None
}

/// Returns the usual name of a hypervisor from its signature of twelve bytes.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86 has signatures"))]
pub(super) fn by_signature(signature: &str) -> String {
    let signature = signature.trim_matches(|c: char| c == '\0' || c == ' ');
    match signature {
        "KVMKVMKVM" => "KVM",
        "Linux KVM Hv" => "KVM",
        "Microsoft Hv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "TCGTCGTCGTCG" => "QEMU without KVM",
        "VBoxVBoxVBox" => "VirtualBox",
        "bhyve bhyve" => "bhyve",
        "prl hyperv" | "lrpepyh  vr" => "Parallels",
        "" => "unnamed hypervisor",
        other => other,
    }
    .to_owned()
}

/// Returns the hypervisor from the words in the board's identification.
pub(super) fn by_board(board: &str) -> Option<&'static str> {
    [
        ("KVM", "KVM"),
        ("QEMU", "QEMU"),
        ("VirtualBox", "VirtualBox"),
        ("VMware", "VMware"),
        ("Parallels", "Parallels"),
        ("Xen", "Xen"),
        ("Apple Virtualization", "Apple"),
        ("Microsoft Corporation Virtual Machine", "Hyper-V"),
    ]
    .into_iter()
    .find(|(word, _)| board.contains(word))
    .map(|(_, name)| name)
}

fn container(files: &Files) -> Option<String> {
    let marks = [(".dockerenv", "docker"), ("run/.containerenv", "podman")];
    let marked = marks.iter().find(|(path, _)| files.has(path)).map(|(_, name)| *name);
    let groups = || {
        let text = files.text("proc/self/cgroup")?;
        ["docker", "kubepods", "libpod", "containerd", "lxc"]
            .into_iter()
            .find(|word| text.contains(word))
            .map(str::to_owned)
    };
    marked.map(str::to_owned).or_else(|| files.text("run/systemd/container")).or_else(groups)
}

/// Returns the first of the usual sockets on which a server listens. Does not block.
fn docker_engine(files: &Files) -> Option<String> {
    let chosen = std::env::var("DOCKER_HOST").ok();
    let chosen = chosen.and_then(|host| host.strip_prefix("unix://").map(str::to_owned));
    let of_user = std::env::var("XDG_RUNTIME_DIR").ok();
    let of_user = of_user.map(|folder| format!("{folder}/docker.sock"));
    [chosen, Some("/var/run/docker.sock".to_owned()), of_user]
        .into_iter()
        .flatten()
        .find(|path| listens(files, path))
}

pub(super) fn listens(files: &Files, path: &str) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let try_it = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(files.path(path))?)
    };
    // AGAIN means that the queue of pending connections is full, so a server listens.
    matches!(try_it(), Ok(()) | Err(rustix::io::Errno::AGAIN))
}
