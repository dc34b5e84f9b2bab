//! The processor's counter, as a clock that all processes of a host share: [`now`].
//!
//! Time namespaces shift the kernel's monotonic clocks but not this counter. It serves as a clock
//! only if the kernel uses it as its own clock source ([`check`]): the kernel does so if the
//! counters of all processors advance together and at a constant rate.
//!
//! If one thread calls [`now`] and then releases a store, and another thread acquires this store
//! and then calls [`now`], the second time is later than the first, provided that the first thread
//! calls [`pass`] between the two: some counters advance more slowly than a store reaches another
//! processor.

#![allow(unsafe_code, reason = "instructions that read the counter")]

#[cfg(not(loom))]
pub(crate) use counter::{check, now, pass};
#[cfg(loom)]
pub(crate) use model::{now, pass};

#[cfg(not(loom))]
mod counter {
    /// Name of the kernel's clock source that is the processor's counter.
    const SOURCE: &str = if cfg!(target_arch = "x86_64") { "tsc" } else { "arch_sys_counter" };

    /// The file that names the kernel's clock source.
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

    /// Returns the time: after all earlier loads of this thread, and before all its later loads and
    /// stores.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn now() -> u64 {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: every x86-64 processor has these instructions, and they change no memory.
        unsafe {
            _mm_lfence();
            let now = _rdtsc();
            _mm_lfence();
            now
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    pub(crate) fn now() -> u64 {
        let now: u64;
        // SAFETY: Linux lets every program read the counter, and the barriers change no memory.
        unsafe {
            std::arch::asm!(
                "dsb ishld", "isb", "mrs {now}, cntvct_el0", "isb", now = out(reg) now
            );
        }
        now
    }

    /// Returns once the time is later than `time`. The counter advances every 1 to 40 ns on
    /// AArch64; on x86-64 about once per cycle, which no manual promises.
    #[inline]
    pub(crate) fn pass(time: u64) {
        // SAFETY: every x86-64 processor has this instruction, and it changes no memory.
        #[cfg(target_arch = "x86_64")]
        let now = || unsafe { std::arch::x86_64::_rdtsc() };
        while now() <= time {}
    }

    /// Checks that the kernel uses the counter as its clock.
    ///
    /// # Errors
    /// Returns the name of the clock source that it uses.
    pub(crate) fn check() -> Result<(), String> {
        let source = std::fs::read_to_string(CURRENT).unwrap_or_default();
        let source = source.trim();
        if source == SOURCE { Ok(()) } else { Err(source.to_owned()) }
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::atomic::{AtomicU64, Ordering};

    loom::lazy_static! {
        static ref NOW: AtomicU64 = AtomicU64::new(1);
    }

    /// Returns the time, which advances with each call. What was visible before an earlier call is
    /// visible after a later one, as with the counter.
    pub(crate) fn now() -> u64 {
        NOW.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn pass(_time: u64) {}
}
