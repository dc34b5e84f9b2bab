//! A terminal and its foreground group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tontine_unix::{Errno, Fd, Modes, Pid, SigAction, Signal, Sys, Termios, WaitStatus};

use crate::scene::{await_byte, change, end, play, send_byte, sleeper, until};

const SELF: Pid = Pid::number_only(0);

/// Runs `test` in the leader of a session with a terminal; passes the controlling end and the
/// terminal.
fn with_terminal(test: impl FnOnce(&dyn Sys, Fd, Fd) + Send + 'static) {
    play(|sys| {
        sys.setsid().unwrap();
        assert_eq!(sys.open_tty(), Err(Errno::ENXIO));
        let (controlling, terminal) = sys.openpty().unwrap();
        assert_eq!(sys.tcgetpgrp(terminal), Err(Errno::ENOTTY), "no session has the terminal yet");
        sys.set_controlling(terminal).unwrap();
        assert_eq!(sys.tcgetsid(terminal), Ok(sys.getpid()));
        test(sys, controlling, terminal);
        // The end of the session sends SIGHUP to the foreground group, including this process.
        sys.sigaction(Signal::HUP, Some(SigAction::IGNORE)).unwrap();
    });
}

/// Returns a sleeper in its own group, in the foreground.
fn foreground_sleeper(sys: &dyn Sys, terminal: Fd) -> Pid {
    sys.sigaction(Signal::TTOU, Some(SigAction::IGNORE)).unwrap();
    let child = sleeper(sys);
    sys.setpgid(child, child).unwrap();
    sys.tcsetpgrp(terminal, child).unwrap();
    assert_eq!(sys.tcgetpgrp(terminal), Ok(child));
    child
}

#[test]
fn typed_control_characters_signal_the_foreground_group() {
    with_terminal(|sys, controlling, terminal| {
        let member = foreground_sleeper(sys, terminal);
        sys.write(controlling, b"\x03").unwrap();
        assert_eq!(end(sys, member).signaled(), Some(Signal::INT));
        let member = foreground_sleeper(sys, terminal);
        sys.write(controlling, b"\x1a").unwrap();
        assert_eq!(change(sys, member), WaitStatus::Stopped(Signal::TSTP));
        sys.killpg(member, Some(Signal::CONT)).unwrap();
        assert_eq!(change(sys, member), WaitStatus::Continued);
        sys.write(controlling, b"\x1c").unwrap();
        assert_eq!(end(sys, member).signaled(), Some(Signal::QUIT));
    });
}

#[test]
fn typed_control_characters_are_read_without_isig() {
    with_terminal(|sys, controlling, terminal| {
        let mut termios = sys.tcgetattr(terminal).unwrap();
        assert_eq!(termios, Termios::default());
        termios.modes = Modes::empty();
        termios.quit = 0x11;
        sys.tcsetattr(terminal, &termios).unwrap();
        assert_eq!(sys.tcgetattr(terminal), Ok(termios));
        sys.write(controlling, b"\x03\r").unwrap();
        let mut typed = [0; 8];
        let read = sys.read(terminal, &mut typed).unwrap();
        assert!(read > 0 && b"\x03\r".starts_with(&typed[..read]));
    });
}

#[test]
fn background_read_stops_with_sigttin() {
    with_terminal(|sys, controlling, terminal| {
        let reader = sys.fork(move |sys| {
            sys.setpgid(SELF, SELF).unwrap();
            let mut line = [0; 8];
            i32::from(sys.read(terminal, &mut line).is_ok_and(|read| &line[..read] == b"x\n"))
        });
        let reader = reader.unwrap();
        assert_eq!(change(sys, reader), WaitStatus::Stopped(Signal::TTIN));
        sys.sigaction(Signal::TTOU, Some(SigAction::IGNORE)).unwrap();
        sys.tcsetpgrp(terminal, reader).unwrap();
        sys.killpg(reader, Some(Signal::CONT)).unwrap();
        assert_eq!(change(sys, reader), WaitStatus::Continued);
        sys.write(controlling, b"x\r").unwrap();
        assert_eq!(end(sys, reader), WaitStatus::Exited(1));
    });
}

#[test]
fn tcsetpgrp_accepts_only_groups_of_the_session() {
    with_terminal(|sys, _, terminal| {
        let (ready, tell) = sys.pipe().unwrap();
        let stranger = sys.fork(move |sys| {
            sys.setsid().unwrap();
            assert_eq!(
                sys.tcgetpgrp(terminal),
                Err(Errno::ENOTTY),
                "the terminal of another session"
            );
            assert_eq!(sys.set_controlling(terminal), Err(Errno::EPERM));
            send_byte(sys, tell);
            loop {
                sys.pause();
            }
        });
        let stranger = stranger.unwrap();
        await_byte(sys, ready);
        assert_eq!(sys.tcsetpgrp(terminal, stranger), Err(Errno::EPERM));
        sys.kill(stranger.into(), Some(Signal::KILL)).unwrap();
        assert_eq!(end(sys, stranger).signaled(), Some(Signal::KILL));
        let tty = sys.open_tty().unwrap();
        assert_eq!(sys.tcgetpgrp(tty), Ok(sys.getpgrp()));
        let (from, to) = sys.pipe().unwrap();
        assert_eq!(sys.tcgetattr(from).err(), Some(Errno::ENOTTY));
        assert_eq!(sys.set_controlling(to), Err(Errno::ENOTTY));
        assert_eq!(sys.tcgetpgrp(Fd(-1)), Err(Errno::EBADF));
    });
}

#[test]
fn closing_the_controlling_end_hangs_up_the_leader() {
    with_terminal(|sys, controlling, terminal| {
        let hung_up = Arc::new(AtomicU32::new(0));
        let handler = {
            let hung_up = Arc::clone(&hung_up);
            SigAction::handler(move |_, _| {
                hung_up.fetch_add(1, Relaxed);
            })
        };
        sys.sigaction(Signal::HUP, Some(handler)).unwrap();
        sys.close(controlling).unwrap();
        until("SIGHUP arrived", || hung_up.load(Relaxed) == 1);
        assert_eq!(sys.write(terminal, b"x"), Err(Errno::EIO));
    });
}

#[test]
fn exit_of_the_session_leader_hangs_up_the_foreground() {
    play(|sys| {
        sys.set_subreaper(true).unwrap();
        let (from, to) = sys.pipe().unwrap();
        let leader = sys.fork(move |sys| {
            sys.setsid().unwrap();
            let (_, terminal) = sys.openpty().unwrap();
            sys.set_controlling(terminal).unwrap();
            let member = sleeper(sys);
            sys.write(to, &member.number().to_ne_bytes()).map_or(1, |_| 0)
        });
        assert_eq!(end(sys, leader.unwrap()), WaitStatus::Exited(0));
        let mut member = [0; 4];
        assert_eq!(sys.read(from, &mut member), Ok(4));
        let member = Pid::number_only(i32::from_ne_bytes(member));
        assert_eq!(end(sys, member).signaled(), Some(Signal::HUP));
    });
}
