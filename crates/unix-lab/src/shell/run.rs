//! Runs command lines: starts pipelines, waits for them, and passes the terminal on.

use tontine_unix::{Children, Errno, Fd, Pid, SigSet, SigmaskHow, Signal, WaitOptions};

use super::Shell;
use super::child::{ShellCommand, hand_over};
use super::complaint::CommandError;
use super::job::JobStatus;
use super::parse::{Pipeline, ShellWord, Variable, When, parse};
use super::say::{complain, say};

/// The event that ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// A child changed state.
    Child,
    /// The shell caught one of the signals for which it also waited.
    Signal(Signal),
    /// The shell has no child.
    Childless,
}

impl Shell<'_> {
    /// Runs a line. Stores the last status in [`Shell::status`].
    pub(super) fn execute(&mut self, text: &str) {
        let steps = match parse(text) {
            Ok(steps) => steps,
            Err(error) => return self.refuse(&error.into()),
        };
        for step in steps {
            let wanted = match step.when {
                When::Always => true,
                When::Success => self.status == 0,
                When::Failure => self.status != 0,
            };
            if wanted && self.over.is_none() {
                self.pipeline(&step.pipeline);
                self.run_traps();
            }
        }
    }

    /// Reports an error.
    pub(super) fn refuse(&mut self, complaint: &CommandError) {
        complain(self.sys, "tontine", complaint);
        self.status = complaint.status();
    }

    /// Runs the commands of `trap` for the signals that arrived. An interrupt also sets `$?`.
    pub(super) fn run_traps(&mut self) {
        // Signals that these commands cause are handled by the next call, so that they cannot keep
        // the shell busy forever.
        let (arrived, due) = self.traps.due();
        if arrived.contains(Signal::INT) {
            self.status = 128 + Signal::INT.number();
        }
        for commands in due {
            let status = self.status;
            for step in parse(&commands).unwrap_or_default() {
                if self.over.is_none() {
                    self.pipeline(&step.pipeline);
                }
            }
            self.status = status;
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        let expand = |word: &ShellWord| word.expand(|variable| self.value(variable));
        let words = |command: &Vec<ShellWord>| command.iter().map(expand).collect();
        let commands: Vec<Vec<String>> = pipeline.commands.iter().map(words).collect();
        let done = match self.builtin(&commands, pipeline.background) {
            Some(done) => done,
            None => self.start(pipeline, commands),
        };
        match done {
            Ok(status) => self.status = status,
            Err(complaint) => self.refuse(&complaint),
        }
    }

    fn value(&self, variable: Variable) -> String {
        match variable {
            Variable::Status => self.status.to_string(),
            Variable::Background => self.background.map_or(String::new(), |pid| pid.to_string()),
            Variable::Shell => self.sys.getpid().to_string(),
        }
    }

    /// Starts a pipeline. Waits for it if it is in the foreground.
    fn start(
        &mut self,
        pipeline: &Pipeline,
        commands: Vec<Vec<String>>,
    ) -> Result<i32, CommandError> {
        let mut members = Vec::new();
        let started = self.fork_all(commands, pipeline.background, &mut members);
        let (Some(&group), Some(&last)) = (members.first(), members.last()) else {
            return started.map(|()| 0);
        };
        let number = self.jobs.add(group, members, &pipeline.text);
        if let Err(complaint) = started {
            // A partial pipeline must not run, so its processes are killed and waited for.
            let _ = self.sys.killpg(group, Some(Signal::KILL));
            self.foreground(number);
            return Err(complaint);
        }
        if pipeline.background {
            self.background = Some(last);
            if self.interactive {
                let _ = say(self.sys, format_args!("[{number}] {last}\n"));
            }
            return Ok(0);
        }
        Ok(self.foreground(number))
    }

    /// Creates a process for each command, all in one group.
    fn fork_all(
        &self,
        commands: Vec<Vec<String>>,
        background: bool,
        members: &mut Vec<Pid>,
    ) -> Result<(), CommandError> {
        let sys = self.sys;
        let terminal = self.terminal.filter(|_| !background);
        let count = commands.len();
        let mut input = None;
        for (at, arguments) in commands.into_iter().enumerate() {
            let pipe = if at + 1 < count { Some(sys.pipe()) } else { None };
            let pipe = pipe.transpose().map_err(CommandError::call("no pipe"));
            let made = pipe.and_then(|pipe| {
                let name = arguments[0].clone();
                let child = ShellCommand {
                    arguments,
                    launch: self.launch.clone(),
                    group: members.first().map(|leader| leader.number()),
                    terminal,
                    input,
                    output: pipe.map(|(_, write)| write),
                    close: pipe.map(|(read, _)| read),
                    defaults: self.traps.child_defaults(),
                    mask: self.mask,
                };
                // A signal that arrives before the child has set its own dispositions stays pending
                // until then.
                let _ = sys.sigprocmask(Some((SigmaskHow::Block, SigSet::ALL)));
                let forked = sys.fork(move |sys| child.run(sys));
                let _ = sys.sigprocmask(Some((SigmaskHow::Set, self.mask)));
                let next = pipe.map(|(read, write)| {
                    let _ = sys.close(write);
                    read
                });
                forked.map(|pid| (pid, next)).map_err(|errno| {
                    next.map(|read| sys.close(read));
                    CommandError::Call(name, errno)
                })
            });
            input.map(|read| sys.close(read));
            let (pid, next) = made?;
            input = next;
            members.push(pid);
            // The call may fail, because the child may have made the same call and called exec, or
            // may have ended.
            let _ = sys.setpgid(pid, members[0]);
            if let Some(terminal) = terminal {
                let _ = hand_over(sys, terminal, members[0]);
            }
        }
        Ok(())
    }

    /// Waits until a job in the foreground has ended or stopped, and takes the terminal back.
    pub(super) fn foreground(&mut self, number: usize) -> i32 {
        while self.jobs.state(number) == JobStatus::Running {
            match self.wait_for_change(SigSet::of(&[Signal::HUP])) {
                Woken::Child => {}
                Woken::Signal(_) if !self.traps.hung_up() => {}
                Woken::Signal(signal) => return 128 + signal.number(),
                Woken::Childless => self.jobs.lost(),
            }
        }
        let state = self.jobs.state(number);
        self.take_terminal_back(number);
        let shown = match state {
            JobStatus::Stopped(_) => {
                let line = self.jobs.told(number);
                say(self.sys, format_args!("\n{line}\n"))
            }
            JobStatus::Killed(Signal::INT, _) => say(self.sys, "\n"),
            JobStatus::Killed(Signal::PIPE, _) => Ok(()),
            JobStatus::Killed(..) => say(self.sys, format_args!("{state}\n")),
            JobStatus::Running | JobStatus::Done(_) => Ok(()),
        };
        // If the terminal has hung up, the shell notices that when it reads.
        let _ = shown;
        if state.is_over() {
            self.jobs.remove(number);
        }
        state.status()
    }

    /// Returns the terminal to the group that had it before the shell.
    pub(super) fn give_terminal_back(&self) {
        let before = Pid::number_only(self.group);
        if let Some(terminal) = self.terminal.filter(|_| self.sys.getpgrp().number() != self.group)
        {
            let _ = hand_over(self.sys, terminal, before);
            let _ = self.sys.setpgid(Pid::number_only(0), before);
        }
    }

    fn take_terminal_back(&mut self, number: usize) {
        let Some(terminal) = self.terminal else { return };
        let _ = hand_over(self.sys, terminal, self.sys.getpgrp());
        let left = self.sys.tcgetattr(terminal).ok();
        if let Some(job) = self.jobs.get_mut(number).filter(|job| job.state().is_stopped()) {
            job.modes = left;
        } else if self.jobs.state(number) == JobStatus::Done(0) {
            // If a program succeeded, the modes that it left are intended, as after stty(1).
            self.modes = left.or(self.modes);
        }
        if let Some(modes) = self.modes.filter(|modes| Some(*modes) != left) {
            let _ = self.sys.tcsetattr(terminal, &modes);
        }
    }

    /// Continues a stopped job. A foreground job receives the terminal with the modes that it left.
    pub(super) fn send_on(&mut self, number: usize, foreground: bool) -> Result<(), CommandError> {
        let Some(job) = self.jobs.get(number) else { return Err(CommandError::Over(number)) };
        let (group, modes, stopped) = (job.group, job.modes, job.state().is_stopped());
        if let Some(terminal) = self.terminal.filter(|_| foreground) {
            let _ = hand_over(self.sys, terminal, group);
            if let Some(modes) = modes.filter(|_| stopped) {
                let _ = self.sys.tcsetattr(terminal, &modes);
            }
        }
        self.jobs.sent_on(number);
        let sent = self.sys.killpg(group, Some(Signal::CONT));
        sent.map_err(CommandError::call(format_args!("%{number}")))
    }

    /// Sleeps until a child changes state or one of `signals` is caught. Returns immediately if
    /// either has already happened.
    pub(super) fn wait_for_change(&mut self, signals: SigSet) -> Woken {
        let sys = self.sys;
        // A signal that is blocked from the check until the sleep cannot be lost between the two.
        let _ = sys.sigprocmask(Some((SigmaskHow::Block, self.traps.caught())));
        let woken = loop {
            match self.look() {
                Ok(true) => break Woken::Child,
                Ok(false) => {}
                Err(Errno::ECHILD) => break Woken::Childless,
                Err(_) => {}
            }
            if let Some(signal) = self.traps.arrived().intersection(signals).first() {
                break Woken::Signal(signal);
            }
            sys.sigsuspend(self.mask);
        };
        let _ = sys.sigprocmask(Some((SigmaskHow::Set, self.mask)));
        woken
    }

    /// Records all children that changed state. Does not wait.
    pub(super) fn look_around(&mut self) {
        while matches!(self.look(), Ok(true)) {}
    }

    /// Records one child that changed state. Returns `false` if no child changed state.
    fn look(&mut self) -> Result<bool, Errno> {
        let options = WaitOptions::NOHANG | WaitOptions::STOPPED | WaitOptions::CONTINUED;
        let found = self.sys.waitpid(Children::Any, options)?;
        if let Some(child) = found {
            self.jobs.note(child.pid, child.status);
        }
        Ok(found.is_some())
    }

    /// Returns the terminal at which the shell was started, if the shell is in its foreground.
    ///
    /// In the background the shell stops, like every process that reads from a terminal.
    pub(super) fn find_terminal(&self) -> Option<Fd> {
        const TRIES: u32 = 100;
        let terminal = Fd::STDIN;
        for _ in 0..TRIES {
            if self.sys.tcgetpgrp(terminal).ok()?.number() == self.sys.getpgrp().number() {
                return Some(terminal);
            }
            self.sys.killpg(Pid::number_only(0), Some(Signal::TTIN)).ok()?;
        }
        None
    }
}
