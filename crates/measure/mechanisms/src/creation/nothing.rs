//! The smallest executable, which only exits with 0: [`EmptyProgram`].
//!
//! Any real program would add its own startup time: a dynamic `true` spends most of it in the
//! dynamic linker. This ELF file has two headers and three instructions and is written into a
//! memfd, so that only the kernel's part is timed, a new address space with one mapped page.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use tontine_bench::error::{ErrorContext, MeasureError, Result};

/// `e_machine` and the instructions of `exit_group(0)`.
#[cfg(target_arch = "x86_64")]
const MACHINE: (u16, &[u8]) = (
    62,
    // xor edi, edi; mov eax, 231; syscall
    &[0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05],
);
#[cfg(target_arch = "aarch64")]
const MACHINE: (u16, &[u8]) = (
    183,
    // mov x0, #0; mov x8, #94; svc #0
    &[0x00, 0x00, 0x80, 0xd2, 0xc8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4],
);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: (u16, &[u8]) = (0, &[]);

/// Address of the file's mapping; a multiple of every page size.
const BASE: u64 = 0x40_0000;
const FILE_HEADER: u16 = 64;
const PROGRAM_HEADER: u16 = 56;
/// Offset of the instructions, in the file and from [`BASE`].
const CODE: u64 = FILE_HEADER as u64 + 2 * PROGRAM_HEADER as u64;
/// Largest page size of the supported processors.
const ALIGNMENT: u64 = 0x1_0000;

const LOAD: u32 = 1;
const STACK: u32 = 0x6474_e551;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;

#[derive(Debug)]
pub struct EmptyProgram {
    /// Kept open because the path leads through it.
    _file: OwnedFd,
    path: CString,
}

impl EmptyProgram {
    pub fn new() -> Result<Self> {
        if MACHINE.1.is_empty() {
            return Err(MeasureError::skip(
                "the executable that only exits is written for x86-64 and aarch64",
            ));
        }
        let name = c"tontine-nothing";
        // Kernels before 6.3 lack the flag, and make the memory executable without it.
        let file = match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
            made => made,
        }
        .setting_up("memfd_create of an executable")?;
        let image = image();
        let written = rustix::io::write(&file, &image).setting_up("write to a memfd")?;
        if written != image.len() {
            let length = image.len();
            return Err(MeasureError::fail(format!(
                "wrote {written} of {length} bytes to a memfd"
            )));
        }
        // The path contains this process's own number. Each child would have to resolve `self`, for
        // which the kernel would create a directory in `/proc`, a tenth of the measured time.
        let ours = std::fs::read_link("/proc/self").setting_up("reading the link /proc/self")?;
        let path = CString::new(format!("/proc/{}/fd/{}", ours.display(), file.as_raw_fd()))
            .map_err(|_| MeasureError::fail("expected a path without zero bytes"))?;
        Ok(Self { _file: file, path })
    }

    /// Returns a path to the file, valid in this process and in processes that inherit its
    /// descriptors.
    pub fn path(&self) -> &CString {
        &self.path
    }
}

/// Returns the file: the header, one loaded segment that covers the whole file, a non-executable
/// stack, and the code.
fn image() -> Vec<u8> {
    let (machine, code) = MACHINE;
    let length = CODE + code.len() as u64;
    let mut image = Vec::with_capacity(length as usize);
    // 64 bits, the processor's byte order (both are little-endian), version 1, System V.
    image.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |value: u16| value.to_le_bytes();
    let word = |value: u32| value.to_le_bytes();
    let long = |value: u64| value.to_le_bytes();
    image.extend(half(2)); // ET_EXEC
    image.extend(half(machine));
    image.extend(word(1));
    image.extend(long(BASE + CODE)); // e_entry
    image.extend(long(FILE_HEADER.into())); // e_phoff
    image.extend(long(0)); // e_shoff
    image.extend(word(0)); // e_flags
    for value in [FILE_HEADER, PROGRAM_HEADER, 2, 0, 0, 0] {
        image.extend(half(value));
    }
    for (kind, flags, at, bytes, alignment) in
        [(LOAD, READ | EXECUTE, BASE, length, ALIGNMENT), (STACK, READ | WRITE, 0, 0, 16)]
    {
        image.extend(word(kind));
        image.extend(word(flags));
        for value in [0, at, at, bytes, bytes, alignment] {
            image.extend(long(value));
        }
    }
    image.extend(code);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_program_runs_and_exits_with_zero() {
        let nothing = match EmptyProgram::new() {
            Err(MeasureError::Skipped(why)) => return eprintln!("skipped: {why}"),
            other => other.expect("an executable"),
        };
        let path = nothing.path().to_str().expect("ASCII");
        let output = std::process::Command::new(path).output().expect("it starts");
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn empty_program_is_as_long_as_documented() {
        assert_eq!(image().len(), 185);
    }
}
