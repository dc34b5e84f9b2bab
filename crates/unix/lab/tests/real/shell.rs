//! Tests of the shell at a terminal, with a user that types and reads.
//!
//! The user is also a program, written against [`Sys`]. It never waits for a fixed time, but types
//! once the output shows that a program has reached the required state.

use tontine_unix::{Fd, Linux, Pid, SigAction, Signal, Sys, WaitStatus};
use tontine_unix_lab::shell::{Launch, call, execute, log_in, program_names, shell};
use tontine_unix_sim::{Executor, Virtual};

const PROMPT: &str = "tontine$ ";
/// Timeout in seconds of a wait by the user.
const TIMEOUT_S: u32 = 60;
/// Number of schedules per session.
const SEEDS: u64 = 5;

/// The user at the controlling end of the terminal.
struct User<'a> {
    sys: &'a dyn Sys,
    terminal: Fd,
    shell: Pid,
    seen: String,
    /// Number of bytes of `seen` that the test has checked.
    looked: usize,
}

impl User<'_> {
    fn types(&mut self, text: &str) {
        let written = self.sys.write(self.terminal, text.as_bytes());
        assert_eq!(written, Ok(text.len()), "the terminal accepts the input");
    }

    /// Types a line at the prompt.
    fn enters(&mut self, line: &str) {
        self.sees(PROMPT);
        self.types(&format!("{line}\n"));
        self.sees("\r\n");
    }

    /// Reads until `text` appears after the part already checked; returns the output before it.
    fn sees(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen[self.looked..].find(text) {
                let before = self.seen[self.looked..][..at].to_owned();
                self.looked += at + text.len();
                return before;
            }
            let mut buffer = [0; 4096];
            match self.sys.read(self.terminal, &mut buffer) {
                Ok(n) if n > 0 => self.seen += &String::from_utf8_lossy(&buffer[..n]),
                end => self.fail(&format!("expected {text:?}, found {end:?}")),
            }
        }
    }

    /// Ends the test with a message, because the message of a panic in a forked process would be
    /// lost.
    fn fail(&self, why: &str) -> ! {
        let text = format!("{why}\nseen: {}\nchecked: {} bytes\n", self.seen, self.looked);
        if self.sys.write(Fd::STDERR, text.as_bytes()).is_err() {
            // A virtual system has no standard error, but its processes run in this process.
            eprint!("{text}");
        }
        self.sys.exit(1)
    }

    /// Asserts the status of the previous line.
    fn expects_status(&mut self, status: i32) {
        self.enters("echo status $?");
        self.sees(&format!("status {status}\r\n"));
    }

    /// Runs a program in the foreground and waits until it reports that it has started.
    fn starts(&mut self) {
        self.enters("catch USR1");
        self.sees("catches {SIGUSR1}\r\n");
    }

    /// Waits until the shell has ended.
    fn expects_end(&mut self, status: i32) {
        let waited = self.sys.waitpid(self.shell.into(), Default::default());
        let waited = waited.map(|found| found.map(|found| found.status));
        if waited != Ok(Some(WaitStatus::Exited(status))) {
            self.fail(&format!("expected the shell to end with {status}, found {waited:?}"));
        }
    }
}

/// Runs a shell and a user at a new terminal of `sys`.
fn session(sys: &dyn Sys, launch: Launch, user: fn(&mut User)) -> i32 {
    sys.sigaction(Signal::ALRM, Some(SigAction::handler(|_, _| ()))).unwrap();
    sys.alarm(TIMEOUT_S);
    let (controlling, terminal) = sys.openpty().unwrap();
    let shell = sys.fork(move |sys| {
        sys.close(controlling).unwrap();
        log_in(sys, terminal).unwrap();
        shell(sys, &["shell".to_owned()], launch)
    });
    sys.close(terminal).unwrap();
    let shell = shell.unwrap();
    user(&mut User { sys, terminal: controlling, shell, seen: String::new(), looked: 0 });
    0
}

/// Runs the session with the registered programs on Linux and on both executors of a virtual
/// system.
fn everywhere(user: fn(&mut User)) {
    on_linux_with(call, user);
    for seed in 0..SEEDS {
        on_virtual(Executor::Simulated { seed }, user);
    }
    on_virtual(Executor::Parallel, user);
}

fn on_virtual(executor: Executor, user: fn(&mut User)) {
    let builder = Virtual::builder().executor(executor).processors(2);
    let builder = program_names().fold(builder, |builder, name| builder.program(name, call));
    let report = builder.build().unwrap().run(move |sys| session(sys, execute, user));
    assert_eq!(report.status, Some(WaitStatus::Exited(0)), "{executor:?}: {report:?}");
}

/// Runs the session on Linux, in its own process.
fn on_linux_with(launch: Launch, user: fn(&mut User)) {
    let linux = Linux::new().unwrap();
    let sys: &dyn Sys = &linux;
    let child = sys.fork(move |sys| session(sys, launch, user)).unwrap();
    let waited = sys.waitpid(child.into(), Default::default()).unwrap().unwrap();
    assert_eq!(waited.status, WaitStatus::Exited(0));
}

#[test]
fn pipeline_passes_bytes_and_ends_with_reader() {
    everywhere(|user| {
        user.enters("seq 2 | cat | cat");
        user.sees("1\r\n2\r\n");
        user.enters("yes | head 2");
        user.sees("y\r\ny\r\n");
        user.enters("nothing | cat");
        user.sees("tontine: no such program: nothing\r\n");
        user.enters("cat | nothing");
        user.types("\x04");
        user.expects_status(127);
    });
}

#[test]
fn shell_on_linux_runs_programs_from_files() {
    on_linux_with(execute, |user| {
        user.enters("seq 3 | /usr/bin/wc -l");
        user.sees("3\r\n");
        user.enters("nothing");
        user.sees("tontine: no such program: nothing\r\n");
        user.expects_status(127);
    });
}

#[test]
fn interrupt_terminates_foreground_job_but_not_shell() {
    everywhere(|user| {
        user.starts();
        user.types("\x03");
        user.sees("^C");
        user.expects_status(130);
        user.sees(PROMPT);
        user.types("half a line\x03");
        user.sees("^C");
        // A shell that was not yet reading shows its new prompt after this newline.
        user.types("\n");
        user.expects_status(130);
    });
}

#[test]
fn terminal_signals_do_not_affect_shell() {
    everywhere(|user| {
        user.sees(PROMPT);
        user.types("\x1c\x1a");
        user.sees("^Z");
        user.types("kill -QUIT $$; kill -TERM $$; kill -TSTP $$; kill -TTIN $$; echo alive\n");
        user.sees("\nalive\r\n");
    });
}

#[test]
fn shell_help_lists_all_programs() {
    everywhere(|user| {
        user.enters("help");
        user.sees("fg [%n]  ");
        for name in program_names() {
            user.sees(&format!("\n  {name} "));
        }
    });
}

#[test]
fn quit_terminates_foreground_job_with_message() {
    everywhere(|user| {
        user.starts();
        user.types("\x1c");
        user.sees("^\\Killed (SIGQUIT");
        user.expects_status(131);
    });
}

#[test]
fn stopped_job_continues_in_foreground() {
    everywhere(|user| {
        user.starts();
        user.types("\x1a");
        user.sees("^Z\r\n[1]+ Stopped              catch USR1\r\n");
        user.expects_status(148);
        user.enters("jobs");
        user.sees("[1]+ Stopped");
        user.enters("kill -USR1 %1");
        user.enters("fg");
        user.sees("catch USR1\r\n");
        user.sees("caught SIGUSR1\r\n");
        user.types("\x03");
        user.expects_status(130);
        user.enters("fg");
        user.sees("tontine: no current job\r\n");
    });
}

#[test]
fn stopped_job_continues_in_background_and_is_killed() {
    everywhere(|user| {
        user.starts();
        user.types("\x1a");
        user.sees("Stopped");
        user.enters("bg");
        user.sees("[1]+ Running              catch USR1 &\r\n");
        user.enters("kill -USR1 %1");
        user.sees("caught SIGUSR1\r\n");
        user.types("kill %1; wait %1; echo status $?\n");
        user.sees("status 143\r\n[1]  Killed (SIGTERM)     catch USR1\r\n");
        user.enters("kill %1");
        user.sees("tontine: no such job: %1\r\n");
    });
}

#[test]
fn background_job_reading_terminal_stops() {
    everywhere(|user| {
        user.enters("cat &");
        user.sees("[1] ");
        user.enters("wait %1; echo status $?; jobs");
        user.sees("status 149\r\n[1]+ Stopped (SIGTTIN)    cat\r\n");
        user.enters("fg %1");
        user.sees("cat\r\n");
        user.types("typed\n");
        user.sees("typed\r\ntyped\r\n");
        user.types("\x04");
        user.expects_status(0);
    });
}

#[test]
fn pipeline_stops_and_continues_as_one_job() {
    everywhere(|user| {
        user.enters("catch USR1 | cat | cat");
        user.sees("process ");
        let catch = user.sees(" catches {SIGUSR1}\r\n");
        user.types("\x1a");
        user.sees("[1]+ Stopped              catch USR1 | cat | cat\r\n");
        user.enters(&format!("kill -USR1 {catch}; fg"));
        user.sees("caught SIGUSR1\r\n");
        user.types("\x03");
        user.expects_status(130);
    });
}

#[test]
fn interrupt_ends_wait_but_not_job() {
    everywhere(|user| {
        user.enters("catch USR1 &");
        user.sees("catches {SIGUSR1}\r\n");
        // Output of a background job appears after the prompt.
        user.types("wait\n");
        user.sees("wait\r\n");
        user.types("\x03");
        user.sees("^C");
        user.types("\n");
        user.expects_status(130);
        user.enters("jobs");
        user.sees("[1]+ Running              catch USR1 &\r\n");
    });
}

#[test]
fn exit_ends_shell_with_stopped_jobs() {
    everywhere(|user| {
        user.starts();
        user.types("\x1a");
        user.sees("Stopped");
        user.enters("exit 3");
        user.expects_end(3);
    });
}

#[test]
fn end_of_input_ends_shell() {
    everywhere(|user| {
        user.enters("false");
        user.sees(PROMPT);
        user.types("\x04");
        user.expects_end(1);
    });
}

#[test]
fn hang_up_ends_shell() {
    everywhere(|user| {
        user.starts();
        user.sys.close(user.terminal).unwrap();
        user.expects_end(129);
    });
}

#[test]
fn shell_reports_invalid_commands_with_reason() {
    everywhere(|user| {
        for (line, answer) in [
            ("fg %3", "no such job: %3"),
            ("jobs | cat", "`jobs` acts on the shell itself and cannot be part of a pipeline"),
            ("kill -NO %1", "unknown signal `NO`"),
            ("echo |", "expected a command after `|`"),
            ("cat > x", "`>`: the shell has no files to read from or write to"),
            ("kill", "usage: kill [-SIG] %n|pid…"),
            ("wait 1", "no such job: 1"),
        ] {
            user.enters(line);
            user.sees(&format!("tontine: {answer}"));
        }
    });
}
