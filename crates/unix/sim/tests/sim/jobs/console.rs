//! Consoles: terminals whose controlling end is outside the system.

use std::time::Duration;

use tontine_unix::{Fd, SigAction, Signal, WaitStatus};
use tontine_unix_sim::{Console, Virtual};

use crate::jobs::scene::{CAT, Gate, SELF, change, end, fork, ignore, rest, sleep_on, with};

/// Reads output until `text` appears, and discards the output up to the end of `text`.
fn await_text(console: &Console, seen: &mut Vec<u8>, place: &str, text: &[u8]) {
    for _ in 0..600 {
        seen.extend(console.output(Duration::from_millis(100)));
        if let Some(at) = seen.windows(text.len()).position(|window| window == text) {
            seen.drain(..at + text.len());
            return;
        }
    }
    panic!("{place}: no {:?} in {:?}", text.escape_ascii(), seen.escape_ascii().to_string());
}

#[test]
fn console_input_line_and_interrupt_reach_the_program() {
    let console = Console::new();
    with(
        |builder| builder.console(&console),
        |place| {
            let mut seen = Vec::new();
            await_text(&console, &mut seen, place, b"who? ");
            console.input(b"tontine\r");
            await_text(&console, &mut seen, place, b"hello tontine\r\n");
            await_text(&console, &mut seen, place, b"sleeping");
            console.input(b"\x03");
            await_text(&console, &mut seen, place, b"bye");
        },
        |sys| {
            let me = sys.getpid();
            assert_eq!((sys.tcgetsid(Fd::STDIN), sys.tcgetpgrp(Fd::STDOUT)), (Ok(me), Ok(me)));
            sys.write(Fd::STDOUT, b"who? ").unwrap();
            let mut line = [0; 64];
            let read = sys.read(Fd::STDIN, &mut line).unwrap();
            sys.write(Fd::STDERR, b"hello ").unwrap();
            sys.write(Fd::STDOUT, &line[..read]).unwrap();
            ignore(sys, Signal::TTOU);
            let child = fork(sys, |sys| {
                sys.setpgid(SELF, SELF).unwrap();
                sys.tcsetpgrp(Fd::STDIN, sys.getpid()).unwrap();
                sys.write(Fd::STDOUT, b"sleeping").unwrap();
                sleep_on(sys);
            });
            assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::INT, false));
            sys.tcsetpgrp(Fd::STDIN, sys.getpgrp()).unwrap();
            sys.write(Fd::STDOUT, b"bye").unwrap();
        },
    );
}

#[test]
fn console_suspend_stops_job_until_continued() {
    let console = Console::new();
    with(
        |builder| builder.console(&console),
        |place| {
            let mut seen = Vec::new();
            await_text(&console, &mut seen, place, b"ready");
            console.input(b"\x1a");
            await_text(&console, &mut seen, place, b"again");
            console.input(b"x\r\x04");
        },
        |sys| {
            ignore(sys, Signal::TTOU);
            let ready = Gate::new(sys);
            let child = fork(sys, move |sys| {
                sys.sigaction(Signal::TTOU, Some(SigAction::DEFAULT)).unwrap();
                ready.pass(sys);
                sys.write(Fd::STDOUT, b"ready").unwrap();
                sys.exec(CAT, &["cat"]).map(|_| ()).unwrap();
            });
            sys.setpgid(child, child).unwrap();
            sys.tcsetpgrp(Fd::STDIN, child).unwrap();
            ready.open(sys);
            assert_eq!(change(sys, child), WaitStatus::Stopped(Signal::TSTP));
            sys.tcsetpgrp(Fd::STDIN, sys.getpgrp()).unwrap();
            sys.write(Fd::STDOUT, b"again").unwrap();
            sys.tcsetpgrp(Fd::STDIN, child).unwrap();
            sys.killpg(child, Some(Signal::CONT)).unwrap();
            assert_eq!(end(sys, child), WaitStatus::Exited(0));
        },
    );
}

#[test]
fn console_writer_waits_while_output_is_unread() {
    const MUCH: usize = 300_000;
    let console = Console::new();
    with(
        |builder| builder.console(&console),
        |place| {
            let mut seen = 0;
            while seen < MUCH {
                let piece = console.output(Duration::from_secs(60));
                assert!(!piece.is_empty(), "{place}: no more after {seen} bytes");
                seen += piece.len();
            }
            console.input(b"\r");
        },
        |sys| {
            let piece = [b'x'; MUCH / 10];
            for _ in 0..10 {
                assert_eq!(sys.write(Fd::STDOUT, &piece), Ok(piece.len()));
                rest(sys);
            }
            assert_eq!(sys.read(Fd::STDIN, &mut [0; 8]), Ok(1));
        },
    );
    let _echo = console.output(Duration::ZERO);
}

#[test]
fn console_output_is_readable_after_the_run() {
    // Slightly more than the console's buffer holds. The terminal holds the rest when the program
    // ends.
    const WRITTEN: usize = (1 << 16) + 1100;
    let console = Console::new();
    let unix = Virtual::builder().console(&console).build().unwrap();
    let report = unix.run(|sys| i32::from(sys.write(Fd::STDOUT, &[b'x'; WRITTEN]) != Ok(WRITTEN)));
    assert_eq!(report.status, Some(WaitStatus::Exited(0)));
    assert_eq!(console.output(Duration::ZERO).len(), WRITTEN);
}
