//! `cargo xtask trees`: what `builds` and `sessions` do, as the virtual Unix is to do it again.
//!
//! One real build and one real session run under `strace`, which writes down the calls that the
//! virtual Unix has and when they were made. What lies between two of them, file calls too, counts
//! as computing. Being traced makes that several times as long, so it is shortened, everywhere by
//! the same factor, to what the real thing takes untraced on one processor. A line of the result is
//! a process; `crates/experiments/src/trees/tree.rs` says what its words mean.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use tontine_bench::size::Size;
use tontine_bench::task::{Params, Task};
use tontine_host::os::pin;

use crate::invocation;

/// What is traced: processes, signals, pipes.
const CALLS: &str = "fork,vfork,clone,clone3,execve,wait4,waitid,exit_group,rt_sigaction,\
     rt_sigprocmask,kill,tgkill,pipe,pipe2,read,write,setpgid,setsid";

/// How often each real thing runs untraced.
const UNTRACED: usize = 5;

/// One real thing that is traced: its cell, and how its first program is known.
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

/// Traces both and writes them anew into the repository at `root`.
///
/// # Errors
/// There is no strace, or what it wrote cannot be understood.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    for Real { file, experiment, variant, root: begins } in REAL {
        let task = Task {
            experiment: experiment.to_owned(),
            variant: variant.to_owned(),
            params: Params::from([(experiment.to_owned(), "1".to_owned())]),
            size: Size::Quick,
        };
        let seconds = untraced(&task)?;
        let folder = tempfile::tempdir()?;
        let trace = folder.path().join("trace");
        let order = serde_json::json!({
            "task": task, "block": 0, "samples": null, "plant": null,
        });
        fs::write(folder.path().join("order"), order.to_string())?;
        let status = Command::new("strace")
            .args(["-f", "-y", "-ttt", "-T", "-qq", "-s", "64", "--seccomp-bpf"])
            .args(["-e", &format!("trace={CALLS}"), "-e", "signal=none", "-o"])
            .arg(&trace)
            .arg(std::env::current_exe()?)
            .arg(invocation::NAME)
            .stdin(fs::File::open(folder.path().join("order"))?)
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("strace of {experiment}: {status}")));
        }
        let trace = fs::read_to_string(&trace)?;
        let tree = tree(&trace, begins, Some(seconds * 1e6)).map_err(io::Error::other)?;
        let text = format!(
            "# One process of `{experiment}` a line, as `cargo xtask trees` traced it; untraced it \
             took {seconds:.3} s on one processor.\n{tree}"
        );
        fs::write(root.join("crates/experiments/src/trees").join(file), text)?;
    }
    Ok(true)
}

/// Seconds that it takes on one processor, which is then all that it computes: the least of a few.
fn untraced(task: &Task) -> io::Result<f64> {
    let wrong = |trouble: tontine_host::trouble::Trouble| io::Error::other(trouble.to_string());
    let there = pin::allowed().map_err(wrong)?;
    pin::pin_to(there[0]).map_err(wrong)?;
    let took = (0..UNTRACED).map(|_| Ok(invocation::figure(task)?.mean)).collect();
    pin::pin_to_all(&there).map_err(wrong)?;
    let took: io::Result<Vec<f64>> = took;
    Ok(took?.into_iter().fold(f64::INFINITY, f64::min))
}

/// What a process does next.
#[derive(Debug, Clone, PartialEq)]
enum Word {
    /// It computes, for so many microseconds.
    Compute(f64),
    /// A call.
    Call(String),
}

/// What is known of a traced process.
#[derive(Debug, Default)]
struct Process {
    name: String,
    words: Vec<Word>,
    /// When its last call ended, in microseconds.
    since: f64,
    /// A call that it has begun, and when.
    unfinished: Option<(String, f64)>,
}

impl Process {
    /// It computed until `at`; its next call ends at `end`.
    fn computed(&mut self, at: f64, end: f64) {
        self.words.push(Word::Compute(at - self.since));
        self.since = end;
    }

    /// Its words, with repeated ones counted; of each stretch of computing what `computed` makes of
    /// its microseconds, but none shorter than one.
    fn line(&self, computed: impl Fn(f64) -> f64) -> String {
        let mut line = format!("{}:", self.name);
        let words = self.words.iter().filter_map(|word| match word {
            Word::Compute(us) if computed(*us) < 1.0 => None,
            Word::Compute(us) => Some(format!("c{:.0}", computed(*us))),
            Word::Call(name) => Some(name.clone()),
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

/// The processes of a trace, from the one whose execve has `begins` in it on; together they compute
/// for `whole` microseconds, or as long as was seen.
fn tree(trace: &str, begins: &str, whole: Option<f64>) -> Result<String, String> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut processes: Vec<Process> = Vec::new();
    // A child may be seen before its parent's fork returns: when it began.
    let mut early: BTreeMap<&str, Vec<(f64, String, f64)>> = BTreeMap::new();
    for line in trace.lines() {
        // A short number is followed by more than one space.
        let fields = line.split_once(' ');
        let fields = fields.and_then(|(pid, rest)| Some((pid, rest.trim_start().split_once(' ')?)));
        let Some((pid, (at, rest))) = fields else { continue };
        let rest = rest.trim_start();
        let at: f64 = at.trim().parse::<f64>().map_err(|_| format!("no time: {line}"))? * 1e6;
        if processes.is_empty() && rest.starts_with("execve(") && rest.contains(begins) {
            numbers.insert(pid, 0);
            processes.push(Process { name: name(rest), since: at, ..Process::default() });
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
        return Err(format!("nobody executed `{begins}`"));
    }
    let overhead = overhead(&processes);
    let less = |us: f64| (us - overhead).max(0.0);
    let seen: f64 = stretches(&processes).map(less).sum();
    let share = whole.map_or(1.0, |whole| whole / seen);
    Ok(processes.iter().map(|process| process.line(|us| less(us) * share) + "\n").collect())
}

/// Every stretch of computing, in microseconds.
fn stretches(processes: &[Process]) -> impl Iterator<Item = f64> {
    let words = processes.iter().flat_map(|process| &process.words);
    words.filter_map(|word| match word {
        Word::Compute(us) => Some(*us),
        Word::Call(_) => None,
    })
}

/// What being traced takes between two calls, in microseconds: less is seen in one of ten cases.
fn overhead(processes: &[Process]) -> f64 {
    let mut between: Vec<f64> = stretches(processes).collect();
    between.sort_by(f64::total_cmp);
    between.get(between.len() / 10).copied().unwrap_or_default().max(0.0)
}

/// Takes one line of a process.
fn take<'t>(
    number: usize,
    at: f64,
    rest: &str,
    processes: &mut Vec<Process>,
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
            processes.push(Process { name, since, ..Process::default() });
            processes[number].computed(begun, end);
            processes[number].words.push(Word::Call(format!("f{child}")));
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
        // Of files: it counts as computing.
        "read" | "write" if to_a_pipe => Some("b"),
        _ => return Ok(()),
    };
    process.computed(begun, end);
    process.words.extend(word.map(|name| Word::Call(name.to_owned())));
    Ok(())
}

/// The last part of what an execve executes.
fn name(call: &str) -> String {
    let path = call.split('"').nth(1).unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes with short numbers, which more than one space follows, were once not seen.
    #[test]
    fn a_trace_becomes_a_line_a_process() {
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
        // Ten microseconds, the least that lies between two calls here, are the tracer's.
        let expected = "make: c140 2*a c20 f1 w\ncc: c90 x c990\n";
        assert_eq!(tree(trace, "/make\", [", None), Ok(expected.to_owned()));
        let half = "make: c70 2*a c10 f1 w\ncc: c45 x c495\n";
        assert_eq!(tree(trace, "/make\", [", Some(620.0)), Ok(half.to_owned()));
        assert!(tree(trace, "gcc", None).is_err());
    }
}
