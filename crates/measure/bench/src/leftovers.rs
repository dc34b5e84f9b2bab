//! The files of measured processes, each in a [`Folder`], and the removal of files that killed
//! processes left behind.
//!
//! Every name starts with `tontine-` or `tontine_`, a kind, and its [`maker`]: the number of a PID
//! namespace and a pid in it. [`sweep`] removes everything that belongs to an ended process of this
//! PID namespace. It leaves the files of other namespaces, which may share the directories, because
//! it cannot tell whether their processes have ended.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid, getppid, test_kill_process};

use crate::error::{ErrorContext, MeasureError, Result};

/// Directory of the names of POSIX shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// Prefix of iceoryx2's names in that directory; the maker follows.
pub const MEMORY: &str = "tontine_ice_";
/// Prefix of the names of Cloudtoid's semaphores in that directory; the name of the queue follows.
pub const SEMAPHORES: &str = "sem.ct3ip.";
/// Prefix of the names of directories; the kind and the maker follow.
const FOLDER: &str = "tontine-";
const KINDS: [&str; 7] = ["ice", "zmq", "builds", "sessions", "boost", "hosts", "cloudtoid"];
/// Suffix of the names of directories that are removed when the whole run ends.
const OF_A_RUN: &str = "-run";

/// A temporary directory. Dropping it in the process that created it removes the directory.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    maker: u32,
}

impl Folder {
    /// Creates a directory of this kind.
    pub fn new(kind: &str) -> Result<Self> {
        let maker = std::process::id();
        let made = tempfile::Builder::new()
            .prefix(&format!("{FOLDER}{kind}-{}-", self::maker()))
            .tempdir()
            .setting_up("mkdir of a temporary folder")?;
        Ok(Self { path: made.keep(), maker })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_ours(&self) -> bool {
        std::process::id() == self.maker
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Returns the directory of this kind that all invocations of a run share; its maker is the parent
/// of this process. [`forget_the_run`] or a sweep removes it.
pub fn folder_of_the_run(kind: &str) -> Result<PathBuf> {
    let starter = getppid().map_or(std::process::id(), |pid| pid.as_raw_nonzero().get() as u32);
    let path = run_folder(kind, starter);
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(&path).setting_up("stat of a temporary folder")?;
            let ours = found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
            if found.is_dir() && ours {
                Ok(path)
            } else {
                Err(MeasureError::skip(format!(
                    "{}: not a private directory of this user",
                    path.display()
                )))
            }
        }
        made => made.setting_up("mkdir of a temporary folder").map(|()| path),
    }
}

/// Removes the directories that the invocations of this process shared.
pub fn forget_the_run() {
    for kind in KINDS {
        let _ = fs::remove_dir_all(run_folder(kind, std::process::id()));
    }
}

fn run_folder(kind: &str, starter: u32) -> PathBuf {
    let maker = format!("{}p{starter}", namespace().unwrap_or(0));
    std::env::temp_dir().join(format!("{FOLDER}{kind}-{maker}{OF_A_RUN}"))
}

/// Returns the part of a name that identifies this process: PID namespace and pid. The number 0
/// represents a namespace that `/proc` does not report.
pub fn maker() -> String {
    format!("{}p{}", namespace().unwrap_or(0), std::process::id())
}

/// Returns the number of this process's PID namespace, from `/proc/self/ns/pid`:
/// `pid:[4026531836]`.
pub fn namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Removes everything that ended processes of this PID namespace left in the temporary directory
/// and in shared memory. Removes nothing if the namespace is unknown.
pub fn sweep() {
    let Some(namespace) = namespace() else {
        return;
    };
    for kind in KINDS {
        sweep_folder(&std::env::temp_dir(), &format!("{FOLDER}{kind}-{namespace}p"));
    }
    for start in [MEMORY, &format!("{SEMAPHORES}tontine_")] {
        sweep_folder(Path::new(SHARED_MEMORY), &format!("{start}{namespace}p"));
    }
}

fn sweep_folder(folder: &Path, start: &str) {
    for path in left_in(folder, start) {
        remove(&path);
    }
}

/// Returns the entries of `folder` whose names consist of `start` and the pid of an ended process.
pub fn left_in(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let has_ended = |name: &str| {
        let Some(rest) = name.strip_prefix(start) else {
            return false;
        };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let maker = rest[..digits].parse().ok().and_then(Pid::from_raw);
        maker.is_some_and(|pid| {
            test_kill_process(pid) == Err(rustix::io::Errno::SRCH) || is_zombie(pid)
        })
    };
    let left = entries.filter(|entry| entry.file_name().to_str().is_some_and(has_ended));
    left.map(|entry| entry.path()).collect()
}

fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Removes every entry of `folder` whose name starts with `start`.
pub fn remove_all(folder: &Path, start: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(start)) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::os::child::Child;
    use crate::peer::in_a_process_of_its_own;

    #[test]
    fn run_folder_is_shared_by_all_its_processes() {
        in_a_process_of_its_own(|| {
            let refused = || {
                let refuses = || folder_of_the_run("builds").is_err().into();
                let mut child = Child::fork(refuses).expect("fork");
                child.wait().expect("it ends").exit_status()
            };
            let shared = run_folder("builds", std::process::id());
            assert_eq!((refused(), shared.is_dir()), (Some(0), true));
            fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).expect("it is ours");
            assert_eq!(refused(), Some(1), "others may read it");
            forget_the_run();
            assert!(!shared.exists());
        });
    }

    #[test]
    fn sweep_keeps_files_of_live_and_foreign_processes() {
        let mut child = Child::fork(|| 0).expect("fork");
        let dead = child.pid();
        child.wait().expect("reaped");
        let folder = tempfile::tempdir().expect("a folder");
        let ours = maker();
        let ended = format!("1p{dead}");
        for name in ["left-1p", "left-2p", "left-"].map(|start| format!("{start}{dead}-x")) {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        fs::write(folder.path().join(format!("left-1p{}-x", std::process::id())), "")
            .expect("file");
        sweep_folder(folder.path(), "left-1p");
        let names = fs::read_dir(folder.path()).expect("a folder").flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.iter().all(|name| !name.to_string_lossy().contains(&ended)), "{names:?}");
        assert!(ours.ends_with(&format!("p{}", std::process::id())), "{ours}");
    }
}
