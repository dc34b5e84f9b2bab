//! Programs installed on the machine: [`find`], and the last lines that a failed program printed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Directories of server programs, which an ordinary user's `PATH` omits.
const SERVERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the program with this name, from `PATH` or from the directories of server programs.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    // A relative directory on PATH would resolve differently for each command.
    let found = || fs::metadata(file).ok().filter(|_| file.is_absolute());
    found().is_some_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the last lines that a program printed, joined into one line.
pub fn last_lines(printed: &[u8]) -> String {
    const LINES: usize = 3;
    let text = String::from_utf8_lossy(printed);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.len().checked_sub(LINES) {
        Some(rest) => lines[rest..].join(" | "),
        None if lines.is_empty() => "it printed nothing".into(),
        None => lines.join(" | "),
    }
}

/// Returns the type of the file system that contains `path`, by the kernel's name for it.
pub fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // The path belongs to its longest mount point; if several file systems are mounted there, the
    // last one listed is on top.
    let holds = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?.replace("\\040", " ");
        path.starts_with(&point).then(|| (point.len(), source.split(' ').next()))
    });
    holds.max_by_key(|(length, _)| *length)?.1.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_returns_only_existing_programs() {
        assert!(find("sh").is_some_and(|file| file.ends_with("sh")));
        assert_eq!(find("no-such-program-anywhere"), None);
    }

    #[test]
    fn last_lines_joins_the_last_output_lines() {
        assert_eq!(last_lines(b"a\nb\n\nc \nd\n"), "b | c | d");
        assert_eq!(last_lines(b"a\n"), "a");
        assert_eq!(last_lines(b"\n"), "it printed nothing");
    }

    #[test]
    fn file_system_of_proc_is_proc() {
        assert_eq!(file_system(Path::new("/proc/self")).as_deref(), Some("proc"));
    }
}
