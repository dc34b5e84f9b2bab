//! Terminals: their sessions, errors, two ends, and hang-up.

use tontine_unix::{Errno, Fd, Modes, Pid, SigAction, SigSet, Signal, Sys, Termios, WaitStatus};

use crate::children::threaded;
use crate::jobs::scene::{
    Gate, SELF, change, end, everywhere, everywhere_and_on_linux, foreground_sleeper, fork, ignore,
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
fn stopped_foreground_group_with_parent_gets_only_sighup() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (stopped, go, handled) = (Gate::new(sys), Gate::new(sys), Gate::new(sys));
        let (ready, number) = (Gate::new(sys), Gate::new(sys));
        let first = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let (_controlling, terminal) = sys.openpty().unwrap();
            sys.set_controlling(terminal).unwrap();
            ignore(sys, Signal::TTOU);
            let carer = fork(sys, move |sys| {
                sys.setpgid(SELF, SELF).unwrap();
                let member = fork(sys, move |sys| {
                    report(sys, handled, SigSet::of(&[Signal::HUP]));
                    ready.open(sys);
                    sleep_on(sys);
                });
                sys.setpgid(member, member).unwrap();
                ready.pass(sys);
                sys.tcsetpgrp(terminal, member).unwrap();
                stop(sys, member);
                stopped.send(sys, 1);
                go.pass(sys);
                rest(sys);
                assert_eq!(news(sys, member), None, "still stopped");
                sys.kill(member.into(), Some(Signal::CONT)).unwrap();
                assert_eq!(change(sys, member), WaitStatus::Continued);
                assert_eq!(reported(sys, handled), Signal::HUP);
                kill(sys, member);
            });
            assert_eq!(stopped.receive(sys), 1);
            number.send(sys, carer.number());
        });
        assert_eq!(end(sys, first), WaitStatus::Exited(0));
        let carer = number.receive_pid(sys);
        go.open(sys);
        assert_eq!(inherited_end(sys, carer), WaitStatus::Exited(0));
    });
}

#[test]
fn hang_up_signals_leader_then_foreground_on_leader_exit() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (numbers, handled) = (Gate::new(sys), Gate::new(sys));
        let first = fork(sys, move |sys| {
            sys.setsid().unwrap();
            report(sys, handled, SigSet::of(&[Signal::HUP, Signal::CONT]));
            let (controlling, terminal) = sys.openpty().unwrap();
            sys.set_controlling(terminal).unwrap();
            ignore(sys, Signal::TTOU);
            let member = fork(sys, move |sys| {
                sys.close(controlling).unwrap();
                sys.sigaction(Signal::HUP, Some(tontine_unix::SigAction::DEFAULT)).unwrap();
                numbers.open(sys);
                sleep_on(sys);
            });
            sys.setpgid(member, member).unwrap();
            sys.tcsetpgrp(terminal, member).unwrap();
            numbers.pass(sys);
            sys.close(controlling).unwrap();
            let both = SigSet::from_iter([reported(sys, handled), reported(sys, handled)]);
            assert_eq!(both, SigSet::of(&[Signal::HUP, Signal::CONT]));
            rest(sys);
            assert_eq!(news(sys, member), None, "no signal before the leader exits");
            numbers.send(sys, member.number());
        });
        let member = end_of_leader(sys, first, numbers);
        assert_eq!(end(sys, member), WaitStatus::Signaled(Signal::HUP, false));
    });
}

fn end_of_leader(sys: &dyn Sys, first: Pid, numbers: Gate) -> Pid {
    assert_eq!(end(sys, first), WaitStatus::Exited(0));
    numbers.receive_pid(sys)
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

/// §7.2.3: a thread changes the group of its process while another thread reads from the
/// background. The reader receives SIGTTIN, whichever group it is in by then, and never sleeps as
/// if it were in the foreground.
#[test]
fn background_reader_gets_sigttin_during_group_changes() {
    everywhere(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            for _ in 0..3 {
                let reader = fork(sys, move |sys| {
                    let home = sys.getpgrp();
                    sys.setpgid(SELF, SELF).unwrap();
                    // The friend's group is not the foreground group: the parent's group is.
                    let friend = leader(sys);
                    let mover = threaded(sys, move |sys| {
                        for _ in 0..20 {
                            sys.setpgid(SELF, friend).unwrap();
                            sys.setpgid(SELF, sys.getpid()).unwrap();
                        }
                    });
                    sys.sigaction(Signal::TTIN, Some(SigAction::handler(|_, _| {}))).unwrap();
                    for _ in 0..10 {
                        assert_eq!(sys.read(terminal, &mut [0; 8]), Err(Errno::EINTR));
                    }
                    sys.join(mover).unwrap();
                    sys.kill(friend.into(), Some(Signal::KILL)).unwrap();
                    assert!(end(sys, friend).is_terminated());
                    assert_ne!(home, sys.getpgrp());
                });
                assert_eq!(end(sys, reader), WaitStatus::Exited(0));
            }
        });
    });
}
