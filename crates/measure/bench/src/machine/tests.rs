//! Tests of the facts that are read from the kernel's files, from constructed trees.

use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use super::kernel::KernelFacts;
use super::load::{Counters, LoadFacts};
use super::virtualisation::{by_board, by_signature, listens};
use super::*;
use crate::os::files::TempTree;

/// Checks facts by their JSON pointers.
fn assert_facts(tree: &TempTree, facts: &[(&str, Value)]) {
    let files = tree.files();
    let found = json!({
        "processor": processor::ProcessorFacts::look(&files),
        "scheduling": scheduling::Scheduling::look(&files),
        "power": power::Power::look(&files),
        "kernel": KernelFacts::look(&files),
        "memory": memory::MemoryFacts::look(&files),
        "virtualisation": virtualisation::Virtualisation::look(&files),
        "load": LoadFacts::look(&files, Counters::read(&files)),
    });
    for (pointer, expected) in facts {
        assert_eq!(found.pointer(pointer), Some(expected), "{pointer}");
    }
}

#[test]
fn processor_and_power_facts_are_read() {
    const CPU: &str = "sys/devices/system/cpu";
    let tree = TempTree::empty();
    tree.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast  CPU @ 3GHz\n");
    let write = |path: String, text: &str| tree.write(&format!("{CPU}/{path}"), text);
    for (path, text) in [
        ("online", "0-1"),
        ("isolated", "1"),
        ("nohz_full", "(null)"),
        ("intel_pstate/no_turbo", "0"),
    ] {
        write(path.into(), text);
    }
    for cpu in 0..2 {
        write(format!("cpu{cpu}/topology/physical_package_id"), "0");
        write(format!("cpu{cpu}/topology/thread_siblings_list"), "0-1");
        for (index, level, kind) in [(0, "1", "Data"), (1, "3", "Unified")] {
            let index = format!("cpu{cpu}/cache/index{index}");
            write(format!("{index}/level"), level);
            write(format!("{index}/type"), kind);
            write(format!("{index}/size"), "48K");
            write(format!("{index}/shared_cpu_list"), "0-1");
        }
        write(format!("cpufreq/policy{cpu}/scaling_governor"), "powersave");
        write(format!("cpufreq/policy{cpu}/scaling_min_freq"), "400000");
        write(format!("cpufreq/policy{cpu}/scaling_max_freq"), "4800000");
    }
    for (number, wake, disable) in [(0, "0", "0"), (1, "2", "0"), (10, "890", "1")] {
        let state = format!("cpu0/cpuidle/state{number}");
        write(format!("{state}/name"), "C");
        write(format!("{state}/latency"), wake);
        write(format!("{state}/disable"), disable);
    }
    let cache = |level: u32, kind: &str| {
        let (size, line_bytes, shared_by) = ("48K", Value::Null, "0-1");
        json!({"level": level, "kind": kind, "size": size, "line_bytes": line_bytes,
            "shared_by": shared_by})
    };
    let state =
        |wake: u64, disabled: bool| json!({"name": "C", "wake_us": wake, "disabled": disabled});
    let facts = [
        ("/processor/model", json!("Fast CPU @ 3GHz")),
        ("/processor/online", json!(2)),
        ("/processor/sockets", json!(1)),
        ("/processor/siblings", json!(["0-1"])),
        ("/processor/isolated", json!([1])),
        ("/processor/tickless", json!([])),
        ("/processor/caches", json!([cache(1, "Data"), cache(3, "Unified")])),
        ("/power/governors", json!(["powersave"])),
        ("/power/frequency_khz", json!([400_000, 4_800_000])),
        ("/power/turbo", json!(true)),
        ("/power/idle_states", json!([state(0, false), state(2, false), state(890, true)])),
    ];
    assert_facts(&tree, &facts);
    let deepest = power::Power::look(&tree.files()).deepest_wake_us();
    assert_eq!(deepest, Some(2), "a deeper state is switched off");
}

/// Files of a tree, and the facts that are read from them.
type Case = (&'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

#[test]
fn facts_are_read_from_the_kernels_files() {
    const CASES: &[Case] = &[
        (
            &[],
            &[
                ("/processor/model", "null"),
                ("/processor/online", "null"),
                ("/processor/caches", "null"),
                ("/processor/isolated", "null"),
                ("/power/turbo", "null"),
                ("/kernel/preemption", "null"),
                ("/scheduling/quota", "null"),
                ("/virtualisation/container", "null"),
                ("/memory/shared_by_name", "false"),
            ],
        ),
        (
            &[
                ("proc/cpuinfo", "CPU implementer : 0x41\nCPU part\t: 0xd0c\n"),
                ("sys/devices/system/cpu/cpufreq/boost", "0"),
                ("proc/stat", "cpu  1 2 3"),
            ],
            &[
                ("/processor/model", r#""Arm implementer 0x41, part 0xd0c""#),
                ("/power/turbo", "false"),
                ("/virtualisation/stolen_ms", "null"),
            ],
        ),
        (
            &[
                ("sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI"),
                ("sys/devices/system/cpu/vulnerabilities/mds", "Not affected"),
                ("proc/cmdline", "quiet isolcpus=2 mitigations=auto root=/dev/vda"),
                ("proc/sys/kernel/osrelease", "5.15.0"),
                ("boot/config-5.15.0", "CONFIG_HZ=250\nCONFIG_PREEMPT_VOLUNTARY=y"),
                ("proc/loadavg", "1.50 0.75 0.10 3/120 999"),
                ("proc/pressure/cpu", "some avg10=2.25 avg60=1.00 avg300=0.00 total=9"),
            ],
            &[
                ("/kernel/mitigations", r#"{"meltdown": "Mitigation: PTI"}"#),
                ("/kernel/boot_options", r#"["isolcpus=2", "mitigations=auto"]"#),
                ("/kernel/preemption", r#""voluntary""#),
                ("/load/last_minute", "1.5"),
                ("/load/last_five_minutes", "0.75"),
                ("/load/runnable", "3"),
                ("/load/processor_pressure", "2.25"),
                ("/load/memory_pressure", "null"),
            ],
        ),
        // The mode requested at boot precedes that of the build, and the active one both.
        (
            &[
                ("proc/cmdline", "quiet preempt=full"),
                ("proc/sys/kernel/osrelease", "5.15.0"),
                ("boot/config-5.15.0", "CONFIG_PREEMPT_VOLUNTARY=y"),
            ],
            &[("/kernel/preemption", r#""full""#)],
        ),
        (
            &[
                ("proc/cmdline", "preempt=full"),
                ("sys/kernel/debug/sched/preempt", "none voluntary full [lazy]"),
            ],
            &[("/kernel/preemption", r#""lazy""#)],
        ),
        (
            &[
                ("sys/kernel/debug/sched/preempt", "(none) voluntary full"),
                ("proc/version", "Linux version 6.1 #1 SMP PREEMPT_RT"),
            ],
            &[("/kernel/preemption", r#""real-time""#)],
        ),
        (
            &[
                ("proc/meminfo", "MemTotal:  2048 kB\nSwapTotal: 0 kB"),
                ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
                ("sys/kernel/mm/ksm/run", "1"),
                ("sys/devices/system/node/node0/cpulist", "0"),
                ("sys/devices/system/node/node1/cpulist", "1"),
                ("sys/devices/system/node/online", "0-1"),
                ("dev/shm/some", ""),
            ],
            &[
                ("/memory/total_bytes", "2097152"),
                ("/memory/available_bytes", "null"),
                ("/memory/swap_bytes", "0"),
                ("/memory/huge_pages", r#""always""#),
                ("/memory/merging", "true"),
                ("/memory/nodes", "2"),
                ("/memory/shared_by_name", "true"),
            ],
        ),
        // The tightest limit of version 2 applies.
        (
            &[
                ("proc/self/cgroup", "0::/slice/job"),
                (
                    "proc/self/mountinfo",
                    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
                ),
                ("sys/fs/cgroup/slice/job/cpu.max", "max 100000"),
                ("sys/fs/cgroup/slice/cpu.max", "150000 100000"),
                (
                    "sys/fs/cgroup/slice/job/cpu.stat",
                    "usage_usec 9\nnr_throttled 3\nthrottled_usec 4500",
                ),
            ],
            &[
                ("/scheduling/cgroup", r#""v2""#),
                ("/scheduling/quota", "1.5"),
                ("/scheduling/throttled_periods", "3"),
                ("/scheduling/throttled_ms", "4.5"),
            ],
        ),
        // Version 1, inside a container.
        (
            &[
                ("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n0::/docker/abc"),
                (
                    "proc/self/mountinfo",
                    "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                     31 23 0:27 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct",
                ),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
                ("sys/fs/cgroup/cpu/cpu.stat", "nr_throttled 1\nthrottled_time 2000000"),
            ],
            &[
                ("/scheduling/cgroup", r#""v1""#),
                ("/scheduling/quota", "0.5"),
                ("/scheduling/throttled_ms", "2.0"),
                ("/virtualisation/container", r#""docker""#),
            ],
        ),
        (
            &[
                ("proc/self/cgroup", "1:cpu:/"),
                ("proc/self/mountinfo", "31 23 0:27 / /cg rw - cgroup cgroup rw,cpu"),
                ("cg/cpu.cfs_quota_us", "-1"),
                ("cg/cpu.cfs_period_us", "100000"),
                ("run/.containerenv", ""),
                ("proc/self/status", "Seccomp:\t2"),
                ("proc/stat", "cpu  60 0 10 900 5 5 5 20 0 0\ncpu0 1 1 1"),
            ],
            &[
                ("/scheduling/quota", "null"),
                ("/virtualisation/container", r#""podman""#),
                ("/virtualisation/call_filters", "1"),
                ("/virtualisation/stolen_share", "0.2"),
            ],
        ),
        (
            &[
                ("proc/self/cgroup", "0::/kubepods/pod1"),
                ("proc/self/status", "Seccomp:\t2\nSeccomp_filters:\t3"),
                // Field 41 is the policy, field 19 the nice value.
                (
                    "proc/self/stat",
                    "7 (a) b (c)) 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 -5 20 21 22 23 24 25 26 \
                     27 28 29 30 31 32 33 34 35 36 37 38 39 40 1 42",
                ),
            ],
            &[
                ("/virtualisation/container", r#""kubepods""#),
                ("/virtualisation/call_filters", "3"),
                ("/scheduling/policy", r#""fifo""#),
                ("/scheduling/nice", "-5"),
            ],
        ),
    ];
    for (files, facts) in CASES {
        let tree = TempTree::empty();
        files.iter().for_each(|(path, text)| tree.write(path, text));
        let json = |(pointer, text): &(&'static str, &str)| {
            (*pointer, serde_json::from_str(text).expect("JSON"))
        };
        assert_facts(&tree, &facts.iter().map(json).collect::<Vec<_>>());
    }
}

#[test]
fn rates_cover_the_time_between_two_readings() {
    let tree = TempTree::empty();
    tree.write("proc/stat", "cpu 1\nintr 1000 5 6\nctxt 500");
    let before = Counters::read(&tree.files());
    tree.write("proc/stat", "cpu 1\nintr 3000 5 6\nctxt 600");
    let load = LoadFacts::look(&tree.files(), before);
    let ratio = load.interrupts_per_s.expect("rate") / load.switches_per_s.expect("rate");
    assert!((ratio - 20.0).abs() < 1e-9, "2,000 against 100 in the same time");
}

#[test]
fn hypervisors_are_recognised() {
    assert_eq!(by_signature("KVMKVMKVM\0\0\0"), "KVM");
    assert_eq!(by_signature("NewVendor123"), "NewVendor123");
    assert_eq!(by_board("QEMU KVM Virtual Machine"), Some("KVM"));
    assert_eq!(by_board("LENOVO ThinkPad"), None);
}

#[test]
fn container_socket_counts_only_if_it_has_a_listener() {
    let tree = TempTree::empty();
    let files = tree.files();
    assert!(!listens(&files, "docker.sock"));
    let listener = UnixListener::bind(files.path("docker.sock")).expect("bind");
    assert!(listens(&files, "docker.sock"));
    drop(listener);
    assert!(!listens(&files, "docker.sock"), "a stale file is not an engine");
}

#[test]
fn kernel_versions_are_parsed() {
    for (release, version, short) in [
        ("6.18.44-fc", Some((6, 18)), "6.18.44"),
        ("5.10", Some((5, 10)), "5.10"),
        ("5.4-rc1", Some((5, 4)), "5.4"),
        ("mainline", None, ""),
    ] {
        let kernel = KernelFacts { release: Some(release.to_owned()), ..KernelFacts::default() };
        assert_eq!((kernel.version(), kernel.short_release()), (version, Some(short)));
    }
}

#[test]
fn facts_of_this_machine_have_all_topics() {
    let machine = MachineFacts::look();
    assert!(machine.processor.online.is_some_and(|online| online > 0));
    assert!(machine.kernel.version().is_some());
    assert!(stolen_ms().is_some());
    let json = serde_json::to_value(&machine).expect("facts become JSON");
    let topics: Vec<&String> = json.as_object().expect("an object").keys().collect();
    assert_eq!(topics.len(), 10, "{topics:?}");
}

#[test]
fn one_line_contains_the_known_facts() {
    let mut machine = MachineFacts::default();
    assert_eq!(machine.one_line(), "Linux");
    machine.processor.model = Some("AMD EPYC".to_owned());
    machine.processor.allowed = Some(2);
    machine.processor.online = Some(4);
    machine.virtualisation.hypervisor = Some("KVM".to_owned());
    machine.kernel.release = Some("6.18.44-cloud".to_owned());
    let line = "AMD EPYC, 2 of 4 processors, KVM, Linux 6.18.44";
    assert_eq!(machine.one_line(), line);
}
