//! The memory of a parent, with every page written: [`Ballast`].
//!
//! The pages are small, 4 KiB (the machine's smallest size). Large pages would have a
//! five-hundredth of the page table entries, and copying these entries is the cost of a large
//! process's fork.

#![allow(unsafe_code, reason = "maps memory and advises the kernel on it")]

use rustix::io::Errno;

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::prelude::*;

/// Private memory whose pages have all been written; unmapped on drop.
#[derive(Debug)]
pub(super) struct Ballast {
    at: *mut c_void,
    bytes: usize,
    small_pages: bool,
}

impl Ballast {
    pub(super) fn touched(bytes: u64) -> Result<Self> {
        let bytes = bytes as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address chosen by the kernel affects none of our memory.
        let at = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) };
        let mut ballast = Self { at: at.setting_up("mmap")?, bytes, small_pages: true };
        // SAFETY: only this code uses the mapping, and both pieces of advice preserve its content:
        // zeros.
        ballast.small_pages = match unsafe { madvise(ballast.at, bytes, Advice::LinuxNoHugepage) } {
            Ok(()) => true,
            // A kernel without large pages rejects this advice.
            Err(Errno::INVAL) => true,
            Err(_) => false,
        };
        // Populates the mapping in one call if the kernel supports it (5.14), because one fault per
        // page takes three times as long.
        // SAFETY: as above.
        if unsafe { madvise(ballast.at, bytes, Advice::LinuxPopulateWrite) }.is_err() {
            ballast.write_each_page();
        }
        Ok(ballast)
    }

    fn write_each_page(&self) {
        for offset in (0..self.bytes).step_by(page_size()) {
            // SAFETY: the address is inside the mapping, which only this code uses.
            unsafe { self.at.byte_add(offset).cast::<u8>().write_volatile(1) };
        }
    }

    pub(super) fn note(&self) -> String {
        let pages = self.bytes / page_size();
        if self.small_pages {
            format!("parent: {pages} touched pages of {} KiB, large pages off", page_size() >> 10)
        } else {
            let mib = self.bytes >> 20;
            format!("parent: {mib} MiB touched, possibly in large pages: madvise failed")
        }
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        // SAFETY: only this code uses the mapping, and no reference to it remains.
        let _ = unsafe { munmap(self.at, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test runs in its own process, because mappings of other tests would move the lines that
    /// it reads.
    #[test]
    fn ballast_pages_are_resident_and_small() {
        const BYTES: u64 = 8 << 20;
        in_a_process_of_its_own(|| {
            let ballast = Ballast::touched(BYTES).expect("memory");
            let smaps = std::fs::read_to_string("/proc/self/smaps").expect("proc");
            let here = ballast.at as u64;
            let holds_us = |line: &&str| {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                let number = |text| u64::from_str_radix(text, 16).ok();
                let range = range.and_then(|(from, to)| Some(number(from)?..number(to)?));
                range.is_some_and(|range| range.contains(&here))
            };
            // The kernel may have merged an adjacent mapping into this one.
            let mut mapping = smaps.lines().skip_while(|line| !holds_us(line));
            let mut field = |name: &str| -> Option<u64> {
                let line = mapping.find_map(|line| line.strip_prefix(name))?;
                line.trim().trim_end_matches(" kB").parse().ok()
            };
            let (there, large) = (field("Rss:"), field("AnonHugePages:"));
            ballast.write_each_page();
            assert!(there >= Some(BYTES >> 10), "{there:?} kB of {BYTES} bytes");
            assert_eq!(large, Some(0));
            assert!(ballast.note().contains("touched"));
        });
    }
}
