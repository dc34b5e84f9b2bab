//! A process whose forks cost as little as a small process's: [`ForkTrim`].
//!
//! The cost of a fork grows with the number of mappings and with the number of pages that the
//! parent has written. This executable is large and loads libraries (above all libzmq's C++
//! library) that no child uses in a measurement of forks. Users compare the result with a small
//! program. Therefore children are forked without the libraries. The pages of the executable that
//! the dynamic linker has written and then made read-only become a shared mapping of the same
//! bytes, which a fork does not copy.
//!
//! Each step is best effort: if the system refuses a change, that part of the process stays
//! unchanged. The C library, the dynamic linker, stacks and the heap are not touched.

#![allow(unsafe_code, reason = "advises on mappings and replaces some by equal ones")]

use std::ffi::c_void;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

/// A guard during whose lifetime children are forked without the libraries that they do not need.
/// Children must not unwind, because the unwinder is one of these libraries.
#[derive(Debug)]
pub struct ForkTrim {
    kept_out: Vec<Range>,
}

/// A range of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    from: usize,
    to: usize,
}

/// A private mapping of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    range: Range,
    /// `r--`, `r-x`, `rw-`.
    may: String,
    path: String,
    /// `true` if some of its pages are private copies.
    written: bool,
}

impl ForkTrim {
    /// Trims this process.
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let own = std::env::current_exe().unwrap_or_default();
        let mut kept_out = Vec::new();
        for mapping in mappings(&text) {
            let range = mapping.range;
            if Path::new(&mapping.path) == own {
                if mapping.written && mapping.may == "r--" {
                    share(range);
                }
            } else if is_unneeded_library(&mapping.path) && advise(range, Advice::LinuxDontFork) {
                kept_out.push(range);
            }
        }
        Self { kept_out }
    }
}

impl Drop for ForkTrim {
    fn drop(&mut self) {
        for &range in &self.kept_out {
            advise(range, Advice::LinuxDoFork);
        }
    }
}

/// Returns the private mappings of files in `/proc/self/smaps`.
fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    // Fields belong to the preceding mapping; those of other mappings are skipped.
    let mut current = None;
    for line in smaps.lines() {
        if let Some((range, may, path)) = head(line) {
            current = (may.ends_with('p') && path.starts_with('/')).then_some(found.len());
            if current.is_some() {
                let may = may.chars().take(3).collect();
                found.push(Mapping { range, may, path: path.to_owned(), written: false });
            }
        } else if let (Some(at), Some(size)) = (current, line.strip_prefix("Anonymous:")) {
            found[at].written = size.trim() != "0 kB";
        }
    }
    found
}

/// Parses a line such as `7f00-7f10 r-xp 00001000 08:01 42 /usr/lib/libc.so.6`.
fn head(line: &str) -> Option<(Range, &str, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    let range = Range { from: address(from)?, to: address(to)? };
    let may = words.next()?;
    let path = line.find('/').map_or("", |at| &line[at..]);
    Some((range, may, path))
}

/// Returns `true` for a shared library that is neither the C library nor the dynamic linker.
fn is_unneeded_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let needed = ["libc.", "libc-", "libpthread", "ld-", "ld.", "ld64"];
    name.contains(".so") && !needed.iter().any(|start| name.starts_with(start))
}

fn advise(range: Range, advice: Advice) -> bool {
    // SAFETY: the advice only selects the memory that a fork copies; nothing changes for this
    // process.
    unsafe { madvise(range.from as *mut c_void, range.to - range.from, advice) }.is_ok()
}

/// Replaces pages that are never written again with a shared mapping of the same bytes.
fn share(range: Range) {
    let length = range.to - range.from;
    // SAFETY: the mapping is readable and permanent: it belongs to the executable, which is never
    // unmapped.
    let bytes = unsafe { std::slice::from_raw_parts(range.from as *const u8, length) };
    let Ok(file) = memfd_create(c"tontine-relocated", MemfdFlags::CLOEXEC) else { return };
    if rustix::io::write(&file, bytes) != Ok(length) {
        return;
    }
    // SAFETY: the range is a whole mapping that is never written again (the dynamic linker has made
    // it read-only). One step replaces it by a mapping with the same bytes and the same access.
    let _ = unsafe {
        mmap(
            range.from as *mut c_void,
            length,
            ProtFlags::READ,
            MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE,
            &file,
            0,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::child::Child;
    use crate::peer::in_a_process_of_its_own;

    const SMAPS: &str = "\
55d0-55e0 r--p 0000f000 08:01 1                    /opt/a program
Rss:                 4 kB
Anonymous:          64 kB
7f00-7f10 r-xp 00001000 08:01 42                   /usr/lib/libm.so.6
Anonymous:           0 kB
7f20-7f30 rw-s 00000000 00:01 7                    /dev/zero (deleted)
Anonymous:           4 kB
7f40-7f50 rw-p 00000000 00:00 0                    [heap]
Anonymous:           8 kB
";

    #[test]
    fn private_file_mappings_report_if_written() {
        let found = mappings(SMAPS);
        let shown: Vec<(&str, &str, bool)> =
            found.iter().map(|one| (one.path.as_str(), one.may.as_str(), one.written)).collect();
        assert_eq!(shown, [("/opt/a program", "r--", true), ("/usr/lib/libm.so.6", "r-x", false)]);
        assert_eq!(found[0].range, Range { from: 0x55d0, to: 0x55e0 });
    }

    #[test]
    fn c_library_and_linker_are_not_excluded() {
        for path in ["/lib/libc.so.6", "/lib/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"] {
            assert!(!is_unneeded_library(path), "{path}");
        }
        assert!(is_unneeded_library("/usr/lib/libstdc++.so.6.0.33"));
        assert!(!is_unneeded_library("/usr/bin/tontine"));
    }

    /// Returns the line of the mapping with exactly this range.
    fn line_of(range: Range) -> Option<String> {
        let text = std::fs::read_to_string("/proc/self/maps").ok()?;
        let found = text.lines().find(|line| head(line).is_some_and(|(there, ..)| there == range));
        found.map(str::to_owned)
    }

    #[test]
    fn relocated_pages_become_shared_with_equal_bytes() {
        in_a_process_of_its_own(|| {
            let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
            let own = std::env::current_exe().expect("a program");
            let relocated: Vec<Mapping> = mappings(&smaps)
                .into_iter()
                .filter(|one| Path::new(&one.path) == own && one.written && one.may == "r--")
                .collect();
            assert!(!relocated.is_empty(), "no relocated part of {}: {smaps}", own.display());
            // SAFETY: both mappings are readable and permanent.
            let bytes = |range: Range| unsafe {
                std::slice::from_raw_parts(range.from as *const u8, range.to - range.from)
            };
            let before: Vec<Vec<u8>> =
                relocated.iter().map(|one| bytes(one.range).to_vec()).collect();
            let _trimmed = ForkTrim::now();
            for (one, before) in relocated.iter().zip(before) {
                let line = line_of(one.range).expect("the range is a mapping of its own");
                assert!(line.contains(" r--s ") && line.contains("tontine-relocated"), "{line}");
                assert!(before.iter().any(|&byte| byte != 0) && bytes(one.range) == before);
            }
        });
    }

    #[test]
    fn trimmed_process_forks_children_without_libraries() {
        in_a_process_of_its_own(|| {
            let libraries = || -> i32 {
                let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
                i32::from(
                    text.lines().any(|line| line.ends_with(".so.1") && line.contains("gcc_s")),
                )
            };
            if libraries() == 0 {
                return;
            }
            let child_has = || {
                let mut child = Child::fork(libraries).expect("fork");
                child.wait().expect("it ends").exit_status()
            };
            let trimmed = ForkTrim::now();
            assert_eq!(child_has(), Some(0));
            drop(trimmed);
            assert_eq!(child_has(), Some(1));
        });
    }
}
