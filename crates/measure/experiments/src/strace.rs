//! The system calls of a function, as strace prints them: [`trace`].
//!
//! The function runs in a forked child, to which strace attaches. Each [`TraceLine`] is a call, a
//! signal or an end. [`explained`] adds the meaning of each flag and field that source 003 shows.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader};

use crate::prelude::*;

/// Maximum time for which the traced function may run.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The call before and after the traced function.
const MARK: &str = "getegid()";
const CREATIONS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceLine {
    /// `true` for the thread that runs the traced function, `false` for tasks that it created.
    pub(crate) by_caller: bool,
    task: i32,
    text: String,
}

impl TraceLine {
    /// Returns the name of the call; `None` if the line is a signal or an end.
    pub(crate) fn call(&self) -> Option<&str> {
        self.text.split_once('(').map(|(name, _)| name).filter(|name| !name.contains(' '))
    }

    /// Returns the arguments of a call that contains no structure, without the last one.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.text.split_once('(').map_or("", |(_, rest)| rest).split(", ")
    }

    pub(crate) fn is_creation(&self) -> bool {
        self.call().is_some_and(|name| CREATIONS.contains(&name))
    }

    /// Returns `true` if the line is the arrival of a signal.
    pub(crate) fn is_signal(&self) -> bool {
        self.text.starts_with("--- ")
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.text.split_once(&format!("{name}="))?;
        rest.split([',', ' ', '}', ')']).next()
    }

    /// Returns the flags of a creation, and the signal that reports the end of the new task.
    pub(crate) fn creation(&self) -> Option<(String, &str)> {
        let flags = self.field("flags")?.split('|');
        let (flags, signals): (Vec<_>, Vec<_>) = flags.partition(|flag| flag.starts_with("CLONE_"));
        let signal = self.field("exit_signal").or(signals.first().copied());
        Some((flags.join("|"), signal.unwrap_or("0")))
    }
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.by_caller {
            write!(f, "[pid {}] ", self.task)?;
        }
        f.write_str(&self.text)
    }
}

/// Runs `of` in a forked child, and returns what that thread and all tasks that it creates do until
/// `of` returns. Skipped if strace is missing or cannot attach.
pub(crate) fn trace(of: impl FnOnce()) -> Result<Vec<TraceLine>> {
    let (attached, attach) = rustix::pipe::pipe().setting_up("pipe")?;
    // strace writes each line while the child waits, and a busy disk may block strace.
    let output = tempfile::NamedTempFile::new_in("/dev/shm").setting_up("a temporary file")?;
    let mut child = Child::fork(|| {
        // Without Yama the call fails, and every process of this user may attach.
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
        let mark = || {
            let _ = std::hint::black_box(rustix::process::getegid());
        };
        if !matches!(rustix::io::read(&attached, &mut [0; 1]), Ok(1)) {
            return 1;
        }
        mark();
        of();
        mark();
        0
    })?;
    let pid = child.pid();
    let mut strace = Command::new("strace")
        .arg("-f")
        .arg("-o")
        .arg(output.path())
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MeasureError::skip("strace is not installed"),
            _ => MeasureError::setting_up("strace", error),
        })?;
    // strace reports that it has attached after it has stopped the child.
    let mut first = String::new();
    let mut errors = BufReader::new(strace.stderr.take().expect("standard error is a pipe"));
    errors.read_line(&mut first).during("read from strace")?;
    let ended = if first.contains("attached") {
        rustix::io::write(&attach, b"!").during("write to a pipe")?;
        ends_within(pid, TIMEOUT)?
    } else {
        false
    };
    let status = if ended { child.wait()? } else { child.kill()? };
    io::copy(&mut errors, &mut io::sink()).during("read from strace")?;
    strace.wait().during("wait for strace")?;
    if !first.contains("attached") {
        skip!("strace cannot attach: {}", first.trim());
    }
    ensure!(status.exit_status() == Some(0), "the traced function ended with {status:?}");
    parse(&std::fs::read_to_string(output.path()).during("read of strace's output")?, pid)
}

/// Joins the halves of interrupted lines, and returns the lines between the caller's marks.
fn parse(output: &str, caller: Pid) -> Result<Vec<TraceLine>> {
    let mut lines: Vec<TraceLine> = Vec::new();
    let mut unfinished: HashMap<i32, usize> = HashMap::new();
    for line in output.lines() {
        let (task, text) = line.split_once(' ').unwrap_or_default();
        let Ok(task) = task.parse() else {
            bail!("expected a line of strace, found `{line}`");
        };
        let text = text.trim_start();
        if let Some((_, rest)) = text.split_once(" resumed>").filter(|_| text.starts_with("<... "))
        {
            if let Some(at) = unfinished.remove(&task) {
                lines[at].text.push_str(rest);
            }
            continue;
        }
        let whole = text.strip_suffix(" <unfinished ...>");
        if whole.is_some() {
            unfinished.insert(task, lines.len());
        }
        let text = whole.unwrap_or(text).to_owned();
        lines.push(TraceLine { by_caller: task == caller.as_raw_nonzero().get(), task, text });
    }
    let is_mark = |line: &TraceLine| line.by_caller && line.text.starts_with(MARK);
    let (Some(first), Some(last)) =
        (lines.iter().position(is_mark), lines.iter().rposition(is_mark))
    else {
        bail!("expected {MARK} in a trace, found\n{output}");
    };
    // A thread that the caller has joined may end later than the join.
    let ends = |line: &TraceLine| !line.by_caller && line.text.starts_with("+++");
    let late: Vec<TraceLine> = lines[last..].iter().filter(|line| ends(line)).cloned().collect();
    Ok([&lines[(first + 1).min(last)..last], &late].concat())
}

/// Returns only the names of the calls, beginning with the caller's:
/// `mmap, clone3, futex; the new task: rseq, exit`.
pub(crate) fn in_short(lines: &[TraceLine]) -> String {
    let names = |caller: bool| {
        let of_one = lines.iter().filter(|line| line.by_caller == caller);
        of_one.filter_map(TraceLine::call).collect::<Vec<_>>().join(", ")
    };
    let (caller, others) = (names(true), names(false));
    if others.is_empty() { caller } else { format!("{caller}; the new task: {others}") }
}

/// Returns every line, then the creations and signals with the meaning of each flag and field.
pub(crate) fn explained(lines: &[TraceLine]) -> String {
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    for line in lines.iter().filter(|line| line.is_creation() || line.is_signal()) {
        text += &format!("\n{}\n", line.text);
        for (name, meaning) in MEANINGS.lines().filter_map(|line| line.split_once(": ")) {
            if line.text.split(['|', ',', ' ', '{', '(', '=']).any(|word| word == name) {
                text += &format!("  {name:22} {meaning}\n");
            }
        }
    }
    text
}

/// The fields and flags of the creations and the signal that source 003 shows, with their meanings,
/// after clone(2) and sigaction(2).
const MEANINGS: &str = include_str!("strace.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_lines_join_between_the_marks() {
        let output = "\
7 read(0, \"!\", 1) = 1
7 getegid() = 3
7 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0, stack_size=0x7f} <unfinished ...>
8 rseq(0x1, 0x20, 0, 0x53053053)    = 0
7 <... clone3 resumed> => {parent_tid=[8]}, 88) = 8
8 exit(0)                           = ?
7 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f) = 9
9 +++ exited with 0 +++
7 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=9, si_status=0, si_utime=0} ---
7 getegid()                         = 3
8 +++ exited with 0 +++
7 +++ exited with 0 +++
";
        let lines = parse(output, Pid::from_raw(7).expect("a pid")).expect("a trace");
        let creations: Vec<_> = lines.iter().filter_map(TraceLine::creation).collect();
        assert_eq!(
            creations,
            [("CLONE_VM|CLONE_THREAD".into(), "0"), ("CLONE_CHILD_SETTID".into(), "SIGCHLD")]
        );
        assert_eq!(in_short(&lines), "clone3, clone; the new task: rseq, exit");
        let signal = lines.iter().find(|line| line.is_signal()).expect("a signal");
        assert_eq!((signal.field("si_code"), signal.call()), (Some("CLD_EXITED"), None));
        let text = explained(&lines);
        assert!(text.contains("=> {parent_tid=[8]}, 88) = 8\n[pid 8] rseq"), "{text}");
        assert!(text.contains("[pid 8] +++ exited with 0 +++\n\nclone3"), "{text}");
        for name in ["stack_size", "CLONE_THREAD", "child_tidptr", "si_utime"] {
            assert_eq!(text.matches(&format!("\n  {name} ")).count(), 1, "{name}: {text}");
        }
        assert!(!text.contains("\n  stack "), "{text}");
    }

    #[test]
    fn trace_names_the_status_of_a_function_that_exits() {
        match trace(|| tontine_bench::os::child::exit_at_once(7)) {
            Err(MeasureError::Failed(why)) => assert!(why.contains("exit_status: 7"), "{why}"),
            Err(MeasureError::Skipped(why)) => eprintln!("skipped: {why}"),
            other => panic!("{other:?}"),
        }
    }
}
