//! The timed loops: [`Batch`], [`interleaved`].
//!
//! The same loop times every check and is compiled once per check: a counter in a register, the
//! check, a test, and a jump back. The loop is aligned, so that short checks fit within one cache
//! line. Batches of the check alternate with batches of an empty loop and of a bare load, in one
//! process, so that the conditions are the same even for differences below a nanosecond. A sample
//! is the mean of a batch, including the loop, as in source 002.
//!
//! The loop is not subtracted: below a nanosecond the parts of a loop overlap, and a difference
//! would be meaningless.

#![allow(unsafe_code, reason = "empty assembly that aligns a loop")]

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use std::arch::asm;

use super::check::{BareLoad, Check, CompareExchange, NoCheck};
use super::methods::CheckMethod;
use crate::prelude::*;

const FEWEST: usize = 10;

/// The number of checks per sample, and of samples per invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) checks: u64,
    pub(crate) samples: usize,
    /// Maximum time. When it has passed, no further sample begins, unless there are fewer than ten.
    pub(crate) budget: Duration,
}

impl Batch {
    /// Returns long batches for checks that only access memory, so that the cost of the two stamps
    /// is negligible.
    pub(crate) fn of(method: &CheckMethod, size: Size) -> Self {
        let memory = (size.checks() / 20).clamp(1, 50_000);
        let checks = if method.enters_kernel { 1_000 } else { memory };
        let budget = match size {
            Size::Quick => Duration::from_millis(150),
            Size::Default => Duration::from_millis(350),
            Size::Full => Duration::from_secs(15),
        };
        Self { checks: checks as u64, samples: size.checks() / checks, budget }
    }
}

/// Nanoseconds per check, for the batches of each kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Interleaved {
    pub(crate) check: Vec<f64>,
    pub(crate) dummy: Vec<f64>,
    pub(crate) load: Vec<f64>,
    pub(crate) compare_exchange: Vec<f64>,
}

/// Times batches of `check` and of its three baselines in turn; two of them access `plain`.
pub(crate) fn interleaved(
    check: &impl Check,
    plain: &AtomicU32,
    clock: &Clock,
    batch: Batch,
) -> Result<Interleaved> {
    let (load, compare_exchange) = (BareLoad(plain), CompareExchange::new(plain));
    // The baselines take nanoseconds per loop, so their batches are long.
    let baseline = batch.checks.max(10_000);
    let mut seen = Interleaved::default();
    // The first round warms up caches and branch predictors and is not counted.
    timed(check, batch.checks, clock)?;
    timed(&NoCheck, baseline, clock)?;
    timed(&load, baseline, clock)?;
    timed(&compare_exchange, baseline, clock)?;
    let began = Instant::now();
    while seen.check.len() < batch.samples
        && (seen.check.len() < FEWEST || began.elapsed() < batch.budget)
    {
        seen.dummy.push(timed(&NoCheck, baseline, clock)?);
        seen.check.push(timed(check, batch.checks, clock)?);
        seen.load.push(timed(&load, baseline, clock)?);
        seen.compare_exchange.push(timed(&compare_exchange, baseline, clock)?);
    }
    Ok(seen)
}

fn timed<C: Check>(check: &C, checks: u64, clock: &Clock) -> Result<f64> {
    let from = clock.start();
    let made = repeat(check, checks);
    let ns = clock.ns_between(from, clock.stop());
    if made == checks {
        Ok(ns / checks as f64)
    } else {
        let error = check.look().err().map_or(String::new(), |error| format!(": {error}"));
        Err(MeasureError::fail(format!(
            "check {made} did not report a living process as alive{error}"
        )))
    }
}

/// Checks `checks` times, or until a check does not return "alive". Returns the number of checks
/// that returned "alive".
#[inline(never)]
pub(crate) fn repeat<C: Check>(check: &C, checks: u64) -> u64 {
    let (mut made, mut checks) = (0_u64, checks);
    align(&mut made, &mut checks);
    while made < checks {
        if check.look() != Ok(true) {
            break;
        }
        made = counted(made + 1);
    }
    made
}

/// Aligns the following code to a cache line. The loop's variables are passed through, so that
/// their initialisation stays in front of the aligned code.
#[inline(always)]
pub(crate) fn align(made: &mut u64, checks: &mut u64) {
    // SAFETY: the assembly is a directive, without instructions except padding; the registers keep
    // their values.
    unsafe {
        asm!(
            ".p2align 6",
            "/* {0} {1} */",
            inout(reg) * made,
            inout(reg) * checks,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Returns the counter in a way that keeps the compiler from computing it in advance.
#[inline(always)]
pub(crate) fn counted(mut made: u64) -> u64 {
    // SAFETY: the assembly contains no instruction; the register keeps its value.
    unsafe { asm!("/* {0} */", inout(reg) made, options(nomem, nostack, preserves_flags)) };
    made
}

#[cfg(test)]
pub(crate) mod tests {
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    use super::super::check::LifeWord;
    use super::super::check::MarkedWord;
    use super::*;

    #[test]
    fn repeated_check_stops_at_first_failure() {
        assert_eq!(repeat(&MarkedWord(&AtomicU32::new(5)), 1_000), 1_000);
        assert_eq!(repeat(&MarkedWord(&AtomicU32::new(0)), 1_000), 0);
    }

    /// Checks that loops whose figures differ by less than a nanosecond have the same alignment.
    /// Like all tests that read optimised code, this one exists in a release build only.
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    #[test]
    fn compared_loops_each_fit_one_cache_line() {
        let loops = [
            ("dummy", repeat::<NoCheck> as *const u8),
            ("load", repeat::<BareLoad<'_>> as *const u8),
            ("futex-word", repeat::<MarkedWord<'_>> as *const u8),
            ("life-word", repeat::<LifeWord> as *const u8),
        ];
        for (name, start) in loops {
            let body = only_loop(start);
            let (top, end) = (body[0].ip(), body[body.len() - 1].next_ip());
            assert_eq!(top / 64, (end - 1) / 64, "{name}: {top:#x}..{end:#x} crosses a line");
            assert!(end - top <= 40, "{name}: {} bytes", end - top);
        }
    }

    /// Checks the claim by reading the timed instructions.
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    #[test]
    fn futex_word_check_is_one_load_one_test_one_branch() {
        use iced_x86::{Instruction, Mnemonic, OpKind, Register};
        let body = only_loop(repeat::<MarkedWord<'_>> as *const u8);
        let (reads, mut rest): (Vec<&Instruction>, Vec<&Instruction>) = body
            .iter()
            .filter(|instruction| instruction.mnemonic() != Mnemonic::Nop)
            .partition(|i| (0..i.op_count()).any(|operand| i.op_kind(operand) == OpKind::Memory));

        // The load: a separate instruction, or part of the test.
        let [read] = reads[..] else { panic!("{} uses of memory", reads.len()) };
        let word = match read.mnemonic() {
            Mnemonic::Test => Register::None,
            Mnemonic::Mov if read.op1_kind() == OpKind::Memory => read.op0_register(),
            other => panic!("{other:?} on memory"),
        };
        assert!(!read.has_lock_prefix());

        // The loop's own instructions: a counter, its comparison, and a branch back.
        let own = rest.split_off(rest.len().saturating_sub(3));
        let [counter, comparison, back] = own[..] else { panic!("{} instructions", own.len()) };
        assert!(matches!(counter.mnemonic(), Mnemonic::Inc | Mnemonic::Add), "{counter}");
        assert_eq!(comparison.mnemonic(), Mnemonic::Cmp, "{comparison}");
        assert!(
            [comparison.op0_register(), comparison.op1_register()]
                .contains(&counter.op0_register())
        );
        assert!(is_conditional_jump(back), "{back}");

        // The remaining instructions: the test, unless it contains the load, and the branch.
        if word != Register::None {
            let test = rest.remove(0);
            assert_eq!((test.mnemonic(), test.op0_register()), (Mnemonic::Test, word), "{test}");
        }
        let [branch] = rest[..] else { panic!("{} instructions after the test", rest.len()) };
        assert!(matches!(branch.mnemonic(), Mnemonic::Je | Mnemonic::Jne), "{branch}");
    }

    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    fn is_conditional_jump(instruction: &iced_x86::Instruction) -> bool {
        let name = format!("{:?}", instruction.mnemonic());
        name.starts_with('J') && name != "Jmp"
    }

    /// Returns the instructions of a function's loop.
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    pub(crate) fn only_loop(start: *const u8) -> Vec<iced_x86::Instruction> {
        // SAFETY: the bytes belong to a function in the executable's text, which extends beyond
        // them.
        let code = unsafe { std::slice::from_raw_parts(start, 256) };
        let decoder =
            iced_x86::Decoder::with_ip(64, code, start as u64, iced_x86::DecoderOptions::NONE);
        let instructions: Vec<_> = decoder.into_iter().collect();
        let back = instructions
            .iter()
            .position(|i| {
                is_conditional_jump(i)
                    && i.near_branch_target() < i.ip()
                    && i.near_branch_target() >= start as u64
            })
            .expect("a loop within 256 bytes");
        let top = instructions[back].near_branch_target();
        instructions[..=back].iter().filter(|i| i.ip() >= top).copied().collect()
    }
}
