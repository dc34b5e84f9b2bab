//! Tests of real builds, at the lowest levels.

use std::path::Path;

use tontine_host::error::MeasureError;
use tontine_host::os::child::Child;
use tontine_host::peer::{in_a_process_of_its_own, set_temp_dir};

use super::*;

const AMPLE: Duration = Duration::from_secs(300);

/// Measures with temporary folders in `place`. Call it in a single-threaded process.
fn measured_in(place: &Path, builds: usize, patience: Duration) -> Result<Observed> {
    set_temp_dir(place);
    measure(builds, patience)
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

#[test]
#[ignore = "takes long: compiles programs"]
fn two_concurrent_builds_end_and_leave_no_files() {
    in_a_process_of_its_own(|| {
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        let observed = match measured_in(place.path(), 2, AMPLE) {
            Err(MeasureError::Skipped(why)) => {
                println!("skipped: {why}");
                return Ok(());
            }
            other => other.map_err(|trouble| trouble.to_string())?,
        };
        let build = &observed.series[0];
        let sane = build.samples.len() == 2 && build.samples.iter().all(|&took| took > 0.01);
        let noted = observed.notes[0].contains("lines of C");
        if sane && noted && entries(place.path()) == 0 {
            Ok(())
        } else {
            Err(format!("{observed:?}, {} left", entries(place.path())))
        }
    });
}

#[test]
fn build_beyond_its_timeout_fails_and_leaves_nothing() {
    in_a_process_of_its_own(|| {
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        let found = measured_in(place.path(), 1, Duration::ZERO);
        match (found, entries(place.path())) {
            (Err(MeasureError::Failed(why)), 0) if why.contains("within its time") => Ok(()),
            (Err(MeasureError::Skipped(why)), 0) => {
                println!("skipped: {why}");
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    });
}

/// Returns the processes whose working directory is in `folder`: `make` and all its descendants.
fn at_work_in(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    all.filter(|entry| {
        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
    })
    .map(|entry| entry.file_name().to_string_lossy().into_owned())
    .collect()
}

#[test]
fn killed_invocation_kills_its_builds() {
    in_a_process_of_its_own(|| {
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut invocation = Child::fork(|| match measured_in(place.path(), 2, AMPLE) {
            Err(MeasureError::Skipped(_)) => 77,
            _ => 0,
        })
        .map_err(|trouble| trouble.to_string())?;
        let until = Instant::now() + AMPLE;
        let stat = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let lives = |pid: &String| stat(pid).is_ok_and(|stat| !stat.contains(") Z "));
        let itself = invocation.pid().to_string();
        let mut pids = Vec::new();
        // Two `make` processes, each with a child.
        while pids.len() < 4 && lives(&itself) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            pids = at_work_in(place.path());
        }
        let status = invocation.kill().map_err(|trouble| trouble.to_string())?;
        if status.exit_status() == Some(77) {
            println!("skipped: no make or no compiler");
            return Ok(());
        }
        if pids.len() < 4 {
            return Err(format!("it was never seen at work: {pids:?}, {status:?}"));
        }
        while pids.iter().any(lives) || !at_work_in(place.path()).is_empty() {
            if Instant::now() > until {
                return Err(format!("some of {pids:?} still live"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The next clean-up removes the leftovers in the file system.
        let left = entries(place.path());
        set_temp_dir(place.path());
        tontine_host::leftovers::sweep();
        match (left, entries(place.path())) {
            (1, 0) => Ok(()),
            other => Err(format!("folders before and after the sweep: {other:?}")),
        }
    });
}

#[test]
fn builds_outside_1_to_8_fail() {
    let task = |builds: &str| InvocationTask {
        experiment: "builds".into(),
        variant: "linux".into(),
        params: Params::from([("builds".into(), builds.into())]),
        size: Size::Quick,
    };
    for builds in ["0", "9", "many"] {
        let found = Builds.run(&task(builds)).expect_err("no such level");
        assert!(found.why().contains(builds), "{found}");
    }
}
