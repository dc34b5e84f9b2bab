//! Terminals: their sessions, errors, two ends, and hang-up.

use tontine_unix::{Errno, Fd, Modes, Pid, SigSet, Signal, Sys, Termios, WaitStatus};

use crate::jobs::scene::{
    Gate, MISSING, SELF, change, end, everywhere_and_on_linux, foreground_sleeper, fork, ignore,
    inherited_end, kill, leader, news, report, reported, rest, sleep_on, sleeper, stop,
    with_terminal,
};

/// Reads all output up to `ending`.
fn see(sys: &dyn Sys, controlling: Fd, ending: &[u8]) -> Vec<u8> {
    let mut seen = Vec::new();
    while !seen.ends_with(ending) {
        let mut buffer = [0; 64];
        let read = sys.read(controlling, &mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..read]);
    }
    seen
}

#[test]
fn session_leader_acquires_a_controlling_terminal() {
    everywhere_and_on_linux(|sys| {
        let leader = fork(sys, |sys| {
            sys.setsid().unwrap();
            let (controlling, terminal) = sys.openpty().unwrap();
            assert_eq!(sys.open_tty(), Err(Errno::ENXIO));
            assert_eq!(sys.tcgetpgrp(terminal), Err(Errno::ENOTTY));
            assert_eq!(sys.tcgetsid(terminal), Err(Errno::ENOTTY));
            sys.set_controlling(terminal).unwrap();
            sys.set_controlling(terminal).unwrap();
            let me = sys.getpid();
            assert_eq!((sys.tcgetpgrp(terminal), sys.tcgetsid(terminal)), (Ok(me), Ok(me)));
            assert_eq!(sys.tcgetpgrp(controlling), Ok(me), "through the other end");
            let tty = sys.open_tty().unwrap();
            assert_eq!(sys.tcgetsid(tty), Ok(me));
            let (_, second) = sys.openpty().unwrap();
            assert_eq!(
                sys.set_controlling(second),
                Err(Errno::EPERM),
                "the session has a terminal"
            );
            ignore(sys, Signal::HUP);
        });
        assert_eq!(end(sys, leader), WaitStatus::Exited(0));
    });
}

#[test]
fn set_controlling_without_right_returns_eperm() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let follower = fork(sys, |sys| {
                let (_, other) = sys.openpty().unwrap();
                assert_eq!(sys.set_controlling(other), Err(Errno::EPERM));
            });
            assert_eq!(end(sys, follower), WaitStatus::Exited(0));
            let stranger = fork(sys, move |sys| {
                sys.setsid().unwrap();
                assert_eq!(sys.set_controlling(terminal), Err(Errno::EPERM));
            });
            assert_eq!(end(sys, stranger), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn terminal_calls_return_enotty_or_ebadf() {
    everywhere_and_on_linux(|sys| {
        let (from, _to) = sys.pipe().unwrap();
        for (descriptor, errno) in [(from, Errno::ENOTTY), (Fd(77), Errno::EBADF)] {
            assert_eq!(sys.tcgetattr(descriptor), Err(errno));
            assert_eq!(sys.tcsetattr(descriptor, &Termios::default()), Err(errno));
            assert_eq!(sys.tcgetpgrp(descriptor), Err(errno));
            assert_eq!(sys.tcsetpgrp(descriptor, sys.getpgrp()), Err(errno));
            assert_eq!(sys.tcgetsid(descriptor), Err(errno));
            assert_eq!(sys.set_controlling(descriptor), Err(errno));
        }
    });
}

#[test]
fn tcsetpgrp_refuses_invalid_and_foreign_groups() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let ready = Gate::new(sys);
            let stranger = fork(sys, move |sys| {
                sys.setsid().unwrap();
                assert_eq!(sys.tcsetpgrp(terminal, sys.getpgrp()), Err(Errno::ENOTTY));
                ready.open(sys);
                sleep_on(sys);
            });
            ready.pass(sys);
            assert_eq!(sys.tcsetpgrp(terminal, stranger), Err(Errno::EPERM));
            assert_eq!(sys.tcsetpgrp(terminal, MISSING), Err(Errno::ESRCH));
            assert_eq!(sys.tcsetpgrp(terminal, Pid::number_only(-1)), Err(Errno::EINVAL));
            kill(sys, stranger);
        });
    });
}

#[test]
fn terminal_attributes_are_shared_by_both_ends() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let mut termios = sys.tcgetattr(terminal).unwrap();
            assert_eq!(termios, Termios::default());
            termios.modes = Modes::ISIG | Modes::TOSTOP;
            termios.interrupt = b'q';
            sys.tcsetattr(terminal, &termios).unwrap();
            assert_eq!(sys.tcgetattr(controlling), Ok(termios));
            let child = fork(sys, move |sys| assert_eq!(sys.tcgetattr(terminal), Ok(termios)));
            assert_eq!(end(sys, child), WaitStatus::Exited(0));
            let member = foreground_sleeper(sys, terminal);
            sys.write(controlling, b"q").unwrap();
            assert_eq!(end(sys, member), WaitStatus::Signaled(Signal::INT, false));
        });
    });
}

#[test]
fn terminal_lines_are_edited_and_echoed() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            sys.write(controlling, b"ab\x7fc\r").unwrap();
            assert_eq!(see(sys, controlling, b"\n"), b"ab\x08 \x08c\r\n");
            let mut line = [0; 16];
            assert_eq!(sys.read(terminal, &mut line), Ok(3));
            assert_eq!(&line[..3], b"ac\n");
            sys.write(controlling, b"ab\x15c\n").unwrap();
            assert_eq!(sys.read(terminal, &mut line), Ok(2));
            assert_eq!(&line[..2], b"c\n");
            assert_eq!(sys.write(terminal, b"x\n"), Ok(2));
            assert!(see(sys, controlling, b"x\r\n").ends_with(b"x\r\n"));
        });
    });
}

#[test]
fn terminal_read_returns_one_line_or_zero_at_end_of_input() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            sys.write(controlling, b"one\ntwo\n\x04ab\x04").unwrap();
            let mut line = [0; 16];
            assert_eq!(sys.read(terminal, &mut line), Ok(4));
            assert_eq!(sys.read(terminal, &mut line[..2]), Ok(2));
            assert_eq!(sys.read(terminal, &mut line), Ok(2));
            assert_eq!(sys.read(terminal, &mut line), Ok(0), "the end of input");
            assert_eq!(sys.read(terminal, &mut line), Ok(2), "a line without a newline");
            assert_eq!(&line[..2], b"ab");
        });
    });
}

#[test]
fn leader_exit_frees_terminal_and_hangs_up_foreground() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (controlling, terminal) = sys.openpty().unwrap();
        let tell = Gate::new(sys);
        let first = fork(sys, move |sys| {
            sys.setsid().unwrap();
            sys.set_controlling(terminal).unwrap();
            let bystander = leader(sys);
            let member = foreground_sleeper(sys, terminal);
            tell.tell(sys, member.number());
            tell.tell(sys, bystander.number());
        });
        assert_eq!(end(sys, first), WaitStatus::Exited(0));
        assert_eq!(end(sys, tell.ask_pid(sys)), WaitStatus::Signaled(Signal::HUP, false));
        let bystander = tell.ask_pid(sys);
        rest(sys);
        assert_eq!(news(sys, bystander), None);
        kill(sys, bystander);
        assert_eq!(sys.tcgetpgrp(controlling), Ok(SELF), "no group is in the foreground");
        let second = fork(sys, move |sys| {
            sys.setsid().unwrap();
            sys.set_controlling(terminal).unwrap();
            assert_eq!(sys.tcgetsid(terminal), Ok(sys.getpid()));
            ignore(sys, Signal::HUP);
        });
        assert_eq!(end(sys, second), WaitStatus::Exited(0));
    });
}

#[test]
fn stopped_foreground_group_with_parent_gets_only_sighup() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (tell, go, told) = (Gate::new(sys), Gate::new(sys), Gate::new(sys));
        let (ready, number) = (Gate::new(sys), Gate::new(sys));
        let first = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let (_controlling, terminal) = sys.openpty().unwrap();
            sys.set_controlling(terminal).unwrap();
            ignore(sys, Signal::TTOU);
            let carer = fork(sys, move |sys| {
                sys.setpgid(SELF, SELF).unwrap();
                let member = fork(sys, move |sys| {
                    report(sys, told, SigSet::of(&[Signal::HUP]));
                    ready.open(sys);
                    sleep_on(sys);
                });
                sys.setpgid(member, member).unwrap();
                ready.pass(sys);
                sys.tcsetpgrp(terminal, member).unwrap();
                stop(sys, member);
                tell.tell(sys, 1);
                go.pass(sys);
                rest(sys);
                assert_eq!(news(sys, member), None, "still stopped");
                sys.kill(member.into(), Some(Signal::CONT)).unwrap();
                assert_eq!(change(sys, member), WaitStatus::Continued);
                assert_eq!(reported(sys, told), Signal::HUP);
                kill(sys, member);
            });
            assert_eq!(tell.ask(sys), 1);
            number.tell(sys, carer.number());
        });
        assert_eq!(end(sys, first), WaitStatus::Exited(0));
        let carer = number.ask_pid(sys);
        go.open(sys);
        assert_eq!(inherited_end(sys, carer), WaitStatus::Exited(0));
    });
}

#[test]
fn hang_up_signals_leader_then_foreground_on_leader_exit() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (tell, told) = (Gate::new(sys), Gate::new(sys));
        let first = fork(sys, move |sys| {
            sys.setsid().unwrap();
            report(sys, told, SigSet::of(&[Signal::HUP, Signal::CONT]));
            let (controlling, terminal) = sys.openpty().unwrap();
            sys.set_controlling(terminal).unwrap();
            ignore(sys, Signal::TTOU);
            let member = fork(sys, move |sys| {
                sys.close(controlling).unwrap();
                sys.sigaction(Signal::HUP, Some(tontine_unix::SigAction::DEFAULT)).unwrap();
                tell.open(sys);
                sleep_on(sys);
            });
            sys.setpgid(member, member).unwrap();
            sys.tcsetpgrp(terminal, member).unwrap();
            tell.pass(sys);
            sys.close(controlling).unwrap();
            let both = SigSet::from_iter([reported(sys, told), reported(sys, told)]);
            assert_eq!(both, SigSet::of(&[Signal::HUP, Signal::CONT]));
            rest(sys);
            assert_eq!(news(sys, member), None, "no signal before the leader exits");
            tell.tell(sys, member.number());
        });
        let member = tell_member(sys, first, tell);
        assert_eq!(end(sys, member), WaitStatus::Signaled(Signal::HUP, false));
    });
}

fn tell_member(sys: &dyn Sys, first: Pid, tell: Gate) -> Pid {
    assert_eq!(end(sys, first), WaitStatus::Exited(0));
    tell.ask_pid(sys)
}

#[test]
fn hung_up_terminal_reads_zero_and_refuses_other_calls() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            ignore(sys, Signal::HUP);
            let reader = fork(sys, move |sys| {
                sys.close(controlling).unwrap();
                // On Linux, a read that is blocked when the controlling end closes returns EIO
                // instead.
                let read = sys.read(terminal, &mut [0; 8]);
                assert!(matches!(read, Ok(0) | Err(Errno::EIO)), "{read:?}");
            });
            rest(sys);
            sys.close(controlling).unwrap();
            assert_eq!(end(sys, reader), WaitStatus::Exited(0));
            assert_eq!(sys.read(terminal, &mut [0; 8]), Ok(0));
            assert_eq!(sys.write(terminal, b"x"), Err(Errno::EIO));
            assert_eq!(sys.tcgetattr(terminal), Err(Errno::EIO));
            assert_eq!(sys.tcgetpgrp(terminal), Err(Errno::EIO));
            assert_eq!(sys.tcsetpgrp(terminal, sys.getpgrp()), Err(Errno::ENOTTY));
            assert_eq!(sys.open_tty(), Err(Errno::ENXIO));
        });
    });
}

#[test]
fn controlling_end_returns_eio_when_terminal_is_closed() {
    everywhere_and_on_linux(|sys| {
        let (controlling, terminal) = sys.openpty().unwrap();
        sys.dup2(terminal, Fd(40)).unwrap();
        sys.write(terminal, b"last").unwrap();
        sys.close(terminal).unwrap();
        let reader = fork(sys, move |sys| {
            sys.close(Fd(40)).unwrap();
            let mut seen = [0; 8];
            assert_eq!(sys.read(controlling, &mut seen), Ok(4));
            assert_eq!(sys.read(controlling, &mut seen), Err(Errno::EIO));
        });
        rest(sys);
        assert_eq!(news(sys, reader), None);
        sys.close(Fd(40)).unwrap();
        assert_eq!(end(sys, reader), WaitStatus::Exited(0));
    });
}

#[test]
fn full_terminal_blocks_writer_until_read() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let writer = fork(sys, move |sys| {
                assert_eq!(sys.write(terminal, &[b'x'; 60_000]), Ok(60_000));
            });
            let mut seen = 0;
            let mut buffer = [0; 512];
            while seen < 60_000 {
                seen += sys.read(controlling, &mut buffer).unwrap();
            }
            assert_eq!(end(sys, writer), WaitStatus::Exited(0));
            let idle = sleeper(sys);
            kill(sys, idle);
        });
    });
}
