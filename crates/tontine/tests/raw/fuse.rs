//! A FUSE file system that answers until a file is open, and does not answer afterwards: [`Mount`].
//!
//! Closing a descriptor of its file waits in the kernel until the server ends, even in a process
//! that is being killed.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(unreachable_pub, reason = "a module of each test")]
#![allow(unsafe_code, reason = "fork, mount, and a child's end")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const INIT: u32 = 26;

/// Bytes of a request's header.
const IN_HEADER: usize = 40;

/// Lifetime in seconds of the server, whether or not the process that started the server lives.
const LIFETIME_S: u32 = 600;

/// A forked process that serves the file system, in its own mount namespace. Dropping the value
/// kills the process, which ends every wait for an answer.
#[derive(Debug)]
pub struct Mount {
    server: i32,
    folder: PathBuf,
}

impl Mount {
    /// Mounts at `folder`.
    ///
    /// # Errors
    /// Returns an error if the machine has no FUSE, or if the user may not mount it.
    pub fn new(folder: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let (mut mounted, says) = std::io::pipe().map_err(|error| error.to_string())?;
        // SAFETY: the child only makes system calls, allocates, and ends through `_exit`.
        let server = unsafe { libc::fork() };
        if server == 0 {
            drop(mounted);
            // SAFETY: the calls only take numbers.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(LIFETIME_S);
            }
            serve(folder, says);
            // SAFETY: `_exit` only ends this process.
            unsafe { libc::_exit(0) }
        }
        drop(says);
        let mount = Self { server, folder: folder.to_path_buf() };
        match mounted.read(&mut [0]) {
            Ok(1) if server > 0 => Ok(mount),
            _ => Err("FUSE needs /dev/fuse, root and a mount namespace".into()),
        }
    }

    /// Opens the file that never answers. The caller must not close it before the server has ended.
    pub fn open(&self) -> std::io::Result<File> {
        let root = PathBuf::from(format!("/proc/{}/root", self.server));
        let folder = self.folder.strip_prefix("/").unwrap_or(&self.folder);
        File::open(root.join(folder).join("file"))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.server <= 0 {
            return;
        }
        // SAFETY: the process is a child that is not reaped yet.
        unsafe {
            libc::kill(self.server, libc::SIGKILL);
            libc::waitpid(self.server, std::ptr::null_mut(), 0);
        }
        // The kernel ends the connection shortly afterwards.
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serve(folder: &Path, mut says: std::io::PipeWriter) {
    match mount(folder) {
        Ok(device) => {
            let _ = says.write_all(&[1]);
            drop(says);
            answer(device);
        }
        Err(error) => eprintln!("mounting a FUSE file system: {error}"),
    }
}

/// Mounts the file system so that only this process sees it. Returns the kernel's end.
fn mount(folder: &Path) -> std::io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    mount_privately(c"fuse", folder, libc::MS_NODEV | libc::MS_NOSUID, &options)?;
    Ok(device)
}

/// Mounts a file system so that only this process sees it.
pub fn mount_privately(
    kind: &CStr,
    folder: &Path,
    flags: libc::c_ulong,
    options: &str,
) -> std::io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_encoded_bytes())?;
    let options = CString::new(options)?;
    let (kind, nothing, private) =
        (kind.as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: the strings are terminated or null, and the kernel keeps none of them; the namespace
    // is this process's own.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, private, nothing.cast()) == 0
            && libc::mount(kind, folder.as_ptr(), kind, flags, options.as_ptr().cast()) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Answers the requests needed to open a file, and ignores all others.
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

/// Returns the answer to INIT: version 7.31 without options.
fn init(minor: u32) -> Vec<u8> {
    let mut body = vec![0; 64];
    body[0..4].copy_from_slice(&7_u32.to_le_bytes());
    body[4..8].copy_from_slice(&minor.min(31).to_le_bytes());
    body[20..24].copy_from_slice(&4096_u32.to_le_bytes());
    body
}

/// Returns the entry of node 2, valid for an hour.
fn entry() -> Vec<u8> {
    let words = [2_u64, 0, 3600, 3600, 0];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Returns the attributes of a node: node 1 is the root folder, all others are regular files.
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == 1 { 0o40755_u32 } else { 0o100_644 };
    let mut body: Vec<u8> =
        [node, 4096, 8, 0, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    // Three nanosecond words, mode, links, uid, gid, device, block size, flags.
    let halves = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    body.extend(halves.into_iter().flat_map(u32::to_le_bytes));
    body
}
