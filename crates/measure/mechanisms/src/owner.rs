//! The owner of resources outside the file system: [`ProcessIdentity`], and a
//! [`mark`](ProcessIdentity::mark) in the file system while such resources may exist.
//!
//! An engine's containers outlive the process that created them. All containers of a run carry
//! their owner's name, and a file records that the owner has containers. An engine is contacted
//! only if such a file exists, so that other runs neither start an engine nor wait for one. The
//! owner is the process of the whole run, so that its invocations share expensive resources.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::{geteuid, getppid};
use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::leftovers::namespace;

/// Directory of the marks. It survives a reboot, as the resources do. If it cannot be used, the
/// marks are in the temporary directory.
const LASTING: &str = "/var/tmp";
/// Prefix of a mark's name, which the owner's name follows.
const MARK: &str = "tontine-docker-";

/// The identity of a process, distinct from that of any later process with the same pid: PID
/// namespace, pid, start time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    namespace: u64,
    pid: u32,
    started: u64,
}

impl ProcessIdentity {
    /// Returns the process of this run: the parent if it runs the same program, as an invocation's
    /// parent does, and otherwise this process.
    pub fn of_this_run() -> Result<Self> {
        let parent = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
        let pid = parent.filter(|&pid| runs_our_program(pid)).unwrap_or_else(std::process::id);
        Self::process(pid).setting_up("reading /proc")
    }

    fn process(pid: u32) -> io::Result<Self> {
        let unknown = || io::Error::from(io::ErrorKind::NotFound);
        let namespace = namespace().ok_or_else(unknown)?;
        let started = started(pid).ok_or_else(unknown)?;
        Ok(Self { namespace, pid, started })
    }

    /// Returns the name, which consists of digits and hyphens.
    pub fn name(&self) -> String {
        format!("{}-{}-{}", self.namespace, self.pid, self.started)
    }

    fn named(name: &str) -> Option<Self> {
        let mut numbers = name.split('-').map(|number| number.parse::<u64>().ok());
        let (namespace, pid, started) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let pid = u32::try_from(pid).ok()?;
        numbers.next().is_none().then_some(Self { namespace, pid, started })
    }

    pub fn is_this_process(&self) -> bool {
        self.pid == std::process::id() && Some(self.namespace) == namespace()
    }

    /// Returns `true` if the process has ended. Returns `false` for a process in another PID
    /// namespace, whose end cannot be detected.
    fn has_ended(&self) -> bool {
        Some(self.namespace) == namespace() && started(self.pid) != Some(self.started)
    }

    /// Creates the file that records that this owner may have resources in the engine named
    /// `engine`.
    pub fn mark(&self, engine: &str) -> Result<()> {
        let leave = |folder: &Path| {
            let mut options = fs::OpenOptions::new();
            let path = folder.join(format!("{MARK}{}", self.name()));
            match options.write(true).create_new(true).mode(0o600).open(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made.and_then(|mut file: File| file.write_all(engine.as_bytes())),
            }
        };
        leave(Path::new(LASTING))
            .or_else(|_| leave(&std::env::temp_dir()))
            .setting_up("creating a mark in /var/tmp")
    }
}

/// A mark whose owner has ended or is this process.
#[derive(Debug)]
pub struct StaleMark {
    path: PathBuf,
    pub owner: ProcessIdentity,
    pub engine: String,
}

impl StaleMark {
    /// Returns all stale marks that this user left.
    pub fn all() -> Vec<Self> {
        let folders = [PathBuf::from(LASTING), std::env::temp_dir()];
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        entries.flatten().filter_map(|entry| Self::read(&entry)).collect()
    }

    fn read(entry: &fs::DirEntry) -> Option<Self> {
        let name = entry.file_name();
        let owner = ProcessIdentity::named(name.to_str()?.strip_prefix(MARK)?)?;
        // Any user may write into these directories, but can only create files that it owns.
        let facts = entry.metadata().ok()?;
        let ours = facts.is_file() && facts.uid() == geteuid().as_raw();
        let over = owner.is_this_process() || owner.has_ended();
        let engine = (ours && over).then(|| fs::read_to_string(entry.path()).ok())??;
        Some(Self { path: entry.path(), owner, engine })
    }

    /// Removes the mark when no resource is left.
    pub fn forget(self) {
        let _ = fs::remove_file(self.path);
    }
}

fn runs_our_program(pid: u32) -> bool {
    let file = |path: &str| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let ours = file("/proc/self/exe");
    ours.is_some() && file(&format!("/proc/{pid}/exe")) == ours
}

/// Returns the start time of a process in ticks since boot, or `None` if the process has ended.
fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, a name in parentheses, may contain any character. The third field is the
    // state, the 22nd the start time.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::os::child::Child;

    #[test]
    fn owner_name_parses_back_and_others_are_rejected() {
        let ours = ProcessIdentity::process(std::process::id()).expect("/proc");
        assert_eq!(ProcessIdentity::named(&ours.name()), Some(ours.clone()));
        assert!(ours.is_this_process() && !ours.has_ended());
        for strange in ["", "1-2", "1-2-3-4", "1-x-3", "1-4294967296-3", "-1-2-3"] {
            assert_eq!(ProcessIdentity::named(strange), None, "{strange}");
        }
    }

    #[test]
    fn owner_has_ended_as_zombie_or_with_reused_pid() {
        let child = Child::fork(|| 0).expect("fork");
        let pid = child.pid().as_raw_nonzero().get().cast_unsigned();
        tontine_bench::os::child::ends_within(child.pid(), std::time::Duration::from_secs(60))
            .expect("it");
        let owner = ProcessIdentity { namespace: namespace().expect("/proc"), pid, started: 1 };
        assert!(owner.has_ended(), "a zombie");
        let ours = ProcessIdentity::process(std::process::id()).expect("/proc");
        assert!(ProcessIdentity { started: ours.started + 1, ..ours.clone() }.has_ended());
        let elsewhere = ProcessIdentity { namespace: 1, pid, started: 1 };
        assert!(!elsewhere.has_ended(), "unknown, so not ended");
    }
}
