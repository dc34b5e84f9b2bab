//! Writes a run into a folder: [`check_folder`] before measuring, [`write_all`] after.
//!
//! Every file is first written to a temporary file in the same folder and synced; the files are
//! renamed into place only when all are complete. After a full disk, a file size limit or a crash
//! the previous report is therefore unchanged, and no reader sees half a file. The other modules of
//! this crate decide what a file contains.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tontine_bench::schema::Results;

use super::{core_pairs, csv, html, markdown};

/// Prefix of temporary files.
const PREFIX: &str = ".tontine-";

/// Creates `dir` if it is missing and proves that files can be written there.
///
/// Call it before a run that takes minutes, so that the run does not end without a place for its
/// report. No file is left behind.
pub fn check_folder(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).map_err(|error| named(dir, "cannot create the directory", &error))?;
    staged(dir, b"tontine")
        .map(drop)
        .map_err(|error| named(dir, "cannot write into the directory", &error))
}

/// Writes `results.json`, `results.csv`, `results.md`, tables of pairs of processors, the pages of
/// the report and, last, `report.html` into `dir`, and returns their paths. Removes the tables and
/// pages of an earlier run that this run does not have.
pub fn write_all(results: &Results, dir: &Path) -> io::Result<Vec<PathBuf>> {
    let json =
        results.to_json().map_err(|error| named(dir, "cannot encode results.json", &error))?;
    let mut files = vec![
        ("results.json".to_owned(), json),
        ("results.csv".to_owned(), csv::csv(results)?),
        ("results.md".to_owned(), markdown::markdown(results).into_bytes()),
    ];
    files.extend(core_pairs::files(results));
    // The overview is the last page, so that it never links to a page that is missing.
    files.extend(html::pages(results).into_iter().map(|page| (page.name, page.html.into_bytes())));
    let paths = write_files(dir, &files)?;
    let stale = |name: &String| !files.iter().any(|(written, _)| written == name);
    for name in html::possible_files().chain(core_pairs::possible_files()).filter(stale) {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(named(&path, "cannot remove the file of an earlier run", &error));
            }
            _ => {}
        }
    }
    Ok(paths)
}

pub fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    write_files(dir, &[(name.to_owned(), bytes.to_vec())]).map(|mut paths| paths.swap_remove(0))
}

fn write_files(dir: &Path, files: &[(String, Vec<u8>)]) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir).map_err(|error| named(dir, "cannot create the directory", &error))?;
    let mut ready = Vec::new();
    for (name, bytes) in files {
        let path = dir.join(name);
        let file = staged(dir, bytes).map_err(|error| named(&path, "cannot write", &error))?;
        ready.push((path, file));
    }
    let mut paths = Vec::new();
    for (path, file) in ready {
        file.persist(&path)
            .map_err(|failed| named(&path, "cannot rename into place", &failed.error))?;
        paths.push(path);
    }
    // The file names become durable only when the folder is synced.
    fs::File::open(dir)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| named(dir, "cannot sync the directory", &error))?;
    Ok(paths)
}

/// Creates a synced temporary file in `dir`, which is deleted on drop unless it was persisted.
fn staged(dir: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(PREFIX)
        // The umask determines which users may read a report, as for any other file.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn named(path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use rustix::process::{Resource, Rlimit, setrlimit};

    use super::*;
    use crate::fixture;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn write_all_creates_data_and_pages() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new").join("folder");
        check_folder(&dir).unwrap();
        assert!(names(&dir).is_empty());
        let results = fixture::run();
        let paths = write_all(&results, &dir).unwrap();
        let pages = ["death", "machine", "memory", "messages", "processes", "signals"];
        let mut expected: Vec<String> =
            pages.map(|page| format!("report-{page}.html")).into_iter().collect();
        expected
            .extend(["report.html", "results.csv", "results.json", "results.md"].map(Into::into));
        assert_eq!(names(&dir), expected);
        assert_eq!(paths.len(), expected.len());
        assert!(paths.last().unwrap().ends_with("report.html"), "{paths:?}");
        let read: Results =
            serde_json::from_slice(&fs::read(dir.join("results.json")).unwrap()).unwrap();
        assert_eq!((read.ratios.len(), &read.tried), (results.ratios.len(), &results.tried));
        assert_eq!(read.cells.len(), results.cells.len());
        for (read, written) in read.cells.iter().zip(&results.cells) {
            assert_eq!(read.variant, written.variant);
            // The decoder may be inexact in the last bit.
            let near = |a: f64, b: f64| (a - b).abs() <= b.abs() * 1e-12;
            assert_eq!(read.estimate.is_some(), written.estimate.is_some());
            assert!(read.estimate.zip(written.estimate).is_none_or(|(a, b)| near(a, b)));
            assert_eq!(read.invocations.len(), written.invocations.len());
        }
        assert!(fs::read_to_string(dir.join("report.html")).unwrap().ends_with("</html>"));
    }

    #[test]
    fn page_of_earlier_run_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        write_all(&fixture::run(), dir.path()).unwrap();
        fs::write(dir.path().join("report-mine.html"), "kept").unwrap();
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == "round-trip");
        results.tried.clear();
        write_all(&results, dir.path()).unwrap();
        let pages: Vec<String> =
            names(dir.path()).into_iter().filter(|name| name.starts_with("report")).collect();
        let expected =
            ["report-machine.html", "report-messages.html", "report-mine.html", "report.html"];
        assert_eq!(pages, expected);
    }

    /// Documentation and code must agree: the example must parse, and must name each field that is
    /// written.
    #[test]
    fn documented_json_example_round_trips() {
        let document = include_str!("../../../../docs/reference/results.md");
        let example = document.split("```json").nth(1).unwrap().split("```").next().unwrap();
        let results: Results = serde_json::from_str(example).unwrap();
        assert_eq!(results.schema, tontine_bench::schema::SCHEMA);
        let documented: serde_json::Value = serde_json::from_str(example).unwrap();
        assert_eq!(serde_json::to_value(&results).unwrap(), documented);
    }

    #[test]
    fn file_instead_of_folder_is_named_in_error() {
        let file = NamedTempFile::new().unwrap();
        let error = check_folder(file.path()).unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }

    /// Writes once, calls `fill` to use up the space, and checks that a second write changes
    /// nothing.
    fn keeps_the_old_report(dir: &Path, fill: impl FnOnce()) {
        let old = fixture::small();
        let paths = write_all(&old, dir).unwrap();
        let before: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        let listed = names(dir);
        fill();
        let full = names(dir);
        let mut new = fixture::small();
        new.cells.truncate(1);
        let error = write_all(&new, dir).unwrap_err().to_string();
        assert!(error.contains("results.") || error.contains("report"), "{error}");
        let after: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(before == after, "an old file changed");
        assert_eq!(names(dir), full, "a temporary file was left");
        assert!(listed.iter().all(|name| full.contains(name)));
    }

    /// The limit on file sizes is per process, so the test runs itself again in a child under that
    /// limit.
    #[test]
    fn file_size_limit_leaves_old_report_intact() {
        const CHILD: &str = "TONTINE_TEST_FSIZE";
        if let Ok(dir) = env::var(CHILD) {
            // Catch SIGXFSZ, so that the write fails instead of ending the process.
            signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false))).unwrap();
            keeps_the_old_report(Path::new(&dir), || {
                let limit = Rlimit { current: Some(1_000), maximum: Some(1_000) };
                setrlimit(Resource::Fsize, limit).unwrap();
            });
            // Proves to the parent that this branch ran: the limit allows a file this small.
            fs::write(Path::new(&dir).join("proof"), "kept").unwrap();
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--test-threads=1"])
            .arg("write::tests::file_size_limit_leaves_old_report_intact")
            .env(CHILD, dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(dir.path().join("proof").exists(), "the child did not run its part");
    }

    /// Requires permission to mount. Without it, the test above covers the same path by another
    /// limit.
    #[test]
    fn full_file_system_leaves_old_report_intact() {
        struct Mounted<'a>(&'a Path);
        impl Drop for Mounted<'_> {
            fn drop(&mut self) {
                // If this fails too, no further cleanup is possible.
                let _ = unmount(self.0, UnmountFlags::DETACH);
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let options = Some(c"size=4m");
        if let Err(refused) = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options) {
            assert!(
                matches!(refused, rustix::io::Errno::PERM | rustix::io::Errno::ACCESS),
                "{refused}"
            );
            eprintln!("skipped: mount of a tmpfs: {refused}");
            return;
        }
        let _mounted = Mounted(dir.path());
        keeps_the_old_report(dir.path(), || {
            let mut filler = fs::File::create(dir.path().join("filler")).unwrap();
            let chunk = [0u8; 4_096];
            let full = (0..4_096).find_map(|_| filler.write_all(&chunk).err());
            assert_eq!(full.unwrap().kind(), io::ErrorKind::StorageFull);
        });
    }
}
