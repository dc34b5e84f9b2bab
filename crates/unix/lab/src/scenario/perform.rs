//! Makes a [`SystemCall`] on a [`Sys`](tontine_unix::Sys), and returns its result.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tontine_unix::{
    Children, Errno, Fd, Pid, PriorityScope, Ptrace, Resource, Result, SigAction, SigSet, SigStack,
    SigmaskHow, SignalTarget, SpawnGroup, SpawnRequest, Tid,
};

use super::call::{Argument, CallName as Name, ExecTarget, Spawning, SystemCall};
use super::context::ThreadFrame;
use super::outcome::{CallResult, done, limit};
use super::program::{image, process, thread};
use super::step_control::SpawnKind;
use super::term::Term;
use super::word::{LimitedResource, TargetKind, TraceRequest};

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
        use Argument::*;
        let sys = self.sys;
        match (call.name, &call.arguments[..]) {
            (name, []) => self.plain(name),
            (name, [Value(value)]) => self.on_value(name, self.value(value)),
            (name, [Set(set)]) => self.on_set(name, *set),
            (name, [Value(first), Value(second)]) => {
                let (first, second) = (self.value(first), self.value(second));
                match name {
                    Name::Setpgid => sys.setpgid(first, second).into(),
                    Name::Tcsetpgrp => sys.tcsetpgrp(Fd(first.number()), second).into(),
                    _ => sys.dup2(Fd(first.number()), Fd(second.number())).into(),
                }
            }
            (Name::Raise, [Signal(signal)]) => sys.raise(*signal).into(),
            (Name::Fault, [Signal(signal)]) => sys.fault(*signal).into(),
            (_, [Signal(signal)]) => disposition(sys.sigaction(*signal, None)),
            (name, [Signal(signal), Flags(flags)]) => {
                let ignores = name == Name::Ignore;
                let action = if ignores { SigAction::IGNORE } else { SigAction::DEFAULT };
                disposition(sys.sigaction(*signal, Some(action.with_flags(*flags))))
            }
            (Name::Wait3, [Options(options)]) => sys.wait3(*options).into(),
            (name, [Target(kind, value), Options(options)]) => {
                let value = || self.target_value(value.as_ref());
                let children = match kind {
                    TargetKind::One => Children::One(value()),
                    TargetKind::Group => Children::Group(value()),
                    TargetKind::OwnGroup => Children::OwnGroup,
                    _ => Children::Any,
                };
                match name {
                    Name::Wait => sys.waitpid(children, *options).into(),
                    Name::Waitid => sys.waitid(children, *options).into(),
                    _ => sys.wait4(children, *options).into(),
                }
            }
            (Name::Fork, [Block(name)]) => {
                let mut child = self.context.forked(name);
                child.ordinal = self.expect(SpawnKind::Process);
                let ordinal = child.ordinal;
                let made = sys.fork(move |sys| process(sys, child));
                self.made(ordinal, made.ok());
                made.into()
            }
            (_, [Block(name)]) => {
                let ordinal = self.expect(SpawnKind::Thread);
                let made = sys.thread_boxed(thread(self.context, name, ordinal));
                self.made(ordinal, made.ok().map(|Tid(number)| Pid::number_only(number)));
                number(made.map(|thread| thread.0))
            }
            (_, [Path(path)]) => self.exec(path),
            (_, [Path(path), Spawning(spawning)]) => self.spawn(path, spawning),
            (_, [Target(kind, value), MaybeSignal(signal)]) => {
                let value = || self.target_value(value.as_ref());
                let target = match kind {
                    TargetKind::Group => SignalTarget::Group(value()),
                    TargetKind::OwnGroup => SignalTarget::OwnGroup,
                    TargetKind::Everyone => SignalTarget::Everyone,
                    _ => SignalTarget::Process(value()),
                };
                sys.kill(target, *signal).into()
            }
            (_, [Value(group), MaybeSignal(signal)]) => {
                sys.killpg(self.value(group), *signal).into()
            }
            (_, [Value(process), Value(thread), MaybeSignal(signal)]) => {
                sys.tgkill(self.value(process), Tid(self.number(thread)), *signal).into()
            }
            (_, [Value(process), MaybeSignal(signal), Value(value)]) => {
                sys.sigqueue(self.value(process), *signal, self.number(value)).into()
            }
            (_, [Set(set), Duration(timeout)]) => self.take(*set, Some(self.lasting(*timeout))),
            (Name::Sleep, [Duration(duration)]) => {
                sys.nanosleep(self.lasting(*duration)).map_err(|(errno, _left)| errno).into()
            }
            (_, [Duration(duration)]) => self.compute(*duration),
            (name, [Variable(first), Variable(second)]) => {
                let made = if name == Name::Pipe { sys.pipe() } else { sys.openpty() };
                made.map(|(one, other)| {
                    self.context.set(first, Pid::number_only(one.0));
                    self.context.set(second, Pid::number_only(other.0));
                })
                .into()
            }
            (_, [Value(descriptor), MaybeValue(most)]) => {
                let most = most.as_ref().map_or(READ, |most| self.number(most));
                self.read(Fd(self.number(descriptor)), most)
            }
            (_, [Value(descriptor), Text(text)]) => {
                number(sys.write(Fd(self.number(descriptor)), text.as_bytes()))
            }
            (_, [Value(terminal), ModeChanges(on, off)]) => {
                let terminal = Fd(self.number(terminal));
                let changed = sys.tcgetattr(terminal).and_then(|mut termios| {
                    termios.modes = termios.modes.union(*on).difference(*off);
                    sys.tcsetattr(terminal, &termios)
                });
                changed.into()
            }
            (_, [Resource(limited)]) => CallResult::Limit(sys.getrlimit(resource(*limited))),
            (_, [Resource(limited), Bounds(bounds)]) => {
                sys.setrlimit(resource(*limited), limit(*bounds)).into()
            }
            (_, [Target(kind, value)]) => number(sys.getpriority(self.owner(*kind, value))),
            (_, [Target(kind, value), Value(nice)]) => {
                sys.setpriority(self.owner(*kind, value), self.number(nice)).into()
            }
            (_, [AnyOrValue(processor)]) => {
                let processor = processor.as_ref().map(|term| self.number(term));
                match processor.map(usize::try_from).transpose() {
                    Ok(processor) => sys.place(processor).into(),
                    Err(_) => CallResult::Error(Errno::EINVAL),
                }
            }
            (_, [MaybeValue(size)]) => {
                let size = size.as_ref().map(|size| self.number(size));
                let size = size.map(|size| usize::try_from(size).unwrap_or(0));
                let stack = size.map(|size| SigStack { size, on_stack: false });
                number(sys.sigstack(stack).map(|old| old.size))
            }
            (_, [Request(request, process, signal)]) => {
                let process = self.target_value(process.as_ref());
                let request = match request {
                    TraceRequest::TraceMe => Ptrace::TraceMe,
                    TraceRequest::Attach => Ptrace::Attach(process),
                    TraceRequest::Continue => Ptrace::Continue(process, *signal),
                    TraceRequest::Kill => Ptrace::Kill(process),
                    TraceRequest::Detach => Ptrace::Detach(process, *signal),
                };
                sys.ptrace(request).into()
            }
            _ => unreachable!("the parser reads the arguments that the table gives a call"),
        }
    }

    fn plain(&self, call: Name) -> CallResult {
        let sys = self.sys;
        match call {
            Name::Getpid => CallResult::Value(sys.getpid()),
            Name::Getppid => CallResult::Value(sys.getppid()),
            Name::Gettid => CallResult::number(sys.gettid().0),
            Name::Getpgrp => CallResult::Value(sys.getpgrp()),
            Name::Setsid => sys.setsid().into(),
            Name::Sigpending => CallResult::Set(sys.sigpending()),
            Name::Getmask => mask(sys.sigprocmask(None)),
            Name::Pause => CallResult::Error(sys.pause()),
            Name::Opentty => number(sys.open_tty().map(|descriptor| descriptor.0)),
            Name::Yield => {
                sys.sched_yield();
                CallResult::Ok
            }
            Name::Poll => {
                sys.poll();
                CallResult::Ok
            }
            Name::Processor => CallResult::number(sys.processor()),
            Name::Now => {
                CallResult::number(sys.now().saturating_sub(self.context.began).as_millis())
            }
            Name::Getuid => CallResult::number(sys.getuid()),
            Name::Geteuid => CallResult::number(sys.geteuid()),
            _ => CallResult::number(self.used().as_millis()),
        }
    }

    fn on_value(&self, call: Name, value: Pid) -> CallResult {
        let sys = self.sys;
        let amount = value.number();
        let terminal = Fd(amount);
        match call {
            Name::Exit => sys.exit(amount),
            Name::Alarm => CallResult::number(self.alarm(amount.cast_unsigned())),
            Name::Getpgid => sys.getpgid(value).into(),
            Name::Getsid => sys.getsid(value).into(),
            Name::Join => sys.join(Tid(amount)).into(),
            Name::Close => sys.close(terminal).into(),
            Name::Controlling => sys.set_controlling(terminal).into(),
            Name::Tcgetpgrp => sys.tcgetpgrp(terminal).into(),
            Name::Tcgetsid => sys.tcgetsid(terminal).into(),
            Name::Tcgetattr => sys
                .tcgetattr(terminal)
                .map_or_else(CallResult::Error, |termios| CallResult::Modes(termios.modes)),
            Name::Setuid => sys.setuid(amount.cast_unsigned()).into(),
            Name::Mark => {
                sys.mark(usize::try_from(amount).unwrap_or(0));
                CallResult::Ok
            }
            Name::Counts => self.counts(amount),
            Name::Profil => self.profil(amount),
            _ => sys.set_subreaper(amount != 0).into(),
        }
    }

    fn on_set(&self, call: Name, signals: SigSet) -> CallResult {
        let sys = self.sys;
        let old = |bits: u32| CallResult::Set(SigSet::from_bits(bits.into()));
        let low = signals.bits() as u32;
        match call {
            Name::Block => mask(sys.sigprocmask(Some((SigmaskHow::Block, signals)))),
            Name::Unblock => mask(sys.sigprocmask(Some((SigmaskHow::Unblock, signals)))),
            Name::Setmask => mask(sys.sigprocmask(Some((SigmaskHow::Set, signals)))),
            Name::Sigsuspend => CallResult::Error(sys.sigsuspend(signals)),
            Name::Sigwait => sys
                .sigwait(signals)
                .map_or_else(CallResult::Error, |signal| CallResult::Taken(signal, None)),
            Name::Sigwaitinfo => self.take(signals, None),
            Name::Sigblock => old(sys.sigblock(low)),
            Name::Sigsetmask => old(sys.sigsetmask(low)),
            _ => CallResult::Error(sys.sigpause(low)),
        }
    }

    /// Returns the value of a target, or 0 if it has none.
    fn target_value(&self, value: Option<&Term>) -> Pid {
        value.map_or(Pid::number_only(0), |value| self.value(value))
    }

    fn owner(&self, kind: TargetKind, value: &Option<Term>) -> PriorityScope {
        let value = self.target_value(value.as_ref());
        match kind {
            TargetKind::Process => PriorityScope::Process(value),
            TargetKind::Group => PriorityScope::Group(value),
            _ => PriorityScope::User(value.number().cast_unsigned()),
        }
    }

    fn take(&self, set: SigSet, timeout: Option<Duration>) -> CallResult {
        let taken = self.sys.sigtimedwait(set, timeout);
        taken.map_or_else(CallResult::Error, |info| CallResult::Taken(info.signal, Some(info)))
    }

    fn exec(&self, path: &ExecTarget) -> CallResult {
        let control = self.context.run.control.as_ref();
        let ordinal = control.map(|control| control.executes(self.sys));
        let (path, arguments) = image(self.context, path, ordinal);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Err(errno) = self.sys.exec(&path, &arguments);
        if let (Some(control), Some(ordinal)) = (control, ordinal) {
            control.exec_failed(ordinal);
        }
        CallResult::Error(errno)
    }

    fn spawn(&self, path: &ExecTarget, spawning: &Spawning) -> CallResult {
        let descriptor = |term| Fd(self.number(term));
        let ordinal = self.expect(SpawnKind::Process);
        let (path, arguments) = image(self.context, path, ordinal);
        let Spawning { group, session, mask, defaults, descriptors } = spawning;
        let spawn = SpawnRequest {
            path,
            arguments,
            group: match group {
                SpawnGroup::Parents => SpawnGroup::Parents,
                SpawnGroup::Own => SpawnGroup::Own,
                SpawnGroup::Of(group) => SpawnGroup::Of(self.value(group)),
            },
            session: *session,
            mask: *mask,
            defaults: *defaults,
            descriptors: descriptors
                .iter()
                .map(|(from, to)| (descriptor(from), descriptor(to)))
                .collect(),
        };
        let made = self.sys.spawn(&spawn);
        self.made(ordinal, made.ok());
        made.into()
    }

    fn read(&self, from: Fd, most: i32) -> CallResult {
        let most = usize::try_from(most.clamp(0, MOST_READ)).unwrap_or(0);
        let mut buffer = vec![0; most];
        self.sys.read(from, &mut buffer).map_or_else(CallResult::Error, |read| {
            buffer.truncate(read);
            CallResult::Bytes(buffer)
        })
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

fn number(result: Result<impl TryInto<i32>>) -> CallResult {
    result.map_or_else(CallResult::Error, CallResult::number)
}

fn mask(result: Result<SigSet>) -> CallResult {
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
