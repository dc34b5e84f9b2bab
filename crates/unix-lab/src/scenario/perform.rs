//! Makes a [`SystemCall`] on a [`Sys`](tontine_unix::Sys), and returns its result.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tontine_unix::{
    ActionFlags, Children, Errno, Fd, Pid, PriorityScope, Ptrace, Resource, Result, SigAction,
    SigSet, SigStack, SigmaskHow, Signal, SignalTarget, SpawnGroup, SpawnRequest, Tid, WaitOptions,
};

use super::call::{
    ExecTarget, KillTarget, PriorityTarget, Spawning, SystemCall, Tracing, WaitTarget,
};
use super::context::ThreadFrame;
use super::outcome::{CallResult, done, limit};
use super::program::{image, process, thread};
use super::step_control::SpawnKind;
use super::word::{
    LimitedResource, PlainCall, SetCall, SignalCall, SimpleAction, TwoValueCall, ValueCall,
    WaitCall,
};

/// Maximum number of bytes that `read` reads if the text gives no number.
const READ: i32 = 256;
/// Maximum number of bytes that `read` reads, whatever number the text gives.
const MOST_READ: i32 = 1 << 16;
/// Maximum number of marks of `profil`.
const MOST_MARKS: i32 = 1 << 12;
/// Maximum number of polls of `compute`, so that the loop ends even if no time passes.
const MOST_POLLS: u32 = 100_000_000;

impl ThreadFrame<'_> {
    /// Makes the call, and returns its result.
    pub(super) fn perform(&self, call: &SystemCall) -> CallResult {
        let sys = self.sys;
        match call {
            SystemCall::Plain(call) => self.plain(*call),
            SystemCall::Value(call, value) => self.on_value(*call, self.value(value)),
            SystemCall::Values(call, first, second) => {
                let (first, second) = (self.value(first), self.value(second));
                match call {
                    TwoValueCall::Setpgid => sys.setpgid(first, second).into(),
                    TwoValueCall::Tcsetpgrp => sys.tcsetpgrp(Fd(first.number()), second).into(),
                    TwoValueCall::Dup2 => sys.dup2(Fd(first.number()), Fd(second.number())).into(),
                }
            }
            SystemCall::Set(call, set) => self.on_set(*call, *set),
            SystemCall::Signal(call, signal) => self.on_signal(*call, *signal),
            SystemCall::Action(call, signal, flags) => self.action(*call, *signal, *flags),
            SystemCall::Fork(name) => {
                let mut child = self.context.forked(name);
                child.seat = self.expect(SpawnKind::Process);
                let seat = child.seat;
                let made = sys.fork(move |sys| process(sys, child));
                self.made(seat, made.ok());
                made.into()
            }
            SystemCall::Thread(name) => {
                let seat = self.expect(SpawnKind::Thread);
                let made = sys.thread_boxed(thread(self.context, name, seat));
                self.made(seat, made.ok().map(|Tid(number)| Pid::number_only(number)));
                match made {
                    Ok(thread) => CallResult::number(thread.0),
                    Err(errno) => CallResult::Error(errno),
                }
            }
            SystemCall::Exec(path) => self.exec(path),
            SystemCall::Spawn(spawning) => self.spawn(spawning),
            SystemCall::Wait(call, whom, options) => self.wait(*call, whom, *options),
            SystemCall::Kill(aim, signal) => sys.kill(self.target(aim), *signal).into(),
            SystemCall::Killpg(group, signal) => sys.killpg(self.value(group), *signal).into(),
            SystemCall::Tgkill(process, thread, signal) => {
                sys.tgkill(self.value(process), Tid(self.number(thread)), *signal).into()
            }
            SystemCall::Sigqueue(process, signal, value) => {
                sys.sigqueue(self.value(process), *signal, self.number(value)).into()
            }
            SystemCall::Sigtimedwait(set, timeout) => self.take(*set, Some(self.lasting(*timeout))),
            SystemCall::Sleep(duration) => {
                sys.nanosleep(self.lasting(*duration)).map_err(|(errno, _left)| errno).into()
            }
            SystemCall::Compute(duration) => self.compute(*duration),
            SystemCall::Pipe(reader, writer) => self.two(reader, writer, sys.pipe()),
            SystemCall::Openpty(user, terminal) => self.two(user, terminal, sys.openpty()),
            SystemCall::Read(descriptor, most) => {
                let most = most.as_ref().map_or(READ, |most| self.number(most));
                self.read(Fd(self.number(descriptor)), most)
            }
            SystemCall::Write { descriptor, text, .. } => {
                counted(sys.write(Fd(self.number(descriptor)), text.as_bytes()))
            }
            SystemCall::Tcsetattr { terminal, on, off } => {
                let terminal = Fd(self.number(terminal));
                let changed = sys.tcgetattr(terminal).and_then(|mut termios| {
                    termios.modes = termios.modes.union(*on).difference(*off);
                    sys.tcsetattr(terminal, &termios)
                });
                changed.into()
            }
            SystemCall::Getrlimit(limited) => CallResult::Limit(sys.getrlimit(resource(*limited))),
            SystemCall::Setrlimit(limited, bounds) => {
                sys.setrlimit(resource(*limited), limit(*bounds)).into()
            }
            SystemCall::Getpriority(owner) => match sys.getpriority(self.whose(owner)) {
                Ok(nice) => CallResult::number(nice),
                Err(errno) => CallResult::Error(errno),
            },
            SystemCall::Setpriority(owner, nice) => {
                sys.setpriority(self.whose(owner), self.number(nice)).into()
            }
            SystemCall::Place(processor) => {
                let processor = processor.as_ref().map(|term| self.number(term));
                match processor.map(usize::try_from).transpose() {
                    Ok(processor) => sys.place(processor).into(),
                    Err(_) => CallResult::Error(Errno::EINVAL),
                }
            }
            SystemCall::Sigstack(size) => {
                let size = size.as_ref().map(|size| self.number(size));
                let size = size.map(|size| usize::try_from(size).unwrap_or(0));
                let stack = size.map(|size| SigStack { size, on_stack: false });
                counted(sys.sigstack(stack).map(|old| old.size))
            }
            SystemCall::Ptrace(tracing) => sys.ptrace(self.request(tracing)).into(),
        }
    }

    fn plain(&self, call: PlainCall) -> CallResult {
        let sys = self.sys;
        match call {
            PlainCall::Getpid => CallResult::Value(sys.getpid()),
            PlainCall::Getppid => CallResult::Value(sys.getppid()),
            PlainCall::Gettid => CallResult::number(sys.gettid().0),
            PlainCall::Getpgrp => CallResult::Value(sys.getpgrp()),
            PlainCall::Setsid => sys.setsid().into(),
            PlainCall::Sigpending => CallResult::Set(sys.sigpending()),
            PlainCall::Getmask => set(sys.sigprocmask(None)),
            PlainCall::Pause => CallResult::Error(sys.pause()),
            PlainCall::Opentty => descriptor(sys.open_tty()),
            PlainCall::Yield => {
                sys.sched_yield();
                CallResult::Ok
            }
            PlainCall::Poll => {
                sys.poll();
                CallResult::Ok
            }
            PlainCall::Processor => CallResult::number(sys.processor()),
            PlainCall::Now => {
                CallResult::number(sys.now().saturating_sub(self.context.began).as_millis())
            }
            PlainCall::Getuid => CallResult::number(sys.getuid()),
            PlainCall::Geteuid => CallResult::number(sys.geteuid()),
            PlainCall::Getrusage => CallResult::number(self.used().as_millis()),
        }
    }

    fn on_value(&self, call: ValueCall, value: Pid) -> CallResult {
        let sys = self.sys;
        let number = value.number();
        let terminal = Fd(number);
        match call {
            ValueCall::Exit => sys.exit(number),
            ValueCall::Alarm => CallResult::number(self.alarm(number.cast_unsigned())),
            ValueCall::Getpgid => sys.getpgid(value).into(),
            ValueCall::Getsid => sys.getsid(value).into(),
            ValueCall::Join => sys.join(Tid(number)).into(),
            ValueCall::Close => sys.close(terminal).into(),
            ValueCall::Controlling => sys.set_controlling(terminal).into(),
            ValueCall::Tcgetpgrp => sys.tcgetpgrp(terminal).into(),
            ValueCall::Tcgetsid => sys.tcgetsid(terminal).into(),
            ValueCall::Tcgetattr => match sys.tcgetattr(terminal) {
                Ok(termios) => CallResult::Modes(termios.modes),
                Err(errno) => CallResult::Error(errno),
            },
            ValueCall::Setuid => sys.setuid(number.cast_unsigned()).into(),
            ValueCall::Mark => {
                sys.mark(usize::try_from(number).unwrap_or(0));
                CallResult::Ok
            }
            ValueCall::Counts => self.counts(number),
            ValueCall::Profil => self.profil(number),
            ValueCall::Subreaper => sys.set_subreaper(number != 0).into(),
        }
    }

    fn on_set(&self, call: SetCall, signals: SigSet) -> CallResult {
        let sys = self.sys;
        let old = |bits: u32| CallResult::Set(SigSet::from_bits(bits.into()));
        let low = signals.bits() as u32;
        match call {
            SetCall::Block => set(sys.sigprocmask(Some((SigmaskHow::Block, signals)))),
            SetCall::Unblock => set(sys.sigprocmask(Some((SigmaskHow::Unblock, signals)))),
            SetCall::Setmask => set(sys.sigprocmask(Some((SigmaskHow::Set, signals)))),
            SetCall::Sigsuspend => CallResult::Error(sys.sigsuspend(signals)),
            SetCall::Sigwait => match sys.sigwait(signals) {
                Ok(signal) => CallResult::Taken(signal, None),
                Err(errno) => CallResult::Error(errno),
            },
            SetCall::Sigwaitinfo => self.take(signals, None),
            SetCall::Sigblock => old(sys.sigblock(low)),
            SetCall::Sigsetmask => old(sys.sigsetmask(low)),
            SetCall::Sigpause => CallResult::Error(sys.sigpause(low)),
        }
    }

    fn on_signal(&self, call: SignalCall, signal: Signal) -> CallResult {
        match call {
            SignalCall::Raise => self.sys.raise(signal).into(),
            SignalCall::Fault => self.sys.fault(signal).into(),
            SignalCall::Sigaction => disposition(self.sys.sigaction(signal, None)),
        }
    }

    fn action(&self, call: SimpleAction, signal: Signal, flags: ActionFlags) -> CallResult {
        let action = match call {
            SimpleAction::Ignore => SigAction::IGNORE,
            SimpleAction::Default => SigAction::DEFAULT,
        };
        disposition(self.sys.sigaction(signal, Some(action.with_flags(flags))))
    }

    fn take(&self, set: SigSet, timeout: Option<Duration>) -> CallResult {
        match self.sys.sigtimedwait(set, timeout) {
            Ok(info) => CallResult::Taken(info.signal, Some(info)),
            Err(errno) => CallResult::Error(errno),
        }
    }

    fn exec(&self, path: &ExecTarget) -> CallResult {
        let conduct = self.context.run.conduct.as_ref();
        let seat = conduct.map(|conduct| conduct.executes(self.sys));
        let (path, arguments) = image(self.context, path, seat);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Err(errno) = self.sys.exec(&path, &arguments);
        if let (Some(conduct), Some(seat)) = (conduct, seat) {
            conduct.stays(seat);
        }
        CallResult::Error(errno)
    }

    fn spawn(&self, spawning: &Spawning) -> CallResult {
        let descriptor = |term| Fd(self.number(term));
        let seat = self.expect(SpawnKind::Process);
        let (path, arguments) = image(self.context, &spawning.path, seat);
        let spawn = SpawnRequest {
            path,
            arguments,
            group: match &spawning.group {
                SpawnGroup::Parents => SpawnGroup::Parents,
                SpawnGroup::Own => SpawnGroup::Own,
                SpawnGroup::Of(group) => SpawnGroup::Of(self.value(group)),
            },
            session: spawning.session,
            mask: spawning.mask,
            defaults: spawning.defaults,
            descriptors: spawning
                .descriptors
                .iter()
                .map(|(from, to)| (descriptor(from), descriptor(to)))
                .collect(),
        };
        let made = self.sys.spawn(&spawn);
        self.made(seat, made.ok());
        made.into()
    }

    fn wait(&self, call: WaitCall, whom: &WaitTarget, options: WaitOptions) -> CallResult {
        let children = match whom {
            WaitTarget::Any => Children::Any,
            WaitTarget::One(child) => Children::One(self.value(child)),
            WaitTarget::Group(group) => Children::Group(self.value(group)),
            WaitTarget::OwnGroup => Children::OwnGroup,
        };
        match call {
            WaitCall::Wait => self.sys.waitpid(children, options).into(),
            WaitCall::Waitid => self.sys.waitid(children, options).into(),
            WaitCall::Wait3 => self.sys.wait3(options).into(),
            WaitCall::Wait4 => self.sys.wait4(children, options).into(),
        }
    }

    fn target(&self, aim: &KillTarget) -> SignalTarget {
        match aim {
            KillTarget::One(process) => SignalTarget::Process(self.value(process)),
            KillTarget::Group(group) => SignalTarget::Group(self.value(group)),
            KillTarget::OwnGroup => SignalTarget::OwnGroup,
            KillTarget::Everyone => SignalTarget::Everyone,
        }
    }

    fn whose(&self, owner: &PriorityTarget) -> PriorityScope {
        match owner {
            PriorityTarget::Process(process) => PriorityScope::Process(self.value(process)),
            PriorityTarget::Group(group) => PriorityScope::Group(self.value(group)),
            PriorityTarget::User(user) => PriorityScope::User(self.number(user).cast_unsigned()),
        }
    }

    fn request(&self, tracing: &Tracing) -> Ptrace {
        match tracing {
            Tracing::TraceMe => Ptrace::TraceMe,
            Tracing::Attach(process) => Ptrace::Attach(self.value(process)),
            Tracing::Continue(process, signal) => Ptrace::Continue(self.value(process), *signal),
            Tracing::Kill(process) => Ptrace::Kill(self.value(process)),
            Tracing::Detach(process, signal) => Ptrace::Detach(self.value(process), *signal),
        }
    }

    /// Sets two variables to two descriptors.
    fn two(&self, first: &str, second: &str, made: Result<(Fd, Fd)>) -> CallResult {
        match made {
            Ok((one, other)) => {
                self.context.set(first, Pid::number_only(one.0));
                self.context.set(second, Pid::number_only(other.0));
                CallResult::Ok
            }
            Err(errno) => CallResult::Error(errno),
        }
    }

    fn read(&self, from: Fd, most: i32) -> CallResult {
        let most = usize::try_from(most.clamp(0, MOST_READ)).unwrap_or(0);
        let mut buffer = vec![0; most];
        match self.sys.read(from, &mut buffer) {
            Ok(read) => {
                buffer.truncate(read);
                CallResult::Bytes(buffer)
            }
            Err(errno) => CallResult::Error(errno),
        }
    }

    /// Polls until the process has used this much more processor time.
    fn compute(&self, duration: Duration) -> CallResult {
        let enough = self.used() + duration;
        for _ in 0..MOST_POLLS {
            if self.used() >= enough {
                return CallResult::Ok;
            }
            self.sys.poll();
        }
        CallResult::Error(Errno::ETIMEDOUT)
    }

    /// Returns the processor time that the process has used.
    fn used(&self) -> Duration {
        let usage = self.sys.getrusage();
        usage.user + usage.system
    }

    fn profil(&self, marks: i32) -> CallResult {
        let counts: Option<Arc<[AtomicU32]>> =
            (marks > 0).then(|| (0..marks.min(MOST_MARKS)).map(|_| AtomicU32::new(0)).collect());
        let outcome = self.sys.profil(counts.clone()).into();
        let profile = &self.context.profile;
        *profile.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        outcome
    }

    fn counts(&self, mark: i32) -> CallResult {
        let profile = &self.context.profile;
        let counts = profile.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = usize::try_from(mark).ok().and_then(|mark| {
            counts.as_ref()?.get(mark).map(|count| CallResult::number(count.load(Relaxed)))
        });
        count.unwrap_or(CallResult::Error(Errno::EINVAL))
    }
}

fn counted(result: Result<usize>) -> CallResult {
    result.map_or_else(CallResult::Error, CallResult::number)
}

fn descriptor(result: Result<Fd>) -> CallResult {
    result.map_or_else(CallResult::Error, |descriptor| CallResult::number(descriptor.0))
}

fn set(result: Result<SigSet>) -> CallResult {
    result.map_or_else(CallResult::Error, CallResult::Set)
}

fn disposition(result: Result<SigAction>) -> CallResult {
    result.map_or_else(CallResult::Error, |old| CallResult::Done(done(&old.disposition)))
}

const fn resource(limited: LimitedResource) -> Resource {
    match limited {
        LimitedResource::Cpu => Resource::Cpu,
        LimitedResource::Processes => Resource::Processes,
        LimitedResource::PendingSignals => Resource::PendingSignals,
        LimitedResource::Descriptors => Resource::Descriptors,
    }
}
