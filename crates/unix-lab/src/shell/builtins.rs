//! The commands that act on the shell itself; [`HELP`] lists them.

use tontine_unix::{Pid, SigSet, Signal, SignalTarget};

use super::Shell;
use super::complaint::CommandError;
use super::job::JobStatus;
use super::programs;
use super::run::Woken;
use super::say::say;

/// The text of `help`, before the list of programs.
const HELP: &str = "\
A line is a pipeline `program | program`, or several joined by ; & && or ||.
Words are quoted with ' and \", and $? $! $$ are replaced. There are no files.

  jobs                   lists running and stopped jobs
  fg [%n]                brings a job to the foreground
  bg [%n]                continues a stopped job in the background
  kill [-SIG] %n|pid…    sends a signal, by default SIGTERM; -pid is a group
  kill -l                lists the signals
  wait [%n|pid…]         waits until jobs end or stop
  trap 'commands' SIG…   runs commands when a signal arrives; '' ignores it,
                         - restores the default
  help                   prints this text
  exit [n]               ends the shell

A job is named by its number %1, the current one by %% or %+, the previous one
by %-, and the one whose line starts with a name by %name. ^C interrupts the job
in the foreground, ^Z stops it, ^\\ ends it with a core dump, ^D ends its input.

Programs of this shell, in addition to `ps`:

";

const KILL: &str = "kill [-SIG] %n|pid…";
const TRAP: &str = "trap ['commands'|'' |-] SIG…";

type BuiltinResult = Result<i32, CommandError>;

impl Shell<'_> {
    /// Runs a command that acts on the shell itself. Returns `None` for other commands.
    pub(super) fn builtin(
        &mut self,
        commands: &[Vec<String>],
        background: bool,
    ) -> Option<BuiltinResult> {
        let run = |name: &str| -> Option<fn(&mut Self, &[&str]) -> BuiltinResult> {
            Some(match name {
                "jobs" => Self::jobs,
                "fg" => Self::fg,
                "bg" => Self::bg,
                "kill" => Self::kill,
                "wait" => Self::wait,
                "trap" => Self::trap,
                "exit" => Self::exit,
                "help" => Self::help,
                _ => return None,
            })
        };
        let (at, found) = commands
            .iter()
            .enumerate()
            .find_map(|(at, words)| run(&words[0]).map(|found| (at, found)))?;
        if commands.len() > 1 || background {
            return Some(Err(CommandError::InPipeline(commands[at][0].clone())));
        }
        let arguments: Vec<&str> = commands[0][1..].iter().map(String::as_str).collect();
        Some(found(self, &arguments))
    }

    fn say_lines(&self, lines: impl IntoIterator<Item = String>) -> BuiltinResult {
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        say(self.sys, text).map_err(CommandError::call("standard output"))?;
        Ok(0)
    }

    fn help(&mut self, _: &[&str]) -> BuiltinResult {
        self.say_lines([HELP.to_owned() + programs::help().trim_end()])
    }

    fn jobs(&mut self, arguments: &[&str]) -> BuiltinResult {
        if !arguments.is_empty() {
            return Err(CommandError::Usage("jobs"));
        }
        self.look_around();
        let lines = self.jobs.lines();
        self.say_lines(lines)
    }

    /// Returns the job that the arguments name.
    fn meant(&mut self, arguments: &[&str], usage: &'static str) -> Result<usize, CommandError> {
        self.look_around();
        match arguments {
            [] => self.jobs.find(None),
            [job] => self.jobs.find(Some(job)),
            _ => Err(CommandError::Usage(usage)),
        }
    }

    fn fg(&mut self, arguments: &[&str]) -> BuiltinResult {
        let number = self.meant(arguments, "fg [%n]")?;
        if self.terminal.is_none() {
            return Err(CommandError::NoTerminal);
        }
        if self.jobs.state(number).is_over() {
            return Err(CommandError::Over(number));
        }
        self.say_lines(self.jobs.get(number).map(|job| job.command.clone()))?;
        self.send_on(number, true)?;
        Ok(self.foreground(number))
    }

    fn bg(&mut self, arguments: &[&str]) -> BuiltinResult {
        let number = self.meant(arguments, "bg [%n]")?;
        if self.jobs.state(number).is_over() {
            return Err(CommandError::Over(number));
        }
        self.send_on(number, false)?;
        self.background = self.jobs.get(number).and_then(|job| job.members().next_back());
        let line = self.jobs.line(number);
        self.say_lines([line])
    }

    fn kill(&mut self, arguments: &[&str]) -> BuiltinResult {
        let (signal, targets) = match arguments {
            ["-l"] => {
                return self.say_lines(Signal::all().map(|s| format!("{:2} {s}", s.number())));
            }
            ["-s", name, targets @ ..] => (name.parse()?, targets),
            ["--", targets @ ..] => (Signal::TERM, targets),
            [first, targets @ ..] if first.starts_with('-') => (first[1..].parse()?, targets),
            targets => (Signal::TERM, targets),
        };
        let targets = targets.strip_prefix(&["--"]).unwrap_or(targets);
        if targets.is_empty() {
            return Err(CommandError::Usage(KILL));
        }
        for target in targets {
            self.send(signal, target)?;
        }
        Ok(0)
    }

    fn send(&mut self, signal: Signal, target: &str) -> Result<(), CommandError> {
        let wrong = CommandError::call(target);
        if !target.starts_with('%') {
            let number = target.parse().map_err(|_| CommandError::Usage(KILL))?;
            return self.sys.kill(SignalTarget::of(number), Some(signal)).map_err(wrong);
        }
        let number = self.meant(&[target], KILL)?;
        let Some(job) = self.jobs.get(number) else { return Err(CommandError::Over(number)) };
        self.sys.killpg(job.group, Some(signal)).map_err(wrong)?;
        let wakes = matches!(signal, Signal::TERM | Signal::HUP | Signal::CONT | Signal::KILL);
        if job.state().is_stopped() && wakes {
            // A stopped job would receive the first two signals only after it is continued.
            let _ = self.sys.killpg(job.group, Some(Signal::CONT));
            self.jobs.sent_on(number);
        }
        Ok(())
    }

    fn wait(&mut self, arguments: &[&str]) -> BuiltinResult {
        let mut numbers = Vec::new();
        for argument in arguments {
            numbers.push(match argument.parse() {
                Ok(pid) => {
                    let none = || CommandError::NoJob((*argument).to_owned());
                    self.jobs.of_process(pid).ok_or_else(none)?
                }
                Err(_) => self.jobs.find(Some(argument))?,
            });
        }
        let all = numbers.is_empty();
        if all {
            numbers.extend(self.jobs.iter().map(|job| job.number));
        }
        let mut status = 0;
        for number in numbers {
            while self.jobs.state(number) == JobStatus::Running {
                match self.wait_for_change(SigSet::ALL) {
                    Woken::Child => {}
                    Woken::Signal(signal) => return Ok(128 + signal.number()),
                    Woken::Childless => self.jobs.lost(),
                }
            }
            status = self.jobs.state(number).status();
        }
        Ok(if all { 0 } else { status })
    }

    fn trap(&mut self, arguments: &[&str]) -> BuiltinResult {
        let (commands, names) = match arguments {
            [] => return self.say_lines(self.traps.lines()),
            [_] => return Err(CommandError::Usage(TRAP)),
            [commands, names @ ..] => (*commands, names),
        };
        super::parse::parse(commands)?;
        for name in names {
            let signal: Signal = name.parse()?;
            let done = match commands {
                "-" => self.traps.unset(self.sys, signal),
                _ => self.traps.set(self.sys, signal, commands),
            };
            done.map_err(CommandError::call(signal))?;
        }
        Ok(0)
    }

    fn exit(&mut self, arguments: &[&str]) -> BuiltinResult {
        let status = match arguments {
            [] => self.status,
            [status] => status.parse().map_err(|_| CommandError::Usage("exit [n]"))?,
            _ => return Err(CommandError::Usage("exit [n]")),
        };
        self.leave_with(status);
        Ok(self.status)
    }

    /// Ends the shell after this line. If jobs are stopped and the previous line did not already
    /// cause a warning, warns the user instead.
    pub(super) fn leave_with(&mut self, status: i32) {
        self.look_around();
        let told = self.told_at.is_some_and(|line| line + 1 == self.lines);
        let stopped = self.jobs.iter().any(|job| job.state().is_stopped());
        if self.interactive && stopped && !told {
            let _ = say(self.sys, "There are stopped jobs.\n");
            self.told_at = Some(self.lines);
        } else {
            self.over = Some(status);
        }
    }

    /// Sends SIGHUP to the jobs, because the terminal has hung up.
    pub(super) fn hang_up(&mut self) {
        self.look_around();
        for job in self.jobs.iter().filter(|job| !job.state().is_over()) {
            let group: Pid = job.group;
            let _ = self.sys.killpg(group, Some(Signal::HUP));
            if job.state().is_stopped() {
                let _ = self.sys.killpg(group, Some(Signal::CONT));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HELP, programs};

    #[test]
    fn help_fits_80_columns() {
        let text = HELP.to_owned() + &programs::help();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
