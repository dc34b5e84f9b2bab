//! Programs that demonstrate processes and signals: `catch`, `family`, `orphan`, `ps`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tontine_unix::{Errno, SigAction, SigSet, SigmaskHow, Signal, Sys};

use super::super::say::say;
use super::time::rest;
use super::{ProgramFailure, finish};

/// Maximum number of processes that `family` creates.
const LARGEST_FAMILY: u32 = 10_000;

/// Returns the program `ps`, which writes the table that `processes` returns.
pub fn ps(
    processes: impl Fn() -> String + Send + Sync + 'static,
) -> impl Fn(&dyn Sys, &[String]) -> i32 + Send + Sync + 'static {
    move |sys, arguments| {
        let said = say(sys, processes());
        finish(sys, arguments, said.map(|()| 0).map_err(ProgramFailure::Call))
    }
}

/// Installs handlers and reports the signals that arrive, indefinitely or a given number of times.
pub(super) fn catch(sys: &dyn Sys, arguments: &[String]) -> i32 {
    const USAGE: ProgramFailure = ProgramFailure::Usage("catch [-n times] SIG…");
    let caught = || {
        let (mut left, names) = match &arguments[1..] {
            [flag, times, names @ ..] if flag == "-n" => (times.parse().map_err(|_| USAGE)?, names),
            names => (u64::MAX, names),
        };
        let signals: SigSet = names
            .iter()
            .map(|name| name.parse::<Signal>())
            .collect::<Result<_, _>>()
            .map_err(|_| USAGE)?;
        if signals.is_empty() {
            return Err(USAGE);
        }
        // The signals are blocked except in sigsuspend, so that no signal arrives between the check
        // and the sleep.
        let mask = sys.sigprocmask(Some((SigmaskHow::Block, signals)))?;
        let arrived = Arc::new(AtomicU64::new(0));
        for signal in signals.iter() {
            let note = Arc::clone(&arrived);
            let handler = SigAction::handler(move |_, info| {
                note.fetch_or(SigSet::of(&[info.signal]).bits(), Ordering::Relaxed);
            });
            sys.sigaction(signal, Some(handler.with_mask(signals)))?;
        }
        say(sys, format_args!("process {} catches {signals}\n", sys.getpid()))?;
        while left > 0 {
            sys.sigsuspend(mask.difference(signals));
            for signal in
                SigSet::from_bits(arrived.swap(0, Ordering::Relaxed)).iter().take(left as usize)
            {
                say(sys, format_args!("caught {signal}\n"))?;
                left -= 1;
            }
        }
        Ok(0)
    };
    finish(sys, arguments, caught())
}

/// Leaves an orphan behind. The orphan reports its parent before and after it is orphaned.
pub(super) fn orphan(sys: &dyn Sys, arguments: &[String]) -> i32 {
    const LOOK: Duration = Duration::from_millis(10);
    let left = || {
        let seconds = match &arguments[1..] {
            [] => 1,
            [seconds] => seconds.parse().map_err(|_| ProgramFailure::Usage("orphan [seconds]"))?,
            _ => return Err(ProgramFailure::Usage("orphan [seconds]")),
        };
        let parent = sys.getpid();
        sys.fork(move |sys| {
            let own = sys.getpid();
            while sys.getppid().number() == parent.number() {
                rest(sys, LOOK);
            }
            let now = sys.getppid();
            let said = say(sys, format_args!("process {own}: parent was {parent}, is {now}\n"));
            rest(sys, Duration::from_secs(seconds));
            i32::from(said.is_err())
        })?;
        Ok(0)
    };
    finish(sys, arguments, left())
}

/// Creates a tree of processes, each of which waits for its children.
pub(super) fn family(sys: &dyn Sys, arguments: &[String]) -> i32 {
    const USAGE: ProgramFailure = ProgramFailure::Usage("family members (1 to 10000)");
    let made = || {
        let members = match &arguments[1..] {
            [members] => members.parse().ok().filter(|n| (1..=LARGEST_FAMILY).contains(n)),
            _ => None,
        };
        let members = members.ok_or(USAGE)?;
        let status = grow(sys, members);
        let outcome = if status == 0 { "all have exited" } else { "some could not be created" };
        say(sys, format_args!("{members} processes: {outcome}\n"))?;
        Ok(status)
    };
    finish(sys, arguments, made())
}

/// Runs as the root of a tree of `members` processes. The subtrees of two children share the other
/// processes.
fn grow(sys: &dyn Sys, members: u32) -> i32 {
    let left = members - 1;
    let mut status = 0;
    for share in [left / 2, left - left / 2] {
        if share > 0 && sys.fork(move |sys| grow(sys, share)).is_err() {
            status = 1;
        }
    }
    loop {
        match sys.wait() {
            Ok(child) if child.status.exited() == Some(0) => {}
            Ok(_) => status = 1,
            Err(Errno::EINTR) => {}
            Err(_) => return status,
        }
    }
}
