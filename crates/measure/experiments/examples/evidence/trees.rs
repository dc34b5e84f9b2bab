//! Records the calls of `builds` and `sessions`, which the virtual Unix repeats: [`run`].
//!
//! One real build and one real session run under `strace`, which records the calls that the virtual
//! Unix has, with their times. Everything between two of these calls, including file calls, counts
//! as computing. Tracing lengthens the computing several times, so all computing is scaled down by
//! one factor to the time of the untraced original on one processor. Each line of the result is a
//! process; `crates/measure/experiments/src/trees/tree.rs` documents the words of a line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tontine_bench::engine::invoked::{self, InvocationRequest, InvocationResult};
use tontine_bench::engine::launch::{LaunchResult, Launcher};
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::os::pin;
use tontine_bench::size::Size;
use tontine_bench::task::{InvocationTask, Params};
use tontine_experiments::SUITE;

/// Command by which this program starts itself again for each invocation.
pub(crate) const INVOCATION: &str = "__invocation";

/// Timeout of an invocation.
const DEADLINE: Duration = Duration::from_secs(20);

/// Traced system calls, which concern processes, signals and pipes.
const CALLS: &str = "fork,vfork,clone,clone3,execve,wait4,waitid,exit_group,rt_sigaction,\
     rt_sigprocmask,kill,tgkill,pipe,pipe2,read,write,setpgid,setsid";

/// Number of untraced runs of each original.
const UNTRACED: usize = 5;

/// An original to trace: its cell, and the text that identifies its first program.
struct Real {
    file: &'static str,
    experiment: &'static str,
    variant: &'static str,
    root: &'static str,
}

const REAL: [Real; 2] = [
    Real { file: "builds.txt", experiment: "builds", variant: "linux", root: "/make\", [" },
    Real { file: "sessions.txt", experiment: "sessions", variant: "pty", root: "../script\"" },
];

/// Traces both originals and writes the results into the repository at `root`.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    for Real { file, experiment, variant, root: begins } in REAL {
        let params = Params::from([(experiment.to_owned(), "1".to_owned())]);
        let task = InvocationTask::new(experiment, variant, params, Size::Quick);
        let seconds = untraced(&task)?;
        let folder = tempfile::tempdir()?;
        let trace = folder.path().join("trace");
        fs::write(folder.path().join("order"), serde_json::to_string(&request(&task))?)?;
        let status = Command::new("strace")
            .args(["-f", "-y", "-ttt", "-T", "-qq", "-s", "64", "--seccomp-bpf"])
            .args(["-e", &format!("trace={CALLS}"), "-e", "signal=none", "-o"])
            .arg(&trace)
            .arg(std::env::current_exe()?)
            .arg(INVOCATION)
            .stdin(fs::File::open(folder.path().join("order"))?)
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("strace of {experiment}: {status}")));
        }
        let trace = fs::read_to_string(&trace)?;
        let tree = tree(&trace, begins, Some(seconds * 1e6)).map_err(io::Error::other)?;
        let text = format!(
            "# One process of `{experiment}` per line, traced by `cargo xtask trees`; untraced it \
             took {seconds:.3} s on one processor.\n{tree}"
        );
        fs::write(root.join("crates/measure/experiments/src/trees").join(file), text)?;
    }
    Ok(true)
}

/// Returns the duration in seconds of a task on one processor, which is then never idle: the
/// minimum of a few runs.
fn untraced(task: &InvocationTask) -> io::Result<f64> {
    let wrong = |trouble: tontine_bench::error::MeasureError| io::Error::other(trouble.to_string());
    let there = pin::allowed().map_err(wrong)?;
    pin::pin_to(there[0]).map_err(wrong)?;
    let took = (0..UNTRACED).map(|_| mean(task)).collect();
    pin::pin_to_all(&there).map_err(wrong)?;
    let took: io::Result<Vec<f64>> = took;
    Ok(took?.into_iter().fold(f64::INFINITY, f64::min))
}

/// Serves one invocation, of which standard input contains the request.
pub(crate) fn serve() -> io::Result<bool> {
    invoked::serve(|task| SUITE.run(task)).map(|()| true)
}

fn request(task: &InvocationTask) -> InvocationRequest {
    InvocationRequest { task: task.clone(), block: 0, samples: None }
}

/// Runs `task` in a fresh process and returns the mean of its first metric, in seconds.
fn mean(task: &InvocationTask) -> io::Result<f64> {
    let launcher = Launcher {
        program: std::env::current_exe()?,
        arguments: vec![OsString::from(INVOCATION)],
        deadline: DEADLINE,
    };
    let why = match launcher.launch(&request(task), &StopRequest::never()?) {
        LaunchResult::Replied(reply) => match reply.outcome {
            InvocationResult::Measured(measured) => return Ok(measured.figures[0].summary.mean),
            InvocationResult::Skipped(why) | InvocationResult::Failed(why) => why,
        },
        LaunchResult::Broken(why) => why,
        LaunchResult::Stopped => "stopped".to_owned(),
    };
    Err(io::Error::other(format!("{}/{}: {why}", task.experiment, task.variant)))
}

/// A step of a process.
#[derive(Debug, Clone, PartialEq)]
enum NextAction {
    /// Computing, for this many microseconds.
    Compute(f64),
    /// A call.
    Call(String),
}

/// A traced process.
#[derive(Debug, Default)]
struct TracedProcess {
    name: String,
    words: Vec<NextAction>,
    /// Time at which the last call ended, in microseconds.
    since: f64,
    /// A call that has begun and has not ended, with its start.
    unfinished: Option<(String, f64)>,
}

impl TracedProcess {
    /// Adds computing until `at`; the next call ends at `end`.
    fn computed(&mut self, at: f64, end: f64) {
        self.words.push(NextAction::Compute(at - self.since));
        self.since = end;
    }

    /// Returns the words, with a count for repeated words. `computed` converts the microseconds of
    /// each stretch of computing; stretches below one microsecond are omitted.
    fn line(&self, computed: impl Fn(f64) -> f64) -> String {
        let mut line = format!("{}:", self.name);
        let words = self.words.iter().filter_map(|word| match word {
            NextAction::Compute(us) if computed(*us) < 1.0 => None,
            NextAction::Compute(us) => Some(format!("c{:.0}", computed(*us))),
            NextAction::Call(name) => Some(name.clone()),
        });
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let mut times = 1;
            while words.next_if_eq(&word).is_some() {
                times += 1;
            }
            line += &if times > 1 { format!(" {times}*{word}") } else { format!(" {word}") };
        }
        line
    }
}

/// Returns the processes of a trace, starting at the process whose execve contains `begins`.
/// Together they compute for `whole` microseconds, or for the traced time if `whole` is `None`.
fn tree(trace: &str, begins: &str, whole: Option<f64>) -> Result<String, String> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut processes: Vec<TracedProcess> = Vec::new();
    // Lines of children that appear before their parent's fork has returned.
    let mut early: BTreeMap<&str, Vec<(f64, String, f64)>> = BTreeMap::new();
    for line in trace.lines() {
        // A short number is followed by more than one space.
        let fields = line.split_once(' ');
        let fields = fields.and_then(|(pid, rest)| Some((pid, rest.trim_start().split_once(' ')?)));
        let Some((pid, (at, rest))) = fields else { continue };
        let rest = rest.trim_start();
        let at: f64 =
            at.trim().parse::<f64>().map_err(|_| format!("expected a time, found: {line}"))? * 1e6;
        if processes.is_empty() && rest.starts_with("execve(") && rest.contains(begins) {
            numbers.insert(pid, 0);
            processes.push(TracedProcess {
                name: name(rest),
                since: at,
                ..TracedProcess::default()
            });
            continue;
        }
        let Some(&number) = numbers.get(pid) else {
            if !processes.is_empty() {
                early.entry(pid).or_default().push((at, rest.to_owned(), at));
            }
            continue;
        };
        take(number, at, rest, &mut processes, &mut numbers, trace, &mut early)?;
    }
    if processes.is_empty() {
        return Err(format!("expected an execve of `{begins}` in the trace, found none"));
    }
    let overhead = overhead(&processes);
    let less = |us: f64| (us - overhead).max(0.0);
    let seen: f64 = stretches(&processes).map(less).sum();
    let share = whole.map_or(1.0, |whole| whole / seen);
    Ok(processes.iter().map(|process| process.line(|us| less(us) * share) + "\n").collect())
}

/// Returns every stretch of computing, in microseconds.
fn stretches(processes: &[TracedProcess]) -> impl Iterator<Item = f64> {
    let words = processes.iter().flat_map(|process| &process.words);
    words.filter_map(|word| match word {
        NextAction::Compute(us) => Some(*us),
        NextAction::Call(_) => None,
    })
}

/// Returns the cost of tracing between two calls, in microseconds: the lowest tenth of the
/// stretches.
fn overhead(processes: &[TracedProcess]) -> f64 {
    let mut between: Vec<f64> = stretches(processes).collect();
    between.sort_by(f64::total_cmp);
    between.get(between.len() / 10).copied().unwrap_or_default().max(0.0)
}

/// Adds one line of a trace to its process.
fn take<'t>(
    number: usize,
    at: f64,
    rest: &str,
    processes: &mut Vec<TracedProcess>,
    numbers: &mut BTreeMap<&'t str, usize>,
    trace: &'t str,
    early: &mut BTreeMap<&'t str, Vec<(f64, String, f64)>>,
) -> Result<(), String> {
    let process = &mut processes[number];
    if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
        process.unfinished = Some((begun.to_owned(), at));
        return Ok(());
    }
    let (call, begun) = match (rest.strip_prefix("<... "), process.unfinished.take()) {
        (Some(resumed), Some((head, begun))) => {
            let tail = resumed.split_once("resumed>").map_or("", |(_, tail)| tail);
            (head + tail, begun)
        }
        _ => (rest.to_owned(), at),
    };
    let end = call.rsplit_once('<').and_then(|(_, took)| took.trim_end_matches('>').parse().ok());
    let end = begun + end.map_or(0.0, |seconds: f64| seconds * 1e6);
    let title = call.split('(').next().unwrap_or_default();
    let returned = call.rsplit_once(" = ").map_or("", |(_, value)| value);
    let returned: i64 = returned.split(' ').next().unwrap_or_default().parse().unwrap_or(-1);
    let to_a_pipe = call.contains("<pipe:") || call.contains("<socket:") || call.contains("/pts/");
    let word = match title {
        "exit_group" => None,
        _ if returned < 0 => return Ok(()),
        "fork" | "vfork" | "clone" | "clone3" if !call.contains("CLONE_THREAD") => {
            let child = processes.len();
            let pid = returned.to_string();
            let pid = trace.match_indices(&pid).next().map(|(at, _)| &trace[at..at + pid.len()]);
            let pid = pid.ok_or("a fork without a child")?;
            numbers.insert(pid, child);
            let name = processes[number].name.clone();
            let lines = early.remove(pid).unwrap_or_default();
            let since = lines.first().map_or(end, |(at, ..)| *at);
            processes.push(TracedProcess { name, since, ..TracedProcess::default() });
            processes[number].computed(begun, end);
            processes[number].words.push(NextAction::Call(format!("f{child}")));
            for (at, rest, _) in lines {
                take(child, at, &rest, processes, numbers, trace, early)?;
            }
            return Ok(());
        }
        "execve" => {
            process.name = name(&call);
            Some("x")
        }
        "wait4" | "waitid" => Some("w"),
        "rt_sigaction" => Some("a"),
        "rt_sigprocmask" => Some("m"),
        "kill" | "tgkill" => Some("k"),
        "pipe" | "pipe2" => Some("p"),
        "setpgid" => Some("g"),
        "setsid" => Some("s"),
        // Reads and writes of files count as computing.
        "read" | "write" if to_a_pipe => Some("b"),
        _ => return Ok(()),
    };
    process.computed(begun, end);
    process.words.extend(word.map(|name| NextAction::Call(name.to_owned())));
    Ok(())
}

/// Returns the file name of the program that an execve starts.
fn name(call: &str) -> String {
    let path = call.split('"').nth(1).unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: processes with short numbers, which more than one space follows, were skipped.
    #[test]
    fn trace_yields_one_line_per_process() {
        let trace = "\
7     1.000000 execve(\"/usr/bin/env\", [\"env\"]) = 0 <0.000100>
9     2.000000 execve(\"/usr/bin/make\", [\"make\"]) = 0 <0.000100>
9 2.000150 rt_sigaction(SIGINT, NULL, NULL, 8) = 0 <0.000010>
9 2.000170 rt_sigaction(SIGINT, NULL, NULL, 8) = 0 <0.000010>
9 2.000210 vfork( <unfinished ...>
11 2.000300 execve(\"/bin/no\", [\"no\"]) = -1 ENOENT (No such file or directory) <0.000010>
11 2.000400 execve(\"/bin/cc\", [\"cc\"]) = 0 <0.000050>
9 2.000460 <... vfork resumed>) = 11 <0.000250>
9 2.000470 wait4(-1,  <unfinished ...>
11 2.001450 exit_group(0) = ?
9 2.001500 <... wait4 resumed>[], 0, NULL) = 11 <0.001030>
";
        // The tracer's cost is ten microseconds, the shortest stretch between two calls in this
        // trace.
        let expected = "make: c140 2*a c20 f1 w\ncc: c90 x c990\n";
        assert_eq!(tree(trace, "/make\", [", None), Ok(expected.to_owned()));
        let half = "make: c70 2*a c10 f1 w\ncc: c45 x c495\n";
        assert_eq!(tree(trace, "/make\", [", Some(620.0)), Ok(half.to_owned()));
        assert!(tree(trace, "gcc", None).is_err());
    }
}
