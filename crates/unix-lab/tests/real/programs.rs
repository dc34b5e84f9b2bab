//! Tests of the shell's programs and lists without a terminal: the output and status of `shell -c`.

use tontine_unix::{Errno, Fd, Linux, SigAction, Signal, Sys, WaitStatus};
use tontine_unix_lab::shell::{call, programs, shell_with};

/// Returns the output of the commands, standard error included, and the shell's status.
fn outcome(commands: &'static str) -> (String, i32) {
    let linux = Linux::new().unwrap();
    let sys: &dyn Sys = &linux;
    let (read, write) = sys.pipe().unwrap();
    let shell = sys.fork(move |sys| {
        sys.sigaction(Signal::PIPE, Some(SigAction::DEFAULT)).unwrap();
        sys.close(read).unwrap();
        sys.dup2(write, Fd::STDOUT).unwrap();
        sys.dup2(write, Fd::STDERR).unwrap();
        sys.close(write).unwrap();
        let arguments = ["shell", "-c", commands].map(String::from);
        shell_with(sys, &arguments, &call(programs()))
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
    let ended = sys.waitpid(shell.unwrap().into(), Default::default()).unwrap().unwrap();
    let WaitStatus::Exited(status) = ended.status else { panic!("{}", ended.status) };
    (String::from_utf8(text).unwrap(), status)
}

fn check(cases: &[(&'static str, &str, i32)]) {
    for (commands, text, status) in cases {
        assert_eq!(outcome(commands), (text.to_string(), *status), "{commands}");
    }
}

#[test]
fn shell_programs_write_expected_output() {
    check(&[
        ("echo a 'b  c' ''", "a b  c \n", 0),
        ("seq 2", "1\n2\n", 0),
        ("seq -1 1", "-1\n0\n1\n", 0),
        ("seq 3 2", "", 0),
        ("seq 20 | head", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", 0),
        ("seq 20 | head -n 2", "1\n2\n", 0),
        ("seq 20 | head -n 0", "", 0),
        ("echo ' a b' | wc", "1 2 5\n", 0),
        ("echo -n | cat | cat", "-n\n", 0),
        ("seq 100000 | cat | wc", "100000 100000 588895\n", 0),
        ("yes a b | head -n 2", "a b\na b\n", 0),
        ("count 1", "1\n", 0),
        ("family 1", "1 processes: all have exited\n", 0),
        ("spin 0.01; sleep 0.01", "", 0),
    ]);
}

#[test]
fn shell_programs_print_usage_on_misuse() {
    check(&[
        ("cat x", "cat: usage: cat\n", 2),
        ("seq x", "seq: usage: seq [first] last\n", 2),
        ("head -n", "head: usage: head [-n lines]\n", 2),
        ("sleep", "sleep: usage: sleep seconds\n", 2),
        ("sleep -1", "sleep: usage: sleep seconds\n", 2),
        ("spin x", "spin: usage: spin [seconds]\n", 2),
        ("catch", "catch: usage: catch [-n times] SIG…\n", 2),
        ("family 0", "family: usage: family members (1 to 10000)\n", 2),
        ("family 10001", "family: usage: family members (1 to 10000)\n", 2),
        ("catch KILL", "catch: EINVAL: invalid argument\n", 1),
    ]);
}

#[test]
fn list_status_equals_status_of_last_run_command() {
    check(&[
        ("false; echo $?", "1\n", 0),
        ("true | false", "", 1),
        ("false | true", "", 0),
        ("false && echo no", "", 1),
        ("false && echo no || echo yes", "yes\n", 0),
        ("true || echo no && echo yes", "yes\n", 0),
        ("none", "tontine: no such program: none\n", 127),
        ("exit 300; echo no", "", 44),
        ("echo a; ;", "tontine: expected a command before `;`\n", 2),
        ("false &  wait $!; echo $?", "1\n", 0),
    ]);
}
