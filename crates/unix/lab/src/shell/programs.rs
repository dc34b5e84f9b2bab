//! Programs for pipelines: [`call`], [`program_names`].
//!
//! A program is a function that takes [`Sys`] and its arguments, and returns the exit status. On a
//! system without files, the programs are registered under their names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tontine_unix::{Errno, Fd, SigAction, SigSet, SigmaskHow, Signal, Sys};

use super::launch::refuse;
use super::say::{complain, say, write_all};

/// A program: its name, its arguments and its effect as `help` shows them, and its function.
struct BuiltinProgram(&'static str, &'static str, &'static str, ProgramBody);

type ProgramBody = fn(&dyn Sys, &[&str]) -> Done;
type Done = Result<i32, ProgramFailure>;

/// The error that ends a program early.
enum ProgramFailure {
    /// The arguments are wrong.
    Usage,
    Call(Errno),
}
use ProgramFailure::Usage;

impl From<Errno> for ProgramFailure {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

static PROGRAMS: [BuiltinProgram; 9] = [
    BuiltinProgram("cat", "", "copies its input", cat),
    BuiltinProgram("catch", "SIG…", "catches signals and reports them", catch),
    BuiltinProgram("echo", "word…", "writes words", echo),
    BuiltinProgram("false", "", "fails", |_, _| Ok(1)),
    BuiltinProgram("head", "lines", "copies the first lines of its input", head),
    BuiltinProgram("seq", "last", "writes numbers", seq),
    BuiltinProgram("sleep", "seconds", "sleeps", sleep),
    BuiltinProgram("true", "", "does nothing", |_, _| Ok(0)),
    BuiltinProgram("yes", "", "writes lines until killed", yes),
];

/// Returns the names of the programs that [`call`] runs. [`ps`] is not included, because it needs
/// an argument.
pub fn program_names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|program| program.0)
}

/// Runs the program that the first argument names.
pub fn call(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let name = &arguments[0][..];
    let Some(BuiltinProgram(_, usage, _, body)) = PROGRAMS.iter().find(|known| known.0 == name)
    else {
        return refuse(sys, name);
    };
    let arguments: Vec<&str> = arguments[1..].iter().map(String::as_str).collect();
    match body(sys, &arguments) {
        Ok(status) => status,
        Err(Usage) => {
            complain(sys, name, format!("usage: {name} {usage}").trim_end());
            2
        }
        Err(ProgramFailure::Call(errno)) => {
            complain(sys, name, errno);
            1
        }
    }
}

/// Returns the program `ps`, which writes the table that `processes` returns.
pub fn ps(
    processes: impl Fn() -> String + Send + Sync + 'static,
) -> impl Fn(&dyn Sys, &[String]) -> i32 + Send + Sync + 'static {
    move |sys, _| i32::from(say(sys, processes()).is_err())
}

/// Returns the lines of `help` about the programs.
pub(super) fn help() -> String {
    let line = |BuiltinProgram(name, arguments, effect, _): &BuiltinProgram| {
        format!("  {:<22} {effect}\n", format!("{name} {arguments}"))
    };
    PROGRAMS.iter().map(line).collect()
}

/// Parses the only argument.
fn only<T: std::str::FromStr>(arguments: &[&str]) -> Result<T, ProgramFailure> {
    let [argument] = arguments else { return Err(Usage) };
    argument.parse().map_err(|_| Usage)
}

fn cat(sys: &dyn Sys, arguments: &[&str]) -> Done {
    if !arguments.is_empty() {
        return Err(Usage);
    }
    each_part(sys, |part| write_all(sys, Fd::STDOUT, part).map(|()| true))
}

/// Installs handlers, and reports the signals that arrive.
fn catch(sys: &dyn Sys, arguments: &[&str]) -> Done {
    let signals = arguments.iter().map(|name| name.parse::<Signal>());
    let signals: SigSet = signals.collect::<Result<_, _>>().map_err(|_| Usage)?;
    if signals.is_empty() {
        return Err(Usage);
    }
    // The signals are blocked except in sigsuspend, so that no signal arrives between the check and
    // the sleep.
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
    loop {
        sys.sigsuspend(mask.difference(signals));
        for signal in SigSet::from_bits(arrived.swap(0, Ordering::Relaxed)).iter() {
            say(sys, format_args!("caught {signal}\n"))?;
        }
    }
}

fn echo(sys: &dyn Sys, arguments: &[&str]) -> Done {
    say(sys, arguments.join(" ") + "\n")?;
    Ok(0)
}

fn head(sys: &dyn Sys, arguments: &[&str]) -> Done {
    let mut left: usize = only(arguments)?;
    if left == 0 {
        return Ok(0);
    }
    each_part(sys, |part| {
        let lines = part.split_inclusive(|byte| *byte == b'\n');
        let copied: Vec<u8> = lines.take(left).flatten().copied().collect();
        left -= copied.iter().filter(|byte| **byte == b'\n').count();
        write_all(sys, Fd::STDOUT, &copied)?;
        Ok(left > 0)
    })
}

fn seq(sys: &dyn Sys, arguments: &[&str]) -> Done {
    for n in 1..=only::<u64>(arguments)? {
        say(sys, format_args!("{n}\n"))?;
    }
    Ok(0)
}

fn sleep(sys: &dyn Sys, arguments: &[&str]) -> Done {
    let mut duration = Duration::try_from_secs_f64(only(arguments)?).map_err(|_| Usage)?;
    // A handler may interrupt the sleep.
    while let Err((_, left)) = sys.nanosleep(duration) {
        duration = left;
    }
    Ok(0)
}

fn yes(sys: &dyn Sys, _: &[&str]) -> Done {
    loop {
        say(sys, "y\n")?;
    }
}

/// Reads to end-of-file, or until `see` returns `false` for a part.
fn each_part(sys: &dyn Sys, mut see: impl FnMut(&[u8]) -> tontine_unix::Result<bool>) -> Done {
    let mut buffer = [0; 4096];
    loop {
        match sys.read(Fd::STDIN, &mut buffer) {
            Ok(0) => return Ok(0),
            Ok(n) if !see(&buffer[..n])? => return Ok(0),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
