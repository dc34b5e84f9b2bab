//! `sessions`: the duration of a user's commands while other users are at work: [`Sessions`].
//!
//! [`script`] is the work of a pseudo-user, [`terminal`] runs a session on a pseudo-terminal, and
//! [`login`] through a real remote login, in its own [`login_sandbox`].

mod login;
mod login_sandbox;
mod script;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use std::os::unix::fs::PermissionsExt;

use tontine_bench::os::program::{file_system, last_lines};
use tontine_unix_sim::LockingMode;

use super::levels::{crowd, level_of, levels};
use super::modes;
use super::trees::{self, TreeLoad};
use crate::prelude::*;
use script::{DONE, Script};

const MOST: usize = 8;
/// The parameter that names a simultaneous load, that of the paper's section 9.
const BESIDE: &str = "beside";
/// Number of processes per session: a shell, a pipeline, and the processes of a remote login around
/// them.
const PROCESSES: u64 = 10;
const MEMORY: u64 = 4 << 20;
/// Delay between the starts of two sessions. A session alone takes a few tenths of a second. The
/// delay is short compared with that, so that the first session is still at work when the last
/// begins.
const DELAY: Duration = Duration::from_millis(10);

pub(crate) struct Sessions;

impl Experiment for Sessions {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |count: usize| params([("sessions", &count.to_string())]);
        let Some(mode) = modes::mode(variant) else {
            return levels(size, processors, MOST).into_iter().map(cell).collect();
        };
        let cells = |builds: usize| {
            let mut params = cell(MOST);
            params.insert(BESIDE.to_owned(), format!("{builds} builds"));
            params
        };
        let both = modes::modelled_cells(Some(mode), size, |_| vec![MOST], cells);
        let alone = trees::cells(mode, size, MOST, cell);
        alone.into_iter().chain([trees::measured(cells(MOST), size)]).chain(both).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.iterations()
    }

    fn invocations(&self, variant: &str, size: Size) -> usize {
        match modes::mode(variant) {
            None => size.macro_invocations(),
            Some(_) => size.virtual_invocations(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let modelled = modes::modelled_with(&task.params)?.unwrap_or(0);
        let sessions = level_of(task, "sessions", MOST.max(modelled))?;
        if let Some(mode) = modes::mode(&task.variant) {
            return measure_virtually(mode, sessions, &task.params);
        }
        measure(&task.variant, sessions, task.size.iterations(), task.size.timeout())
    }
}

/// Times `sessions` sessions, each of which runs the script `iterations` times. Fails after
/// `timeout`.
fn measure(
    variant: &str,
    sessions: usize,
    iterations: usize,
    timeout: Duration,
) -> Result<Observed> {
    let until = Instant::now() + timeout;
    capacity::for_processes(PROCESSES * sessions as u64, MEMORY)?;
    let script = Script::new(iterations)?;
    let folder = Folder::new("sessions")?;
    let homes = homes(folder.path(), sessions, &script)?;
    let spans = match variant {
        "pty" => at_terminals(&homes, until)?,
        "login" => login::sessions(folder.path(), &homes, until)?,
        other => return Err(unknown("sessions", "variant", other)),
    };
    let kind = file_system(folder.path()).unwrap_or_else(|| "an unknown file system".into());
    let place = folder.path().parent().unwrap_or(folder.path()).display().to_string();
    let mut notes = vec![format!(
        "{iterations} iterations per session, each session started {} ms after the previous one, \
         on {kind} ({place})",
        DELAY.as_millis()
    )];
    if sessions > 1 {
        notes.push(format!(
            "all {sessions} were at work for {:.0} % of the time from the start of the first to \
             the end of the last",
            100.0 * share_of_all(&spans)
        ));
    }
    if !script.missing.is_empty() {
        notes.push(format!("steps omitted for lack of {}", script.missing.join(", ")));
    }
    notes.extend(crowd(sessions, pin::allowed()?.len()));
    let seconds = spans.iter().map(|span| span.seconds() / iterations as f64).collect();
    let iteration = Series::ns("iteration", seconds).in_unit("s").by_mean().batched(iterations);
    Ok(Observed::of([iteration], notes))
}

/// Times sessions in a virtual Unix of this mode. If builds also run, returns their times and the
/// lock statistics as well.
fn measure_virtually(mode: LockingMode, sessions: usize, params: &Params) -> Result<Observed> {
    let loaded = params.get(BESIDE).and_then(|words| words.split(' ').next()?.parse().ok());
    let load = TreeLoad { builds: loaded.unwrap_or(0), sessions };
    let done = load.of_a_cell(mode, params, loaded.is_some())?;
    let seconds = |metric: &str, samples| Series::ns(metric, samples).in_unit("s").by_mean();
    let mut series = vec![seconds("iteration", done.sessions)];
    series.extend(loaded.map(|_| seconds("build", done.builds)));
    series.extend(done.locks.iter().flat_map(trees::of_locks));
    Ok(Observed::of(series, done.notes))
}

#[derive(Debug, Clone, Copy)]
struct SessionSpan {
    began: Instant,
    ended: Instant,
}

impl SessionSpan {
    fn seconds(&self) -> f64 {
        (self.ended - self.began).as_secs_f64()
    }
}

/// Returns the time in which all sessions were at work, as a fraction of the time in which any
/// session was at work.
fn share_of_all(spans: &[SessionSpan]) -> f64 {
    let begins = || spans.iter().map(|span| span.began);
    let ends = || spans.iter().map(|span| span.ended);
    let bounds = (begins().min().zip(ends().max()), begins().max().zip(ends().min()));
    let (Some((first, last)), Some((from, to))) = bounds else { return 0.0 };
    to.saturating_duration_since(from).as_secs_f64() / (last - first).as_secs_f64()
}

fn script_in(folder: &Path) -> PathBuf {
    folder.join("script")
}

/// Writes the script into `folder` and creates a home for each session next to it.
fn homes(folder: &Path, sessions: usize, script: &Script) -> Result<Vec<PathBuf>> {
    let shell = script_in(folder);
    fs::write(&shell, &script.text).setting_up("writing the script")?;
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).setting_up("chmod")?;
    let home = |number: usize| {
        let home = folder.join(format!("home-{number}"));
        fs::create_dir(&home).setting_up("mkdir")?;
        fs::write(home.join("input"), script::input()).setting_up("writing the input")?;
        Ok(home)
    };
    (1..=sessions).map(home).collect()
}

/// Runs each session on its own pty. Returns the time in which each session was at work.
fn at_terminals(homes: &[PathBuf], until: Instant) -> Result<Vec<SessionSpan>> {
    each_after_the_other(homes, |home| {
        let mut command = Command::new("/bin/sh");
        command.arg("../script").current_dir(home).env("HOME", home).env("TERM", "dumb");
        let ended = terminal::run(command, until)?;
        // The last line decides, because the status alone could come from a shell that was cut
        // short.
        let printed = last_lines(&ended.printed);
        if ended.status.success() && printed.ends_with(DONE) {
            Ok(ended.span)
        } else {
            let status = ended.status;
            Err(MeasureError::fail(format!("a session ended with {status}, after {printed}")))
        }
    })
}

fn each_after_the_other(
    homes: &[PathBuf],
    session: impl Fn(&PathBuf) -> Result<SessionSpan> + Sync,
) -> Result<Vec<SessionSpan>> {
    let began = Instant::now();
    threads::all(homes.len(), |order| {
        let begins = began + DELAY * u32::try_from(order).unwrap_or(u32::MAX);
        thread::sleep(begins.saturating_duration_since(Instant::now()));
        session(&homes[order])
    })
}

#[cfg(test)]
mod tests;
