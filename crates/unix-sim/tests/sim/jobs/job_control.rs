//! Job control: which processes may read, write and change a terminal, and the signals that the
//! terminal sends.

use tontine_unix::{Errno, Fd, Modes, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitStatus};

use crate::jobs::scene::{
    Gate, SELF, change, end, everywhere, everywhere_and_on_linux, foreground_sleeper, fork, ignore,
    kill, leader, news, report, reported, rest, sleeper, with_terminal,
};

const TTIN: SigSet = SigSet::of(&[Signal::TTIN]);
const TTOU: SigSet = SigSet::of(&[Signal::TTOU]);

/// Returns a child in a background group that runs `body`.
fn background(sys: &dyn Sys, body: impl FnOnce(&dyn Sys) + Send + 'static) -> Pid {
    let child = fork(sys, move |sys| {
        sys.setpgid(SELF, SELF).unwrap();
        body(sys);
    });
    let _ = sys.setpgid(child, child);
    child
}

/// Moves a group into the foreground and continues it.
fn foreground(sys: &dyn Sys, terminal: Fd, group: Pid) {
    ignore(sys, Signal::TTOU);
    sys.tcsetpgrp(terminal, group).unwrap();
    sys.killpg(group, Some(Signal::CONT)).unwrap();
}

fn block(sys: &dyn Sys, set: SigSet) {
    sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
}

fn with_modes(sys: &dyn Sys, terminal: Fd, modes: Modes) {
    let mut termios = sys.tcgetattr(terminal).unwrap();
    termios.modes |= modes;
    sys.tcsetattr(terminal, &termios).unwrap();
}

#[test]
fn background_read_stops_the_group() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let reader = background(sys, move |sys| {
                let mut line = [0; 8];
                assert_eq!(sys.read(terminal, &mut line), Ok(2));
                assert_eq!(&line[..2], b"x\n");
            });
            assert_eq!(change(sys, reader), WaitStatus::Stopped(Signal::TTIN));
            foreground(sys, terminal, reader);
            sys.write(controlling, b"x\r").unwrap();
            assert_eq!(end(sys, reader), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn background_read_sends_sigttin_to_the_whole_group() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let (other, go) = (leader(sys), Gate::new(sys));
            let reader = fork(sys, move |sys| {
                go.pass(sys);
                let _ = sys.read(terminal, &mut [0; 8]);
            });
            sys.setpgid(reader, other).unwrap();
            go.open(sys);
            for member in [reader, other] {
                assert_eq!(change(sys, member), WaitStatus::Stopped(Signal::TTIN));
                kill(sys, member);
            }
        });
    });
}

#[test]
fn background_read_without_sigttin_returns_eio() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let reader = background(sys, move |sys| {
                block(sys, TTIN);
                assert_eq!(sys.read(terminal, &mut [0; 8]), Err(Errno::EIO));
                ignore(sys, Signal::TTIN);
                sys.sigprocmask(Some((SigmaskHow::Unblock, TTIN))).unwrap();
                assert_eq!(sys.read(terminal, &mut [0; 8]), Err(Errno::EIO));
            });
            assert_eq!(change(sys, reader), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn read_from_an_orphaned_background_group_returns_eio() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let (go, told) = (Gate::new(sys), Gate::new(sys));
            let parent = background(sys, move |sys| {
                fork(sys, move |sys| {
                    go.pass(sys);
                    assert_eq!(sys.read(terminal, &mut [0; 8]), Err(Errno::EIO));
                    assert_eq!(sys.tcsetpgrp(terminal, sys.getpgrp()), Err(Errno::ENOTTY));
                    let termios = sys.tcgetattr(terminal).unwrap();
                    assert_eq!(sys.tcsetattr(terminal, &termios), Err(Errno::EIO));
                    told.tell(sys, 7);
                });
            });
            assert_eq!(end(sys, parent), WaitStatus::Exited(0));
            go.open(sys);
            assert_eq!(told.ask(sys), 7);
        });
    });
}

#[test]
fn background_write_without_tostop_succeeds() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let writer = background(sys, move |sys| {
                assert_eq!(sys.write(terminal, b"ab"), Ok(2));
            });
            assert_eq!(change(sys, writer), WaitStatus::Exited(0));
            let mut seen = [0; 8];
            assert_eq!(sys.read(controlling, &mut seen), Ok(2));
        });
    });
}

#[test]
fn background_write_with_tostop_stops_the_group() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            with_modes(sys, terminal, Modes::TOSTOP);
            let writer = background(sys, move |sys| {
                assert_eq!(sys.write(terminal, b"ab"), Ok(2));
            });
            assert_eq!(change(sys, writer), WaitStatus::Stopped(Signal::TTOU));
            foreground(sys, terminal, writer);
            assert_eq!(end(sys, writer), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn background_write_with_blocked_sigttou_succeeds() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            with_modes(sys, terminal, Modes::TOSTOP);
            let writer = background(sys, move |sys| {
                block(sys, TTOU);
                assert_eq!(sys.write(terminal, b"ab"), Ok(2));
                ignore(sys, Signal::TTOU);
                sys.sigprocmask(Some((SigmaskHow::Unblock, TTOU))).unwrap();
                assert_eq!(sys.write(terminal, b"ab"), Ok(2));
            });
            assert_eq!(change(sys, writer), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn background_tcsetpgrp_and_tcsetattr_stop_the_group() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let taker = background(sys, move |sys| {
                sys.tcsetpgrp(terminal, sys.getpgrp()).unwrap();
            });
            assert_eq!(change(sys, taker), WaitStatus::Stopped(Signal::TTOU));
            assert_eq!(sys.tcgetpgrp(terminal), Ok(sys.getpgrp()));
            let setter = background(sys, move |sys| {
                let termios = sys.tcgetattr(terminal).unwrap();
                sys.tcsetattr(terminal, &termios).unwrap();
            });
            assert_eq!(change(sys, setter), WaitStatus::Stopped(Signal::TTOU));
            for job in [taker, setter] {
                foreground(sys, terminal, job);
                assert_eq!(end(sys, job), WaitStatus::Exited(0));
            }
        });
    });
}

#[test]
fn background_tcsetpgrp_with_blocked_sigttou_succeeds() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let first = background(sys, move |sys| {
                block(sys, TTOU);
                sys.tcsetpgrp(terminal, sys.getpgrp()).unwrap();
            });
            assert_eq!(change(sys, first), WaitStatus::Exited(0));
            let second = background(sys, move |sys| {
                ignore(sys, Signal::TTOU);
                sys.tcsetpgrp(terminal, sys.getpgrp()).unwrap();
                assert_eq!(sys.tcgetpgrp(terminal), Ok(sys.getpid()));
            });
            assert_eq!(change(sys, second), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn sigttin_handler_interrupts_a_background_read() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let told = Gate::new(sys);
            let reader = background(sys, move |sys| {
                report(sys, told, TTIN);
                assert_eq!(sys.read(terminal, &mut [0; 8]), Err(Errno::EINTR));
            });
            assert_eq!(reported(sys, told), Signal::TTIN);
            assert_eq!(change(sys, reader), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn typed_interrupt_signals_every_foreground_member() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            for (typed, signal) in [(b"\x03", Signal::INT), (b"\x1c", Signal::QUIT)] {
                let bystander = leader(sys);
                let first = foreground_sleeper(sys, terminal);
                let second = sleeper(sys);
                sys.setpgid(second, first).unwrap();
                sys.write(controlling, typed).unwrap();
                assert_eq!(end(sys, first).signaled(), Some(signal));
                assert_eq!(end(sys, second).signaled(), Some(signal));
                assert_eq!(news(sys, bystander), None);
                kill(sys, bystander);
            }
        });
    });
}

#[test]
fn typed_suspend_stops_the_foreground_group() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let first = foreground_sleeper(sys, terminal);
            let second = sleeper(sys);
            sys.setpgid(second, first).unwrap();
            sys.write(controlling, b"\x1a").unwrap();
            for member in [first, second] {
                assert_eq!(change(sys, member), WaitStatus::Stopped(Signal::TSTP));
            }
            sys.killpg(first, Some(Signal::CONT)).unwrap();
            for member in [first, second] {
                assert_eq!(change(sys, member), WaitStatus::Continued);
                kill(sys, member);
            }
        });
    });
}

#[test]
fn typed_signal_discards_input_unless_noflsh() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            ignore(sys, Signal::INT);
            let mut line = [0; 16];
            sys.write(controlling, b"lost\x03kept\n").unwrap();
            assert_eq!(sys.read(terminal, &mut line), Ok(5));
            assert_eq!(&line[..5], b"kept\n");
            with_modes(sys, terminal, Modes::NOFLSH);
            sys.write(controlling, b"all\x03kept\n").unwrap();
            assert_eq!(sys.read(terminal, &mut line), Ok(8));
            assert_eq!(&line[..8], b"allkept\n");
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
                    let mover = sys.thread(move |sys| {
                        for _ in 0..20 {
                            sys.setpgid(SELF, friend).unwrap();
                            sys.setpgid(SELF, sys.getpid()).unwrap();
                        }
                    });
                    sys.sigaction(Signal::TTIN, Some(SigAction::handler(|_, _| {}))).unwrap();
                    for _ in 0..10 {
                        assert_eq!(sys.read(terminal, &mut [0; 8]), Err(Errno::EINTR));
                    }
                    sys.join(mover.unwrap()).unwrap();
                    sys.kill(friend.into(), Some(Signal::KILL)).unwrap();
                    assert!(end(sys, friend).is_terminated());
                    assert_ne!(home, sys.getpgrp());
                });
                assert_eq!(end(sys, reader), WaitStatus::Exited(0));
            }
        });
    });
}

#[test]
fn foreground_reader_sleeps_until_a_line_is_typed() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let reader = fork(sys, move |sys| {
                let mut line = [0; 16];
                assert_eq!(sys.read(terminal, &mut line), Ok(3));
                assert_eq!(&line[..3], b"ab\n");
            });
            sys.write(controlling, b"a").unwrap();
            rest(sys);
            assert_eq!(news(sys, reader), None);
            sys.write(controlling, b"b\r").unwrap();
            assert_eq!(end(sys, reader), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn job_control_ignores_a_foreign_terminal() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let stranger = fork(sys, move |sys| {
                sys.setsid().unwrap();
                let mut line = [0; 8];
                assert_eq!(sys.read(terminal, &mut line), Ok(2));
            });
            rest(sys);
            sys.write(controlling, b"x\n").unwrap();
            assert_eq!(change(sys, stranger), WaitStatus::Exited(0));
            let sleeper = sleeper(sys);
            kill(sys, sleeper);
        });
    });
}
