//! Helpers of several tests: [`unless_skipped`], [`metrics`], and the checks of invocations that
//! start other programs, [`leaves_nothing`] and [`is_killed_with_its_processes`].

use std::path::Path;
use std::time::{Duration, Instant};

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use tontine_bench::peer::set_temp_dir;

use crate::prelude::*;

pub(crate) const AMPLE: Duration = Duration::from_secs(300);

/// Returns a result, or `None` if the machine lacks a requirement. Panics on a failure.
#[track_caller]
pub(crate) fn unless_skipped<T>(found: Result<T>, what: impl std::fmt::Debug) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(MeasureError::Skipped(why)) => {
            eprintln!("{what:?}: skipped: {why}");
            None
        }
        Err(MeasureError::Failed(why)) => panic!("{what:?}: {why}"),
    }
}

/// Returns the names of the metrics, each of which must have samples, all of them possible.
#[track_caller]
pub(crate) fn metrics(observed: &Observed) -> Vec<&str> {
    for series in &observed.series {
        let all = &series.samples;
        assert!(!all.is_empty() && series.possible().count() == all.len(), "{series:?}");
    }
    observed.series.iter().map(|series| series.metric.as_str()).collect()
}

/// Returns the series of a metric.
#[track_caller]
pub(crate) fn series<'o>(observed: &'o Observed, metric: &str) -> &'o Series {
    let found = observed.series.iter().find(|series| series.metric == metric);
    found.unwrap_or_else(|| panic!("no {metric}: {observed:?}"))
}

/// Returns the first placement of this machine, which a run uses.
pub(crate) fn usual() -> Placement {
    Topology::of_this_machine().placements()[0]
}

pub(crate) fn no_child_is_left() {
    let found = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
    assert_eq!(found.err(), Some(rustix::io::Errno::CHILD), "a child is left");
}

/// Creates a folder open to other users, like the system's temporary folder.
pub(crate) fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a folder");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("chmod");
    place
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

/// Checks that an invocation succeeds with observations that are `sane`, or is skipped, and leaves
/// no temporary file.
pub(crate) fn leaves_nothing(
    invocation: impl FnOnce() -> Result<Observed>,
    sane: impl FnOnce(&Result<Observed>) -> bool,
) {
    in_a_process_of_its_own(|| {
        let place = place();
        set_temp_dir(place.path());
        let observed = invocation();
        let skipped = matches!(observed, Err(MeasureError::Skipped(_)));
        assert!(skipped || sane(&observed), "{observed:?}");
        assert_eq!(entries(place.path()), 0, "files are left");
    });
}

/// Returns the processes whose working directory is in `folder`.
fn at_work_in(folder: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("proc").flatten();
    let inside =
        |cwd: std::io::Result<std::path::PathBuf>| cwd.is_ok_and(|at| at.starts_with(folder));
    all.filter(|entry| inside(fs::read_link(entry.path().join("cwd"))))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Kills an invocation once `enough` processes are at work in its temporary folder, and checks that
/// they end, and that the next clean-up removes what is left in the file system.
pub(crate) fn is_killed_with_its_processes<T>(
    enough: usize,
    invocation: impl FnOnce(&Path) -> Result<T>,
) {
    in_a_process_of_its_own(|| {
        let place = place();
        let mut running = Child::fork(|| {
            set_temp_dir(place.path());
            let skipped = matches!(invocation(place.path()), Err(MeasureError::Skipped(_)));
            if skipped { 77 } else { 0 }
        })
        .expect("fork");
        let until = Instant::now() + AMPLE;
        let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat"));
        let lives = |pid: &String| stat(pid).is_ok_and(|stat| !stat.contains(") Z "));
        let own = running.pid().to_string();
        let mut pids = Vec::new();
        while pids.len() < enough && lives(&own) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            pids = at_work_in(place.path());
        }
        let status = running.kill().expect("kill");
        if status.exit_status() == Some(77) {
            return println!("skipped: the machine lacks a requirement");
        }
        assert!(pids.len() >= enough, "expected {enough} processes, found {pids:?}: {status:?}");
        while pids.iter().any(lives) || !at_work_in(place.path()).is_empty() {
            assert!(Instant::now() < until, "some of {pids:?} still live");
            std::thread::sleep(Duration::from_millis(5));
        }
        set_temp_dir(place.path());
        tontine_bench::leftovers::sweep();
        assert_eq!(entries(place.path()), 0, "folders are left after the sweep");
    });
}
