//! Tests of real sessions on pseudo-terminals and, if the machine has an sshd, through a remote
//! login.

use tontine_host::os::child::Child;
use tontine_host::peer::{in_a_process_of_its_own, set_temp_dir};

use super::*;

const AMPLE: Duration = Duration::from_secs(300);

/// Measures with temporary folders in `place`. Call it in a single-threaded process.
fn measured_in(place: &Path, variant: &str, sessions: usize) -> Result<Observed> {
    set_temp_dir(place);
    measure(variant, sessions, 1, AMPLE)
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

/// Creates a folder open to other users, like the system's temporary folder.
fn place() -> std::result::Result<tempfile::TempDir, String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))
        .map_err(|error| error.to_string())?;
    Ok(place)
}

fn ends_and_leaves_nothing(variant: &str) {
    in_a_process_of_its_own(|| {
        let place = place()?;
        let observed = match measured_in(place.path(), variant, 2) {
            Err(MeasureError::Skipped(why)) => {
                println!("skipped: {why}");
                return if entries(place.path()) == 0 { Ok(()) } else { Err("left".into()) };
            }
            other => other.map_err(|trouble| trouble.to_string())?,
        };
        let iteration = &observed.series[0];
        let sane = iteration.samples.len() == 2
            && iteration.samples.iter().all(|&s| s > 0.01)
            && observed.notes.iter().any(|note| note.starts_with("all 2 were at work for "));
        if sane && entries(place.path()) == 0 {
            Ok(())
        } else {
            Err(format!("{observed:?}, {} left", entries(place.path())))
        }
    });
}

#[test]
fn two_sessions_at_terminals_end_and_leave_nothing() {
    ends_and_leaves_nothing("pty");
}

#[test]
fn two_remote_logins_end_and_leave_nothing() {
    let real = || fs::read("/etc/passwd").ok();
    let before = real();
    ends_and_leaves_nothing("login");
    assert_eq!(real(), before, "the real /etc/passwd was written");
}

/// Returns the number of processes of our temporary users.
fn of_our_users() -> usize {
    let all = fs::read_dir("/proc").expect("proc").flatten();
    all.filter(|entry| {
        use std::os::unix::fs::MetadataExt;
        entry.metadata().is_ok_and(|found| (58_100..58_200).contains(&found.uid()))
    })
    .count()
}

#[test]
fn killed_invocation_kills_its_users_processes() {
    in_a_process_of_its_own(|| {
        let place = place()?;
        let mut invocation = Child::fork(|| {
            set_temp_dir(place.path());
            match measure("login", 2, 1_000, AMPLE) {
                Err(MeasureError::Skipped(_)) => 77,
                _ => 0,
            }
        })
        .map_err(|trouble| trouble.to_string())?;
        let until = Instant::now() + AMPLE;
        let stat = format!("/proc/{}/stat", invocation.pid());
        let lives = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        // A command of a session may end at any time, so the number is taken once.
        let mut at_work = of_our_users();
        while at_work < 4 && lives() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
            at_work = of_our_users();
        }
        let status = invocation.kill().map_err(|trouble| trouble.to_string())?;
        if status.exit_status() == Some(77) {
            println!("skipped: no root or no OpenSSH");
            return Ok(());
        }
        if at_work < 4 {
            return Err(format!(
                "expected at least four processes of users, found {at_work}: {status:?}"
            ));
        }
        while of_our_users() > 0 {
            if Instant::now() > until {
                return Err(format!("{} processes of users still live", of_our_users()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    });
}

#[test]
fn failed_session_reports_its_last_output() {
    in_a_process_of_its_own(|| {
        let place = place()?;
        let script = Script { text: "echo so far; exit 4\n".into(), missing: Vec::new() };
        let homes = homes(place.path(), 1, &script).map_err(|trouble| trouble.to_string())?;
        match at_terminals(&homes, Instant::now() + AMPLE) {
            Err(MeasureError::Failed(why)) if why.contains("so far") && why.contains('4') => {}
            Err(MeasureError::Skipped(why)) => println!("skipped: {why}"),
            other => return Err(format!("{other:?}")),
        }
        // The script exits with 0, but before its end.
        fs::write(script_in(place.path()), "exit 0\n").map_err(|error| error.to_string())?;
        match at_terminals(&homes, Instant::now() + AMPLE) {
            Err(MeasureError::Failed(_) | MeasureError::Skipped(_)) => Ok(()),
            Ok(seconds) => Err(format!("{seconds:?}")),
        }
    });
}

#[test]
fn share_of_all_is_the_overlap_of_all_spans() {
    let zero = Instant::now();
    let at = |ms: u64| zero + Duration::from_millis(ms);
    let span = |from, to| SessionSpan { began: at(from), ended: at(to) };
    assert_eq!(share_of_all(&[span(0, 80)]), 1.0);
    assert_eq!(share_of_all(&[span(0, 80), span(20, 100)]), 0.6);
    assert_eq!(share_of_all(&[span(0, 40), span(50, 100), span(20, 60)]), 0.0);
    assert_eq!(share_of_all(&[]), 0.0);
}

#[test]
fn unknown_variant_or_parameter_fails() {
    let task = |variant: &str, sessions: &str| InvocationTask {
        experiment: "sessions".into(),
        variant: variant.into(),
        params: Params::from([("sessions".into(), sessions.into())]),
        size: Size::Quick,
    };
    for (variant, sessions, named) in [("pty", "0", "0"), ("pty", "9", "9"), ("tea", "1", "tea")] {
        let found = Sessions.run(&task(variant, sessions)).expect_err("no such cell");
        assert!(found.why().contains(named), "{found}");
    }
}
