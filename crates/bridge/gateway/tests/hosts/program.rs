//! Programs at both ends of a lane: [`OwnerTask`] and [`SenderTask`], which run on a thread or, as
//! [`Role`]s, in processes ([`Program`]).
//!
//! A process of a role is this test's executable, started again for the one test
//! [`role_of_this_process`], which does nothing in any other process. A line of its standard output
//! that begins with `> ` is a report; the end of its standard input asks it to end.

#![allow(unsafe_code, reason = "a process ends without its drops")]

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde::{Deserialize, Serialize};
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender};

use super::{AMPLE, gateways};

/// Variable of the environment that holds the role of a process.
const ROLE: &str = "TONTINE_TEST_ROLE";

/// Number of timeouts, one after another, after which a sender reports that its lane is full.
const TIMEOUTS_IF_FULL: u32 = 4;

/// Bytes of a message before its filler: the sender's number, and the message's.
pub const PREFIX: usize = 16;

/// Returns the monotonic time, which all processes of a host share.
pub fn now_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Fills `message` with the message of this number, of at least [`PREFIX`] bytes.
pub fn write_message(message: &mut Vec<u8>, sender: u64, number: u64, length: usize) {
    message.clear();
    message.extend_from_slice(&sender.to_le_bytes());
    message.extend_from_slice(&number.to_le_bytes());
    message.resize(length.max(PREFIX), number as u8 ^ 0x5a);
}

/// Returns the sender's number and the message's.
///
/// # Panics
/// Panics if the message is not whole.
pub fn read_message(message: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(*message[at..].first_chunk().expect("a prefix"));
    let (sender, number) = (word(0), word(8));
    let filler = vec![number as u8 ^ 0x5a; message.len() - PREFIX];
    assert!(message[PREFIX..] == filler, "message {number} of sender {sender} is torn");
    (sender, number)
}

/// A receiver that logs each message before it acknowledges it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OwnerTask {
    /// Address of the mailbox.
    pub path: PathBuf,
    /// File to which the numbers of received messages are appended, 16 bytes each.
    pub log: PathBuf,
    /// Number of messages to receive, after which the owner receives nothing more. It does not
    /// acknowledge the last one.
    pub limit: u64,
    /// Pause after each message.
    pub pause_us: u64,
    /// Close the mailbox in order when asked to end.
    pub closes: bool,
}

impl OwnerTask {
    pub fn new(path: &Path, log: &Path) -> Self {
        let (path, log) = (path.to_owned(), log.to_owned());
        Self { path, log, limit: u64::MAX, pause_us: 0, closes: true }
    }

    /// Starts a process, and waits until the mailbox is bound.
    pub fn start(&self) -> Program {
        let owner = Program::start(&Role::Owner(self.clone()));
        owner.wait_for("ready");
        owner
    }

    pub fn run(&self, stop: &AtomicBool, report: impl Fn(&str)) {
        let mut log = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        let mut mailbox = Mailbox::bind(&self.path).expect("binds");
        report("ready");
        let mut received = 0;
        while !stop.load(Ordering::Relaxed) {
            if received >= self.limit {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            match mailbox.recv_timeout(Duration::from_millis(20)) {
                Ok(message) => {
                    let (sender, number) = read_message(&message);
                    let mut entry = [0; 16];
                    entry[..8].copy_from_slice(&sender.to_le_bytes());
                    entry[8..].copy_from_slice(&number.to_le_bytes());
                    log.write_all(&entry).expect("logged");
                    received += 1;
                    if self.pause_us > 0 {
                        thread::sleep(Duration::from_micros(self.pause_us));
                    }
                }
                // The wait acknowledges the last message, as `ack` does.
                Err(Error::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(mailbox.take_errors(), []);
        if self.closes {
            mailbox.close();
        } else {
            std::mem::forget(mailbox);
        }
    }
}

/// Reads the log of an owner: the numbers of each sender's messages, in the order of their receipt.
pub fn read_log(log: &Path, sender: u64) -> Vec<u64> {
    let bytes = std::fs::read(log).unwrap_or_default();
    let word = |entry: &[u8], at| u64::from_le_bytes(*entry[at..].first_chunk().expect("a word"));
    let entries = bytes.chunks_exact(16).filter(|entry| word(entry, 0) == sender);
    entries.map(|entry| word(entry, 8)).collect()
}

/// Returns the number of messages in the log of an owner, those of all senders.
pub fn logged(log: &Path) -> u64 {
    std::fs::metadata(log).map_or(0, |file| file.len() / 16)
}

/// A sender of numbered messages.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SenderTask {
    /// Address of the mailbox.
    pub path: PathBuf,
    /// Number of the sender.
    pub id: u64,
    pub count: u64,
    /// Bytes of each message.
    pub length: usize,
    /// Pause between two messages.
    pub pause_us: u64,
    /// 0: fail, 1: wait for a successor, 2: wait through restarts.
    pub on_death: u8,
    pub lane_cap: Option<u64>,
    /// Send all messages, also after the program was asked to end.
    pub completes: bool,
    /// After the last message: wait until everything is acknowledged.
    pub waits: bool,
    /// Then: call `service` until the lane ends or the program is asked to end.
    pub lingers: bool,
}

/// The acts of a sender. Numbers are those of its messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderReport {
    pub sent: u64,
    pub acked: u64,
    pub error: Option<String>,
    pub errno: i32,
    /// Monotonic time at which the error was returned.
    pub ended_ms: u64,
    pub in_doubt: Vec<u64>,
    pub unsent: Vec<u64>,
    /// Threads of the process besides those that it had before it connected.
    pub threads: usize,
    /// Monotonic time at which the other host was first seen suspected, or 0.
    pub suspected_ms: u64,
}

impl SenderReport {
    fn note_suspicion(&mut self, sender: &Sender, report: &impl Fn(&str)) {
        if self.suspected_ms == 0 && sender.is_suspected() {
            self.suspected_ms = now_ms();
            report("suspected");
        }
    }

    /// Checks that each message is acknowledged, in doubt or unsent, in this order.
    #[track_caller]
    pub fn check(&self) {
        let all = (0..self.acked).chain(self.in_doubt.iter().copied());
        let all: Vec<u64> = all.chain(self.unsent.iter().copied()).collect();
        assert_eq!(all, (0..self.sent).collect::<Vec<_>>(), "{}", self.summary());
    }

    /// Checks that everything is acknowledged, and that this is what `received` has.
    #[track_caller]
    pub fn check_all_received(&self, received: &[u64]) {
        let end = (self.error.as_deref(), self.acked);
        assert_eq!(end, (None, self.sent), "{}", self.summary());
        assert!(received.iter().copied().eq(0..self.sent), "{}: order", self.summary());
    }

    pub fn summary(&self) -> String {
        let (in_doubt, unsent) = (self.in_doubt.len(), self.unsent.len());
        let Self { sent, acked, error, .. } = self;
        let end = error.as_deref().unwrap_or("no error");
        format!("{sent} sent = {acked} acknowledged + {in_doubt} in doubt + {unsent} unsent; {end}")
    }
}

impl SenderTask {
    pub fn new(path: &Path, id: u64, count: u64) -> Self {
        Self { path: path.to_owned(), id, count, length: 64, waits: true, ..Self::default() }
    }

    /// Starts a process.
    pub fn start(self) -> Program {
        Program::start(&Role::Sender(self))
    }

    fn connect(&self) -> Sender {
        let on_death = [OnDeath::Fail, OnDeath::WaitForSuccessor, OnDeath::WaitThroughRestarts];
        let mut options = Options::new().on_death(on_death[usize::from(self.on_death)]);
        if let Some(cap) = self.lane_cap {
            options = options.lane_cap(cap);
        }
        let deadline = Instant::now() + AMPLE;
        loop {
            match options.connect(&self.path) {
                Ok(sender) => return sender,
                Err(Error::NoMailbox { .. }) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Connects and sends, until everything is done, the lane ends, or `stop` is set.
    pub fn run(&self, stop: &AtomicBool, report: impl Fn(&str)) -> SenderReport {
        let pid = std::process::id();
        let before = super::resources::threads(pid);
        let mut sender = self.connect();
        let mut done = SenderReport::default();
        report("ready");
        let outcome = self.send_all(&mut sender, &mut done, stop, &report);
        super::until("no thread receives descriptors", || {
            super::resources::threads_named(pid, "tontine-fds") == 0
        });
        done.threads = super::resources::threads(pid).saturating_sub(before);
        if let Err(error) = outcome {
            done.ended_ms = now_ms();
            done.errno = error.errno();
            done.error = Some(error.to_string());
            let unread = sender.take_unread_parts().expect("the lane has ended");
            let number = |message: &Vec<u8>| read_message(message).1;
            done.in_doubt = unread.in_doubt.iter().map(number).collect();
            done.unsent = unread.unsent.iter().map(number).collect();
            let unread = done.in_doubt.len() + done.unsent.len();
            done.acked = done.sent - unread as u64;
        }
        done
    }

    fn send_all(
        &self,
        sender: &mut Sender,
        done: &mut SenderReport,
        stop: &AtomicBool,
        report: &impl Fn(&str),
    ) -> tontine::Result<()> {
        let mut message = Vec::new();
        let mut timeouts = 0;
        while done.sent < self.count && (self.completes || !stop.load(Ordering::Relaxed)) {
            write_message(&mut message, self.id, done.sent, self.length);
            match sender.send_timeout(&message, Duration::from_millis(100)) {
                Ok(()) => (done.sent, timeouts) = (done.sent + 1, 0),
                Err(Error::TimedOut) => {
                    timeouts += 1;
                    if timeouts == TIMEOUTS_IF_FULL {
                        report("full");
                    }
                }
                Err(error) => return Err(error),
            }
            done.note_suspicion(sender, report);
            if self.pause_us > 0 {
                thread::sleep(Duration::from_micros(self.pause_us));
            }
        }
        report("sent");
        let deadline = Instant::now() + AMPLE;
        while self.waits && sender.acked() < sender.sent() && Instant::now() < deadline {
            match sender.wait_acked(Some(Duration::from_millis(100))) {
                Ok(()) | Err(Error::TimedOut) => done.note_suspicion(sender, report),
                Err(error) => return Err(error),
            }
        }
        if sender.acked() == sender.sent() {
            done.acked = done.sent;
            report("acked");
        }
        while self.lingers && !stop.load(Ordering::Relaxed) {
            sender.service()?;
            done.note_suspicion(sender, report);
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// The task of a process of this test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Role {
    /// A gateway on TCP, with this configuration file, and a limit of descriptors.
    Gateway(PathBuf, Option<u64>),
    Owner(OwnerTask),
    Sender(SenderTask),
    /// Senders in one process: the mailbox's path, their number, and that of each one's messages.
    Senders(PathBuf, u64, u64),
    /// A sender that is killed if it makes a system call. The path is the mailbox's.
    SilentSender(PathBuf),
}

#[test]
fn role_of_this_process() {
    run_role();
}

/// Runs the role of a process that [`Program::start`] started. Returns `false` in other processes.
pub fn run_role() -> bool {
    let Some(role) = env::var_os(ROLE) else { return false };
    let role: Role = serde_json::from_str(role.to_str().expect("text")).expect("a role");
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let report = |line: &str| println!("\n> {line}");
    if let Role::Gateway(config, descriptors) = &role {
        gateways::run_process(config, *descriptors);
        return true;
    }
    thread::spawn(|| {
        let mut line = String::new();
        while std::io::stdin().read_line(&mut line).is_ok_and(|length| length > 0) {}
        stop.store(true, Ordering::Relaxed);
    });
    // The standard output is passed on when the first line is printed.
    report("started");
    match role {
        Role::Gateway(..) => {}
        Role::Owner(task) => task.run(stop, report),
        Role::Sender(task) => {
            let done = task.run(stop, report);
            report(&serde_json::to_string(&done).expect("a report"));
        }
        Role::SilentSender(path) => send_silently(&path, stop, report),
        Role::Senders(path, count, messages) => {
            let tasks: Vec<SenderTask> =
                (0..count).map(|id| SenderTask::new(&path, id, messages)).collect();
            let mut senders: Vec<Sender> = tasks.iter().map(SenderTask::connect).collect();
            for (task, sender) in tasks.iter().zip(&mut senders) {
                let task = SenderTask { waits: false, ..task.clone() };
                task.send_all(sender, &mut SenderReport::default(), stop, &|_| ()).expect("sent");
            }
            for sender in &mut senders {
                sender.wait_acked(Some(AMPLE)).expect("acknowledged");
            }
            report("acked");
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
    true
}

/// Sends 32 messages. Does not make a system call after the second, which wakes the receiver.
#[allow(unsafe_code, reason = "ends the process at once")]
fn send_silently(path: &Path, stop: &AtomicBool, report: impl Fn(&str)) {
    let mut sender = Sender::connect(path).expect("connects");
    let mut messages = vec![Vec::new(); 32];
    for (number, message) in messages.iter_mut().enumerate() {
        write_message(message, 9, number as u64, 32);
    }
    sender.send(&messages[0]).expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("acknowledged");
    report("ready");
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
    }
    sender.send(&messages[1]).expect("sent");
    let rules = [(libc::SYS_exit_group, Vec::new())].into();
    let arch = env::consts::ARCH.try_into().expect("a known processor");
    let (kill, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, kill, allow, arch).expect("a valid filter");
    let program: BpfProgram = filter.try_into().expect("compiles");
    apply_filter(&program).expect("filters are permitted");
    for message in &messages[2..] {
        assert!(sender.send(message).is_ok());
    }
    // SAFETY: `_exit` only ends this process. Drops would make system calls to unmap memory.
    unsafe { libc::_exit(0) }
}

/// Lets the kernel kill the command's process when the thread that starts it ends.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: the closure makes one system call.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// A process of a role, killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: Option<PathBuf>,
}

impl Program {
    pub fn start(role: &Role) -> Self {
        Self::start_with_log(role, None)
    }

    /// Starts a process. Its standard error is appended to `log`, or passed on.
    pub fn start_with_log(role: &Role, log: Option<&Path>) -> Self {
        let this = module_path!().split_once("::").expect("a module of a test").1;
        let mut command = Command::new(env::current_exe().expect("an executable"));
        command
            .args([&format!("{this}::role_of_this_process"), "--exact", "--nocapture"])
            .args(["--test-threads", "1"])
            .env(ROLE, serde_json::to_string(role).expect("a role"));
        Self::spawn(command, log)
    }

    /// Starts the process of a command.
    pub fn spawn(mut command: Command, log: Option<&Path>) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(log) = log {
            let file = OpenOptions::new().create(true).append(true).open(log).expect("a log");
            command.stderr(file);
        }
        end_with_parent(&mut command);
        let mut child = command.spawn().expect("a process");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(report) = line.strip_prefix("> ") {
                    let _ = send.send(report.to_owned());
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, log: log.map(Path::to_owned) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next report that `is_wanted`, if there is one in time.
    fn next(&self, timeout: Duration, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            if is_wanted(&line) {
                return Some(line);
            }
        }
    }

    /// Waits for a report.
    #[track_caller]
    pub fn wait_for(&self, report: &str) {
        assert!(self.reports(report, AMPLE), "no report {report:?}");
    }

    /// Returns `true` if the process has made this report, or makes it within `timeout`.
    pub fn reports(&self, report: &str, timeout: Duration) -> bool {
        self.next(timeout, |line| line == report).is_some()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("not reaped yet");
        // One thread receives the signal and stops the others, when it gets a processor.
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| {
                stat.rsplit_once(") ").is_some_and(|rest| rest.1.starts_with('T'))
            })
        };
        let tasks = format!("/proc/{}/task", self.pid());
        if signal == Signal::STOP {
            super::until("all threads are stopped", || {
                std::fs::read_dir(&tasks).expect("a process").all(is_stopped)
            });
        }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.child.kill().expect("not reaped yet");
        self.child.wait().expect("a child");
    }

    /// Waits for the report of a sender.
    #[track_caller]
    pub fn report(&self) -> SenderReport {
        self.report_within(AMPLE).expect("a report")
    }

    /// Returns the report of a sender, if it makes one within `timeout`.
    pub fn report_within(&self, timeout: Duration) -> Option<SenderReport> {
        let line = self.next(timeout, |line| line.starts_with('{'))?;
        Some(serde_json::from_str(&line).expect("a report"))
    }

    /// Asks the process to end, without waiting for it.
    pub fn ask_to_end(&mut self) {
        self.input = None;
    }

    /// Asks the process to end, and waits until it has ended in order.
    #[track_caller]
    pub fn finish(mut self) {
        self.input = None;
        let mut status = None;
        super::until("the process has ended", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log.take().filter(|_| thread::panicking());
        if let Some(text) = log.and_then(|log| std::fs::read_to_string(log).ok()) {
            println!("--- log of a gateway ---\n{text}");
        }
    }
}

/// An owner on a thread of this process, which closes its mailbox when dropped.
pub struct OwnerThread(Option<thread::JoinHandle<()>>, std::sync::Arc<AtomicBool>);

impl OwnerThread {
    pub fn start(task: OwnerTask) -> Self {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let (stops, (ready, is_ready)) = (stop.clone(), channel());
        let thread = thread::spawn(move || {
            task.run(&stops, |line| drop(ready.send(line.to_owned())));
        });
        is_ready.recv_timeout(AMPLE).expect("binds");
        Self(Some(thread), stop)
    }
}

impl Drop for OwnerThread {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        let ended = self.0.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            ended.expect("started").expect("no panic");
        }
    }
}

/// Creates an empty log.
pub fn empty_log(folder: &Path) -> PathBuf {
    let log = folder.join("received");
    File::create(&log).expect("a log");
    log
}
