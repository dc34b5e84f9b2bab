//! The machine code of an uncontended send and receive contains no instruction that locks, fences
//! or enters the kernel.
//!
//! The code of a probe is decoded from its entry, along every branch and into every function that
//! it calls, except the functions for other cases. These functions are listed here, and found by
//! their names in the program's symbol table. A listed function that was inlined is decoded too.
//!
//! The promise is about optimised code, so these tests exist in a release build only:
//! `cargo test --release --package tontine --test machine_code`.

#![cfg(all(target_arch = "x86_64", not(debug_assertions)))]
#![allow(unsafe_code, reason = "reads its own instructions")]

use std::arch::asm;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use object::{Object, ObjectSymbol, SymbolKind};
use tontine::mailbox::{Mailbox, Sender};

/// The probes. They are found by name in the symbol table.
#[inline(never)]
fn probe_send(sender: &mut Sender, message: &[u8; 8]) -> bool {
    sender.send(message).is_ok()
}

/// A probe of a message of any length. It calls another function than `probe_send`, so that the
/// compiler inlines both.
#[inline(never)]
fn probe_send_any(sender: &mut Sender, message: &[u8]) -> bool {
    sender.send_timeout(message, Duration::MAX).is_ok()
}

#[inline(never)]
fn probe_receive(mailbox: &mut Mailbox) -> usize {
    mailbox.recv().map_or(0, |message| message.len())
}

#[inline(never)]
fn probe_fence(word: &AtomicU64) -> u64 {
    word.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed)
}

#[inline(never)]
fn probe_exchange(word: &AtomicU64) -> u64 {
    word.swap(3, Ordering::Relaxed)
}

#[inline(never)]
fn probe_lock(word: &AtomicU64) -> u64 {
    word.fetch_add(2, Ordering::Relaxed)
}

#[inline(never)]
fn probe_system_call(word: &AtomicU64) -> u64 {
    let answer: u64;
    // SAFETY: getpid changes only the three named registers.
    unsafe {
        asm!("syscall", inout("rax") libc::SYS_getpid as u64 => answer, out("rcx") _, out("r11") _);
    }
    answer + word.load(Ordering::Relaxed)
}

/// A probe that calls a fencing function in one of its branches.
#[inline(never)]
fn probe_callee(word: &AtomicU64) -> u64 {
    if word.load(Ordering::Relaxed) == 7 { probe_fence(word) } else { 7 }
}

/// Parts of the names of functions that report errors of the program.
const PANICS: [&str; 4] = ["panic", "expect_failed", "unwrap_failed", "_fail"];

/// The name reported for functions of the C library.
const OUTSIDE: &str = "outside of the program";

/// The functions of this program.
struct Functions {
    names: BTreeMap<u64, String>,
}

impl Functions {
    /// Reads the functions of the running program; `known` is the name and address of one of them.
    fn here(known: (&str, u64)) -> Self {
        let program = std::fs::read("/proc/self/exe").expect("the program");
        let program = object::File::parse(&*program).expect("an ELF file");
        let symbols = || {
            let functions = program.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
            functions.filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())))
        };
        let (linked, _) = symbols().find(|(_, name)| name.contains(known.0)).expect("the probe");
        let names =
            symbols().map(|(at, name)| (at.wrapping_sub(linked).wrapping_add(known.1), name));
        Self { names: names.collect() }
    }

    fn name(&self, at: u64) -> &str {
        self.names.get(&at).map_or(OUTSIDE, String::as_str)
    }
}

/// The result of decoding a probe.
#[derive(Default)]
struct Walk {
    instructions: BTreeMap<u64, Instruction>,
    /// Functions that were decoded too.
    followed: BTreeSet<String>,
    /// Functions that were not decoded.
    aside: BTreeSet<String>,
    /// `true` if an instruction returns to the probe's caller, with no call before it.
    returns: bool,
}

impl Walk {
    /// Decodes all code from `entry` on, except functions whose names contain an entry of `aside`.
    fn of(entry: u64, functions: &Functions, aside: &[&str]) -> Self {
        let mut walk = Self::default();
        let mut open = vec![entry];
        while let Some(at) = open.pop() {
            if walk.instructions.contains_key(&at) {
                continue;
            }
            assert!(walk.instructions.len() < 5_000, "too much code for a fast path");
            let instruction = decode(at);
            walk.instructions.insert(at, instruction);
            let target = match instruction.flow_control() {
                FlowControl::Next => None,
                FlowControl::Return => {
                    walk.returns = true;
                    continue;
                }
                FlowControl::Exception | FlowControl::Interrupt => continue,
                FlowControl::IndirectBranch | FlowControl::IndirectCall => {
                    Some(through_table(&instruction, functions, at))
                }
                _ if instruction.mnemonic() == Mnemonic::Syscall => None,
                _ => Some(instruction.near_branch_target()),
            };
            let is_branch = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
            );
            if let Some(target) = target {
                let calls = functions.names.contains_key(&target) && target != entry;
                let is_call = matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                );
                let is_outside = instruction.flow_control() == FlowControl::IndirectBranch;
                if calls || is_call || is_outside {
                    let name = functions.name(target).to_owned();
                    if aside.iter().chain(&PANICS).any(|part| name.contains(part)) {
                        walk.aside.insert(name);
                        continue;
                    }
                    walk.followed.insert(name);
                }
                open.push(target);
            }
            if !is_branch {
                open.push(instruction.next_ip());
            }
        }
        walk
    }

    /// Returns the instructions that lock, fence or enter the kernel.
    fn forbidden(&self) -> Vec<String> {
        let is_forbidden = |instruction: &&Instruction| {
            let to_memory = instruction.op0_kind() == OpKind::Memory
                || instruction.op1_kind() == OpKind::Memory;
            instruction.has_lock_prefix()
                || instruction.mnemonic() == Mnemonic::Xchg && to_memory
                || [
                    Mnemonic::Mfence,
                    Mnemonic::Lfence,
                    Mnemonic::Sfence,
                    Mnemonic::Syscall,
                    Mnemonic::Sysenter,
                    Mnemonic::Int,
                    Mnemonic::Serialize,
                    Mnemonic::Cpuid,
                ]
                .contains(&instruction.mnemonic())
        };
        self.instructions.values().filter(is_forbidden).map(|one| format!("{one}")).collect()
    }
}

fn decode(at: u64) -> Instruction {
    // SAFETY: `at` is in this program's code, which stays mapped. The bytes after the last
    // instruction belong to other sections of the same file.
    let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 15) };
    let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    assert!(!instruction.is_invalid(), "no instruction at {at:#x}");
    instruction
}

/// Returns the target of a call or jump through the linker's table of addresses.
fn through_table(instruction: &Instruction, functions: &Functions, at: u64) -> u64 {
    assert!(
        instruction.is_ip_rel_memory_operand(),
        "a jump that cannot be followed, near {}: {instruction}",
        functions.names.range(..=at).next_back().map_or("?", |(_, name)| name),
    );
    let slot = instruction.ip_rel_memory_address() as *const u64;
    // SAFETY: `slot` is in the program's own table, filled in when the program was loaded.
    unsafe { slot.read() }
}

fn functions() -> Functions {
    Functions::here(("probe_send", probe_send as *const () as u64))
}

/// Regression: the addresses of mapped memory were obtained by calls, two or four per message,
/// because a function without `#[inline]` is not inlined into a separately compiled program.
#[test]
fn fast_send_neither_locks_nor_fences_nor_enters_kernel() {
    let functions = functions();
    let entry = black_box(probe_send as *const ()) as u64;
    let aside = ["send_slowly", "AcceptedLane4ring", "separate_fully"];
    let walk = Walk::of(entry, &functions, &aside);
    assert_eq!(walk.forbidden(), [] as [&str; 0]);
    assert!(walk.returns && walk.followed.is_empty(), "no call: {:?}", walk.followed);
    for name in aside {
        assert!(walk.aside.iter().any(|seen| seen.contains(name)), "{name}: {:?}", walk.aside);
    }

    // The liveness check consists of one load, one test and one branch.
    let held = |instruction: &&Instruction| {
        instruction.mnemonic() == Mnemonic::Test
            && instruction.op_count() == 2
            && instruction.op1_kind() == OpKind::Immediate32
            && instruction.immediate32() == 0x3fff_ffff
    };
    let checks: Vec<_> = walk.instructions.values().filter(held).collect();
    assert_eq!(checks.len(), 1, "{checks:?}");
    let [check] = checks[..] else { unreachable!("counted above") };
    if check.op0_kind() != OpKind::Memory {
        // A separate instruction loads the value.
        let (_, load) = walk.instructions.range(..check.ip()).next_back().expect("before it");
        assert_eq!(load.next_ip(), check.ip());
        assert_eq!((load.mnemonic(), load.op1_kind()), (Mnemonic::Mov, OpKind::Memory), "{load}");
        assert_eq!(load.op0_register(), check.op0_register());
    }
    let branch = walk.instructions[&check.next_ip()];
    assert_eq!(branch.flow_control(), FlowControl::ConditionalBranch, "{branch}");
}

/// A message that is stored past the cache needs an `sfence` before its header is stored.
#[test]
fn send_of_large_message_contains_one_sfence() {
    let functions = functions();
    let entry = black_box(probe_send_any as *const ()) as u64;
    let mut aside = vec![
        "send_slowly",
        "AcceptedLane4ring",
        "separate_fully",
        // The sender reads the clock, at most once per 64 KiB.
        "end_phase",
        "drop_in_place",
        OUTSIDE,
    ];
    assert_eq!(Walk::of(entry, &functions, &aside).forbidden(), ["sfence"]);
    aside.push("copy_large_in");
    let walk = Walk::of(entry, &functions, &aside);
    assert_eq!(walk.forbidden(), [] as [&str; 0]);
    assert!(walk.returns && walk.aside.iter().any(|seen| seen.contains("copy_large_in")));
}

#[test]
fn fast_recv_neither_locks_nor_fences_nor_enters_kernel() {
    let functions = functions();
    let entry = black_box(probe_receive as *const ()) as u64;
    let aside = [
        // The lane is empty, or another lane has its turn.
        "recv_slowly",
        // A quarter of the ring was read.
        "notify_space",
        // The next record is padding, the next message is in another chunk, or the sender broke the
        // protocol.
        "peek_slow",
        "InboundLane6follow",
        // The message is longer than any before it.
        "do_reserve_and_handle",
        "finish_grow",
        "handle_error",
        // The contents of an error are freed, if an error exists.
        "drop_in_place",
        OUTSIDE,
    ];
    let walk = Walk::of(entry, &functions, &aside);
    assert_eq!(walk.forbidden(), [] as [&str; 0]);
    assert!(walk.returns, "{:?}", walk.followed);
    for name in ["recv_slowly", "notify_space"] {
        assert!(walk.aside.iter().any(|seen| seen.contains(name)), "{name}: {:?}", walk.aside);
    }
}

#[test]
fn machine_code_check_finds_forbidden_instructions() {
    let functions = functions();
    let probes = [
        (probe_fence as *const (), "a fence"),
        (probe_exchange as *const (), "an exchange"),
        (probe_lock as *const (), "a lock"),
        (probe_system_call as *const (), "a system call"),
        (probe_callee as *const (), "a fence in a called function"),
    ];
    for (probe, what) in probes {
        let entry = black_box(probe) as u64;
        assert_ne!(Walk::of(entry, &functions, &[]).forbidden(), [] as [&str; 0], "{what}");
    }
}
