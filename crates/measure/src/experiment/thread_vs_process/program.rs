//! The smallest program there is: [`Program`], an ELF header and an exit.
//!
//! `posix_spawn` cannot but run a program. A usual one spends most of its time in its loader; this
//! one has none, so that what is timed is the creation, the `exec` and the end.

use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use crate::trouble::{During, Result, Trouble};

/// Exit with status 0: `xor edi, edi; mov eax, 60; syscall`.
#[cfg(target_arch = "x86_64")]
const EXIT: &[u8] = &[0x31, 0xff, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05];
/// Exit with status 0: `mov x0, #0; mov x8, #93; svc #0`.
#[cfg(target_arch = "aarch64")]
const EXIT: &[u8] = &[0, 0, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 1, 0, 0, 0xd4];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const EXIT: &[u8] = &[];

const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
/// Where it is mapped; any free page will do.
const BASE: u64 = 0x40_0000;
const HEADER: u64 = 64;
const SEGMENT: u64 = 56;

/// The program, in memory, and its path.
#[derive(Debug)]
pub(super) struct Program {
    _file: OwnedFd,
    path: CString,
}

impl Program {
    /// Writes it.
    ///
    /// # Errors
    /// Skipped, where the system gives no memory that can be executed.
    pub(super) fn new() -> Result<Self> {
        if EXIT.is_empty() {
            return Err(Trouble::skip("no machine code for this processor"));
        }
        let name = "tontine-exit";
        let file = match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::EXEC) {
            // Kernels before 6.3 do not know the word, and let everything be executed.
            Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
            made => made,
        }
        .setting_up("memfd_create")?;
        let image = image();
        let written = rustix::io::write(&file, &image).during("write")?;
        if written != image.len() {
            return Err(Trouble::fail(format!("wrote {written} of {} bytes", image.len())));
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = CString::new(path).map_err(io::Error::from).during("path")?;
        Ok(Self { _file: file, path })
    }

    /// Its path, good in children until they execute something.
    pub(super) fn path(&self) -> *const c_char {
        self.path.as_ptr()
    }
}

/// An ELF header, one program header, the code.
fn image() -> Vec<u8> {
    let length = HEADER + SEGMENT + EXIT.len() as u64;
    let mut image = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |image: &mut Vec<u8>, value: u16| image.extend(value.to_le_bytes());
    let word = |image: &mut Vec<u8>, value: u32| image.extend(value.to_le_bytes());
    let long = |image: &mut Vec<u8>, value: u64| image.extend(value.to_le_bytes());
    half(&mut image, 2); // an executable
    half(&mut image, MACHINE);
    word(&mut image, 1);
    long(&mut image, BASE + HEADER + SEGMENT); // where it begins
    long(&mut image, HEADER); // where the program headers are
    long(&mut image, 0); // no sections
    word(&mut image, 0);
    for value in [HEADER as u16, SEGMENT as u16, 1, 0, 0, 0] {
        half(&mut image, value);
    }
    word(&mut image, 1); // to be loaded
    word(&mut image, 5); // readable and executable
    for value in [0, BASE, BASE, length, length, 0x1000] {
        long(&mut image, value);
    }
    image.extend(EXIT);
    image
}
