//! The loop that resumes a child from stop to stop and records the events: [`trace`].
//!
//! The tracer runs in its own thread, so that it can wait for *any* traced task without reaping
//! children for which other threads wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::requests::{self, SyscallStop, Traced, wait_for_any};
use super::signal::Arrived;
use super::{Call, ExitKind, TraceEvent, Who, decode, names};
use crate::error::{ErrorContext, MeasureError, Result};
use crate::os::child::Child;
use crate::os::shared::SharedMapping;
use crate::peer::{ChildError, PeriodicSignal};

/// Maximum duration of the traced function.
const PATIENCE: Duration = Duration::from_secs(10);

/// Implements [`super::events`].
pub(super) fn trace(of: impl FnOnce() + Send) -> Result<Vec<TraceEvent>> {
    thread::scope(|scope| {
        let tracer = scope.spawn(|| fork_and_follow(of));
        tracer.join().unwrap_or_else(|_| Err(MeasureError::fail("the tracing thread panicked")))
    })
}

fn fork_and_follow(of: impl FnOnce()) -> Result<Vec<TraceEvent>> {
    let returned = SharedMapping::<AtomicU32>::anonymous()?;
    let words = ChildError::new()?;
    let mut child = Child::fork(|| {
        let ready = requests::trace_me()
            .setting_up("ptrace(PTRACE_TRACEME)")
            .and_then(|()| requests::as_in_a_fresh_program().setting_up("sigprocmask"))
            .and_then(|()| requests::stop_here().setting_up("kill"));
        if let Err(trouble) = ready {
            words.say(&trouble);
            return 1;
        }
        of();
        // The store precedes any later call of this child, and the tracer reads the word at that
        // call.
        returned.store(1, Ordering::Relaxed);
        0
    })?;
    let root = child.pid().as_raw_nonzero().get();
    let mut tracer = Tracer {
        root,
        returned: &returned,
        tasks: BTreeMap::new(),
        events: Vec::new(),
        over: false,
        end: None,
    };
    let followed = tracer.follow();
    if tracer.end.is_some() {
        child.was_reaped();
    }
    followed?;
    if let Some(trouble) = words.heard() {
        return Err(trouble);
    }
    match (tracer.over, tracer.end) {
        (true, Some(ExitKind::Exited(0))) => Ok(tracer.events),
        (_, end) => Err(MeasureError::fail(format!("the traced function did not return: {end:?}"))),
    }
}

/// The state of a traced thread.
#[derive(Debug)]
struct TracedThread {
    who: Who,
    /// Index of its unfinished call among the events, and the number and arguments of the call.
    pending: Option<(usize, u64, [u64; 6])>,
}

struct Tracer<'a> {
    root: libc::pid_t,
    returned: &'a AtomicU32,
    tasks: BTreeMap<libc::pid_t, TracedThread>,
    events: Vec<TraceEvent>,
    /// `true` once the traced function has returned.
    over: bool,
    /// The end of the child, set when it is reaped.
    end: Option<ExitKind>,
}

impl Tracer<'_> {
    /// Follows the tasks until none is left. After a failure, kills all tasks but still waits for
    /// them, because the process can be reaped only after all of its threads.
    fn follow(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let _nudge = PeriodicSignal::this_thread()?;
        let mut failure = None;
        loop {
            let step = match wait_for_any() {
                Ok((pid, status)) if libc::WIFSTOPPED(status) => self
                    .stopped(pid, status)
                    .and_then(|signal| Traced(pid).resume(signal).during("ptrace(PTRACE_SYSCALL)")),
                Ok((pid, status)) => {
                    self.ended(pid, status);
                    Ok(())
                }
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {
                    if Instant::now() < deadline {
                        Ok(())
                    } else {
                        let text = format!("the traced function took more than {PATIENCE:?}");
                        Err(MeasureError::fail(text))
                    }
                }
                Err(error) => return Err(error).during("waitpid"),
            };
            if let Err(trouble) = step {
                failure.get_or_insert(trouble);
                self.kill_all();
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Handles a stop, and returns the signal to deliver to the thread.
    fn stopped(&mut self, pid: libc::pid_t, status: libc::c_int) -> Result<libc::c_int> {
        const CALL: libc::c_int = libc::SIGTRAP | 0x80;
        let signal = libc::WSTOPSIG(status);
        if !self.tasks.contains_key(&pid) {
            self.tasks.insert(pid, TracedThread { who: self.who(pid), pending: None });
            if pid == self.root {
                Traced(pid).set_options().setting_up("ptrace(PTRACE_SETOPTIONS)")?;
            }
            // Every traced task begins with this stop, which the tracing causes.
            if signal == libc::SIGSTOP {
                return Ok(0);
            }
        }
        if signal == CALL {
            match Traced(pid).system_call().setting_up("ptrace(PTRACE_GET_SYSCALL_INFO)")? {
                SyscallStop::Entry(number, arguments) => self.entered(pid, number, arguments),
                SyscallStop::Exit(returned) => self.left(pid, returned),
                SyscallStop::Other => {}
            }
            return Ok(0);
        }
        // Neither the kernel's own events nor the stop of a whole group carries a signal.
        let told_of_creation = status >> 16 != 0;
        let Some(info) = (!told_of_creation).then(|| Traced(pid).signal()).flatten() else {
            return Ok(0);
        };
        if !self.over {
            let who = self.tasks[&pid].who;
            self.events.push(TraceEvent::Signal(who, Arrived::of(&info)));
        }
        Ok(signal)
    }

    fn who(&self, pid: libc::pid_t) -> Who {
        if pid == self.root {
            Who::Caller
        } else if Traced(pid).is_thread_of(self.root) {
            Who::Thread(pid)
        } else {
            Who::Process(pid)
        }
    }

    fn entered(&mut self, pid: libc::pid_t, number: u64, arguments: [u64; 6]) {
        // The child set the word before it made this call.
        self.over |= pid == self.root && self.returned.load(Ordering::Relaxed) == 1;
        let Some(task) = self.tasks.get_mut(&pid).filter(|_| !self.over) else { return };
        let name = names::name(number);
        task.pending = Some((self.events.len(), number, arguments));
        self.events.push(TraceEvent::Call(Call {
            who: task.who,
            number,
            name,
            arguments: decode::on_entry(Traced(pid), name, arguments),
            returned: None,
            creates: decode::creation(Traced(pid), name, arguments),
        }));
    }

    fn left(&mut self, pid: libc::pid_t, returned: i64) {
        let pending = self.tasks.get_mut(&pid).and_then(|task| task.pending.take());
        let Some((at, _, arguments)) = pending else { return };
        if let TraceEvent::Call(call) = &mut self.events[at] {
            call.returned = Some(returned);
            decode::on_exit(Traced(pid), call, arguments);
        }
    }

    fn ended(&mut self, pid: libc::pid_t, status: libc::c_int) {
        let end = if libc::WIFEXITED(status) {
            ExitKind::Exited(libc::WEXITSTATUS(status))
        } else {
            ExitKind::Killed(libc::WTERMSIG(status))
        };
        let task = self.tasks.remove(&pid);
        if pid == self.root {
            self.end = Some(end);
            // The remaining tasks are those that the child left behind.
            self.kill_all();
        } else if let Some(task) = task.filter(|task| !self.over || self.was_leaving(task)) {
            self.events.push(TraceEvent::Ended(task.who, end));
        }
    }

    /// Returns `true` if the task had called exit itself: the kernel wakes a joiner before that
    /// call completes.
    fn was_leaving(&self, task: &TracedThread) -> bool {
        let call = task.pending.and_then(|(at, ..)| self.events[at].call());
        call.is_some_and(|call| matches!(call.name, Some("exit" | "exit_group")))
    }

    fn kill_all(&self) {
        self.tasks.keys().for_each(|&pid| Traced(pid).kill());
    }
}
