//! A FUSE file system that answers until a file is open, and nothing after that: [`Mount`].
//!
//! Closing a file of it waits in the kernel until its [server](Mount::end) ends, whether the
//! process that closes is killed or not.

#![allow(unsafe_code, reason = "namespaces and mounts")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::worker::{self, Shared, Worker};

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const INIT: u32 = 26;

/// Bytes of a request's header.
const IN_HEADER: usize = 40;

/// States of the server.
const MOUNTED: u64 = 1;
const FAILED: u64 = 2;

/// A process that serves the file system, in a mount namespace of its own.
#[derive(Debug)]
pub(super) struct Mount {
    server: Worker,
    folder: PathBuf,
}

impl Mount {
    /// Mounts at `folder`. Returns an error where the machine or the user cannot.
    pub(super) fn new(folder: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let state = worker::shared(1);
        let server = Worker::start("fuse server", || serve(folder, state));
        for _ in 0..2_000 {
            match worker::get(&state[0]) {
                0 => std::thread::sleep(Duration::from_millis(1)),
                MOUNTED => return Ok(Self { server, folder: folder.to_path_buf() }),
                _ => break,
            }
        }
        Err("FUSE needs /dev/fuse, root and a mount namespace".into())
    }

    /// Opens the file that never answers, from outside the server's namespace.
    pub(super) fn open(&self) -> Option<File> {
        let folder = self.folder.strip_prefix("/").ok()?;
        File::open(format!("/proc/{}/root", self.server.pid)).ok()?;
        let path = Path::new("/proc").join(self.server.pid.to_string()).join("root").join(folder);
        File::open(path.join("file")).ok()
    }

    /// Ends the server, and with it every wait for an answer.
    pub(super) fn end(mut self) {
        self.server.kill();
    }
}

fn serve(folder: &Path, state: Shared) {
    match mount(folder) {
        Ok(device) => {
            worker::set(&state[0], MOUNTED);
            answer(device);
        }
        Err(error) => {
            eprintln!("{error}");
            worker::set(&state[0], FAILED);
        }
    }
}

/// Mounts the file system where this process alone sees it. Returns the kernel's end.
fn mount(folder: &Path) -> std::io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let target = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes())?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let options = std::ffi::CString::new(options)?;
    let (root, kind) = (c"/", c"fuse");
    // SAFETY: terminated strings; the namespace is this process's own.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                std::ptr::null(),
                root.as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                kind.as_ptr(),
                target.as_ptr(),
                kind.as_ptr(),
                libc::MS_NODEV | libc::MS_NOSUID,
                options.as_ptr().cast(),
            ) == 0
    };
    if done { Ok(device) } else { Err(std::io::Error::last_os_error()) }
}

/// Answers what opening a file needs, and leaves everything else without an answer.
fn answer(mut device: File) {
    let mut request = vec![0; 1 << 17];
    while let Ok(length) = device.read(&mut request) {
        if length < IN_HEADER {
            continue;
        }
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("4 bytes"));
        let node = u64::from(word(16));
        let body = match word(4) {
            INIT => init(word(IN_HEADER + 4)),
            LOOKUP => [entry(), attributes(2)].concat(),
            GETATTR => [vec![0; 16], attributes(node)].concat(),
            OPEN => vec![0; 16],
            _ => continue,
        };
        let mut reply = (16 + body.len() as u32).to_le_bytes().to_vec();
        reply.extend_from_slice(&[0; 4]);
        reply.extend_from_slice(&request[8..16]);
        reply.extend_from_slice(&body);
        if device.write_all(&reply).is_err() {
            return;
        }
    }
}

/// Version 7.31 without options.
fn init(minor: u32) -> Vec<u8> {
    let mut body = vec![0; 64];
    body[0..4].copy_from_slice(&7_u32.to_le_bytes());
    body[4..8].copy_from_slice(&minor.min(31).to_le_bytes());
    body[20..24].copy_from_slice(&4096_u32.to_le_bytes());
    body
}

/// Node 2, for an hour.
fn entry() -> Vec<u8> {
    let words = [2_u64, 0, 3600, 3600, 0];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The root folder is node 1; everything else is a regular file.
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == 1 { 0o40755_u32 } else { 0o100_644 };
    let mut body: Vec<u8> =
        [node, 4096, 8, 0, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    // Three nanosecond words, mode, links, uid, gid, device, block size, flags.
    let halves = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    body.extend(halves.into_iter().flat_map(u32::to_le_bytes));
    body
}
