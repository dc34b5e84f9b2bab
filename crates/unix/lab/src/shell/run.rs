//! Runs command lines: starts pipelines, waits for them, and passes the terminal on.

use tontine_unix::{
    Children, Errno, Fd, Pid, Result, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions,
};

use super::Shell;
use super::job::JobStatus;
use super::parse::parse;
use super::say::{CommandError, complain, say};

impl Shell<'_> {
    /// Runs a line. Stores the last status in [`Shell::status`].
    pub(super) fn execute(&mut self, line: &str) {
        let pipelines = match parse(line, &|_| None) {
            Ok(pipelines) => pipelines,
            Err(text) => return self.refuse(&CommandError::wrong(text)),
        };
        for pipeline in pipelines {
            // The variables have the values of this moment.
            let again = parse(&pipeline.text, &|variable| self.value(variable));
            let commands = again.ok().and_then(|mut one| one.pop()).map(|one| one.commands);
            let commands = commands.expect("a part of a valid line is valid");
            let done = match self.builtin(&commands, pipeline.background) {
                Some(done) => done,
                None => self.start(&pipeline.text, commands, pipeline.background),
            };
            match done {
                Ok(status) => self.status = status,
                Err(error) => self.refuse(&error),
            }
            self.note_interrupt();
            if self.over.is_some() {
                return;
            }
        }
    }

    /// Reports an error.
    fn refuse(&mut self, error: &CommandError) {
        complain(self.sys, "tontine", &error.text);
        self.status = error.status;
    }

    /// Sets `$?` if the shell itself was interrupted.
    pub(super) fn note_interrupt(&mut self) {
        if self.signals.take_interrupt() {
            self.status = 128 + Signal::INT.number();
        }
    }

    fn value(&self, variable: char) -> Option<String> {
        match variable {
            '?' => Some(self.status.to_string()),
            '$' => Some(self.sys.getpid().to_string()),
            _ => None,
        }
    }

    /// Starts a pipeline. Waits for it if it is in the foreground.
    fn start(
        &mut self,
        text: &str,
        commands: Vec<Vec<String>>,
        background: bool,
    ) -> std::result::Result<i32, CommandError> {
        let mut members = Vec::new();
        let started = self.fork_all(commands, background, &mut members);
        let Some(&last) = members.last() else { return started.map(|()| 0) };
        let number = self.jobs.add(&members, text);
        if let Err(error) = started {
            // A partial pipeline must not run, so its processes are killed and waited for.
            let _ = self.sys.killpg(members[0], Some(Signal::KILL));
            self.foreground(number);
            return Err(error);
        }
        if !background {
            return Ok(self.foreground(number));
        }
        if self.interactive {
            let _ = say(self.sys, format_args!("[{number}] {last}\n"));
        }
        Ok(0)
    }

    /// Creates a process for each command, all in one group.
    fn fork_all(
        &self,
        commands: Vec<Vec<String>>,
        background: bool,
        members: &mut Vec<Pid>,
    ) -> std::result::Result<(), CommandError> {
        let sys = self.sys;
        let terminal = self.terminal.filter(|_| !background);
        let last = commands.len() - 1;
        let mut input = None;
        for (at, arguments) in commands.into_iter().enumerate() {
            let name = arguments[0].clone();
            let leader = members.first().copied();
            let pipe = if at < last { sys.pipe().map(Some) } else { Ok(None) };
            let made = pipe.and_then(|pipe| {
                Ok((self.fork_one(arguments, leader, terminal, input, pipe)?, pipe))
            });
            input.map(|read| sys.close(read));
            let (pid, pipe) = made.map_err(CommandError::call(name))?;
            input = pipe.map(|(read, _)| read);
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

    /// Creates the process of a command, which enters its job's group, and makes this group the
    /// foreground group of the terminal. The shell does the same, because neither may continue
    /// before both steps are done, and either may run first.
    fn fork_one(
        &self,
        arguments: Vec<String>,
        leader: Option<Pid>,
        terminal: Option<Fd>,
        input: Option<Fd>,
        pipe: Option<(Fd, Fd)>,
    ) -> Result<Pid> {
        let sys = self.sys;
        let (launch, mask, changed) = (self.launch, self.mask, self.signals.changed);
        // The shell's handle of the group may not be valid in another process.
        let leader = leader.map(|leader| leader.number());
        let child = move |sys: &dyn Sys| {
            let group = Pid::number_only(leader.unwrap_or(sys.getpid().number()));
            let _ = sys.setpgid(Pid::number_only(0), group);
            if let Some(terminal) = terminal {
                let _ = hand_over(sys, terminal, group);
            }
            for signal in changed.iter() {
                let _ = sys.sigaction(signal, Some(SigAction::DEFAULT));
            }
            let _ = sys.sigprocmask(Some((SigmaskHow::Set, mask)));
            let output = pipe.map(|(_, write)| write);
            for (from, to) in [(input, Fd::STDIN), (output, Fd::STDOUT)] {
                if let Some(from) = from.filter(|from| *from != to) {
                    let _ = sys.dup2(from, to).and_then(|()| sys.close(from));
                }
            }
            pipe.map(|(read, _)| sys.close(read));
            launch(sys, &arguments)
        };
        // A signal that arrives before the child has set its own dispositions stays pending until
        // then.
        let _ = sys.sigprocmask(Some((SigmaskHow::Block, SigSet::ALL)));
        let forked = sys.fork(child);
        let _ = sys.sigprocmask(Some((SigmaskHow::Set, self.mask)));
        if let Some((read, write)) = pipe {
            let _ = sys.close(write);
            if forked.is_err() {
                let _ = sys.close(read);
            }
        }
        forked
    }

    /// Waits until a job in the foreground has ended or stopped, and takes the terminal back.
    pub(super) fn foreground(&mut self, number: usize) -> i32 {
        let sys = self.sys;
        if let Some(signal) = self.wait_while_running(number, SigSet::of(&[Signal::HUP])) {
            return 128 + signal.number();
        }
        if let Some(terminal) = self.terminal {
            let _ = hand_over(sys, terminal, sys.getpgrp());
            if let Some(modes) = self.modes {
                let _ = sys.tcsetattr(terminal, &modes);
            }
        }
        let state = self.jobs.state(number);
        // If the terminal has hung up, the shell notices that when it reads.
        let _ = match state {
            JobStatus::Stopped(_) => {
                say(sys, "\n".to_owned() + &self.jobs.report(|job| job.number == number))
            }
            JobStatus::Killed(Signal::INT, _) => say(sys, "\n"),
            JobStatus::Killed(signal, _) if signal != Signal::PIPE => {
                say(sys, format_args!("{state}\n"))
            }
            _ => Ok(()),
        };
        self.jobs.0.retain(|job| job.number != number || !job.state().is_over());
        state.status()
    }

    /// Returns the terminal to the group that had it before the shell.
    pub(super) fn give_terminal_back(&self) {
        if let Some(terminal) = self.terminal.filter(|_| self.sys.getpgrp().number() != self.group)
        {
            let before = Pid::number_only(self.group);
            let _ = hand_over(self.sys, terminal, before);
            let _ = self.sys.setpgid(Pid::number_only(0), before);
        }
    }

    /// Continues a stopped job. A foreground job receives the terminal.
    pub(super) fn resume(
        &mut self,
        number: usize,
        foreground: bool,
    ) -> std::result::Result<(), CommandError> {
        let group = self.running_or_stopped(number)?.group;
        if let Some(terminal) = self.terminal.filter(|_| foreground) {
            let _ = hand_over(self.sys, terminal, group);
        }
        self.jobs.continued(number);
        let sent = self.sys.killpg(group, Some(Signal::CONT));
        sent.map_err(CommandError::call(format_args!("%{number}")))
    }

    /// Sleeps until a job has ended or stopped. Returns the signal if one of `signals` was caught
    /// before that.
    pub(super) fn wait_while_running(&mut self, number: usize, signals: SigSet) -> Option<Signal> {
        let sys = self.sys;
        // A signal that is blocked from the check until the sleep cannot be lost between the two.
        let _ = sys.sigprocmask(Some((SigmaskHow::Block, self.signals.caught)));
        let mut caught = None;
        while self.jobs.state(number) == JobStatus::Running && caught.is_none() {
            match self.look() {
                Err(Errno::ECHILD) => self.jobs.lost(),
                Ok(true) => {}
                _ => {
                    caught = self.signals.arrived().intersection(signals).first();
                    if caught.is_none() {
                        sys.sigsuspend(self.mask);
                    }
                }
            }
        }
        let _ = sys.sigprocmask(Some((SigmaskHow::Set, self.mask)));
        caught
    }

    /// Records all children that changed state. Does not wait.
    pub(super) fn look_around(&mut self) {
        while matches!(self.look(), Ok(true)) {}
    }

    /// Records one child that changed state. Returns `false` if no child changed state.
    fn look(&mut self) -> Result<bool> {
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
        for _ in 0..TRIES {
            if self.sys.tcgetpgrp(Fd::STDIN).ok()?.number() == self.sys.getpgrp().number() {
                return Some(Fd::STDIN);
            }
            self.sys.killpg(Pid::number_only(0), Some(Signal::TTIN)).ok()?;
        }
        None
    }
}

/// Makes a group the foreground group of the terminal, even if the caller is in the background.
pub(super) fn hand_over(sys: &dyn Sys, terminal: Fd, group: Pid) -> Result<()> {
    let mask = sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::TTOU]))))?;
    let done = sys.tcsetpgrp(terminal, group);
    sys.sigprocmask(Some((SigmaskHow::Set, mask)))?;
    done
}
