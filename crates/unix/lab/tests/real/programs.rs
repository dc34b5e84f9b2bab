//! Tests of the shell's programs and lists without a terminal: the output and status of `shell -c`.

use tontine_unix::{Errno, Fd, Linux, SigAction, Signal, Sys, WaitStatus};
use tontine_unix_lab::shell::{call, shell};

/// Returns the output of the commands, standard error included, and the shell's status.
fn outcome(commands: &'static str) -> (String, i32) {
    let linux = Linux::new().unwrap();
    let sys: &dyn Sys = &linux;
    let (read, write) = sys.pipe().unwrap();
    let child = sys.fork(move |sys| {
        sys.sigaction(Signal::PIPE, Some(SigAction::DEFAULT)).unwrap();
        sys.close(read).unwrap();
        sys.dup2(write, Fd::STDOUT).unwrap();
        sys.dup2(write, Fd::STDERR).unwrap();
        sys.close(write).unwrap();
        let arguments = ["shell", "-c", commands].map(String::from);
        shell(sys, &arguments, call)
    });
    sys.close(write).unwrap();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match sys.read(read, &mut buffer) {
            Ok(0) => break,
            Ok(n) => text.extend(&buffer[..n]),
            Err(Errno::EINTR) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
    sys.close(read).unwrap();
    let ended = sys.waitpid(child.unwrap().into(), Default::default()).unwrap().unwrap();
    let WaitStatus::Exited(status) = ended.status else { panic!("{}", ended.status) };
    (String::from_utf8(text).unwrap(), status)
}

#[test]
fn shell_commands_have_expected_output_and_status() {
    for (commands, text, status) in [
        ("echo a 'b  c' ''", "a b  c \n", 0),
        ("seq 20 | head 2", "1\n2\n", 0),
        ("seq 20 | head 0", "", 0),
        ("seq 100000 | cat | head 1", "1\n", 0),
        ("sleep 0.01", "", 0),
        ("cat x", "cat: usage: cat\n", 2),
        ("head -n", "head: usage: head lines\n", 2),
        ("sleep -1", "sleep: usage: sleep seconds\n", 2),
        ("catch", "catch: usage: catch SIG…\n", 2),
        ("catch KILL", "catch: EINVAL: invalid argument\n", 1),
        ("false; echo $?", "1\n", 0),
        ("true | false", "", 1),
        ("false | true", "", 0),
        ("none", "tontine: no such program: none\n", 127),
        ("exit 300; echo no", "", 44),
        ("echo a; ;", "tontine: expected a command before `;`\n", 2),
        ("false &  wait; echo $?", "0\n", 0),
    ] {
        assert_eq!(outcome(commands), (text.to_string(), status), "{commands}");
    }
}
