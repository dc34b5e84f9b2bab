//! The commands that act on the shell itself; [`HELP`] lists them.

use tontine_unix::{SigSet, Signal, SignalTarget};

use super::Shell;
use super::job::Job;
use super::programs;
use super::say::{CommandError, say};

/// The text of `help`, before the list of programs.
const HELP: &str = "\
A line is a pipeline `program | program`, or several separated by ; or &.
Words are quoted with ' and \", and $? and $$ are replaced. There are no files.

  jobs                   lists running and stopped jobs
  fg [%n]                brings a job to the foreground
  bg [%n]                continues a stopped job in the background
  kill [-SIG] %n|pid…    sends a signal, by default SIGTERM; -pid is a group
  wait [%n]              waits until a job ends or stops
  help                   prints this text
  exit [n]               ends the shell

A job is named by its number %1, the current one by %%. ^C interrupts the job in
the foreground, ^Z stops it, ^\\ ends it with a core dump, ^D ends its input.

Programs of this shell, in addition to `ps`:

";

const KILL: &str = "kill [-SIG] %n|pid…";

type BuiltinResult = Result<i32, CommandError>;

fn usage(text: &str) -> CommandError {
    CommandError::wrong(format_args!("usage: {text}"))
}

impl Shell<'_> {
    /// Runs a command that acts on the shell itself. Returns `None` for other commands.
    pub(super) fn builtin(
        &mut self,
        commands: &[Vec<String>],
        background: bool,
    ) -> Option<BuiltinResult> {
        let run = |words: &Vec<String>| -> Option<fn(&mut Self, &[&str]) -> BuiltinResult> {
            Some(match &words[0][..] {
                "jobs" => Self::jobs,
                "fg" => Self::fg,
                "bg" => Self::bg,
                "kill" => Self::kill,
                "wait" => Self::wait,
                "exit" => Self::exit,
                "help" => Self::help,
                _ => return None,
            })
        };
        let (words, found) = commands.iter().find_map(|words| Some((words, run(words)?)))?;
        if commands.len() > 1 || background {
            return Some(Err(CommandError::wrong(format_args!(
                "`{}` acts on the shell itself and cannot be part of a pipeline or run in the \
                 background",
                words[0]
            ))));
        }
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        Some(found(self, &arguments))
    }

    fn say(&self, text: impl std::fmt::Display) -> BuiltinResult {
        say(self.sys, text).map_err(CommandError::call("standard output"))?;
        Ok(0)
    }

    fn help(&mut self, _: &[&str]) -> BuiltinResult {
        self.say(HELP.to_owned() + &programs::help())
    }

    fn jobs(&mut self, arguments: &[&str]) -> BuiltinResult {
        if !arguments.is_empty() {
            return Err(usage("jobs"));
        }
        self.look_around();
        let lines = self.jobs.report(|_| true);
        self.say(lines)
    }

    /// Returns the number of the job that the arguments name.
    fn named(&mut self, arguments: &[&str], form: &'static str) -> Result<usize, CommandError> {
        self.look_around();
        match arguments {
            [] => self.jobs.find("%%"),
            [job] => self.jobs.find(job),
            _ => Err(usage(form)),
        }
    }

    /// Returns a job that has not ended.
    pub(super) fn running_or_stopped(&self, number: usize) -> Result<&Job, CommandError> {
        let job = self.jobs.get(number).filter(|job| !job.state().is_over());
        job.ok_or_else(|| CommandError::failed(format_args!("job {number} has ended")))
    }

    fn fg(&mut self, arguments: &[&str]) -> BuiltinResult {
        let number = self.named(arguments, "fg [%n]")?;
        if self.terminal.is_none() {
            let text = "cannot bring a job to the foreground: the shell has no terminal";
            return Err(CommandError::failed(text));
        }
        self.say(format_args!("{}\n", self.running_or_stopped(number)?.command))?;
        self.resume(number, true)?;
        Ok(self.foreground(number))
    }

    fn bg(&mut self, arguments: &[&str]) -> BuiltinResult {
        let number = self.named(arguments, "bg [%n]")?;
        self.resume(number, false)?;
        let line = self.jobs.report(|job| job.number == number);
        self.say(line)
    }

    fn kill(&mut self, arguments: &[&str]) -> BuiltinResult {
        let (signal, targets) = match arguments {
            [first, targets @ ..] if first.starts_with('-') => {
                (first[1..].parse().map_err(CommandError::failed)?, targets)
            }
            targets => (Signal::TERM, targets),
        };
        if targets.is_empty() {
            return Err(usage(KILL));
        }
        for target in targets {
            self.send(signal, target)?;
        }
        Ok(0)
    }

    fn send(&mut self, signal: Signal, target: &str) -> Result<(), CommandError> {
        let wrong = CommandError::call(target);
        if !target.starts_with('%') {
            let number = target.parse().map_err(|_| usage(KILL))?;
            return self.sys.kill(SignalTarget::of(number), Some(signal)).map_err(wrong);
        }
        let number = self.named(&[target], KILL)?;
        let job = self.running_or_stopped(number)?;
        self.sys.killpg(job.group, Some(signal)).map_err(wrong)?;
        let wakes = matches!(signal, Signal::TERM | Signal::HUP | Signal::CONT | Signal::KILL);
        if job.state().is_stopped() && wakes {
            // A stopped job would receive the first two signals only after it is continued.
            let _ = self.sys.killpg(job.group, Some(Signal::CONT));
            self.jobs.continued(number);
        }
        Ok(())
    }

    fn wait(&mut self, arguments: &[&str]) -> BuiltinResult {
        let numbers = match arguments {
            [] => self.jobs.0.iter().map(|job| job.number).collect(),
            [job] => vec![self.jobs.find(job)?],
            _ => return Err(usage("wait [%n]")),
        };
        let mut status = 0;
        for number in numbers {
            let signals = SigSet::of(&[Signal::INT, Signal::HUP]);
            if let Some(signal) = self.wait_while_running(number, signals) {
                return Ok(128 + signal.number());
            }
            status = self.jobs.state(number).status();
        }
        Ok(if arguments.is_empty() { 0 } else { status })
    }

    fn exit(&mut self, arguments: &[&str]) -> BuiltinResult {
        let form = || usage("exit [n]");
        let status = match arguments {
            [] => self.status,
            [status] => status.parse().map_err(|_| form())?,
            _ => return Err(form()),
        };
        self.over = Some(status);
        Ok(status)
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
