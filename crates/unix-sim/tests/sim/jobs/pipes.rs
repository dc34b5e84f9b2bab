//! Pipes: blocking reads and writes, atomic writes, end of file and broken pipes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tontine_unix::{
    ActionFlags, Errno, Fd, SigAction, SigCode, SigSet, SigmaskHow, Signal, WaitStatus,
};

use crate::jobs::scene::{
    Gate, end, everywhere_and_on_linux, fork, ignore, kill, news, pester, rest, sleeper,
};

/// Capacity of a pipe in bytes.
const SIZE: usize = 65_536;
/// Maximum bytes of an atomic write.
const ATOMIC: usize = 4096;

#[test]
fn pipe_reader_waits_for_bytes() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let reader = fork(sys, move |sys| {
            let mut bytes = [0; 8];
            assert_eq!(sys.read(from, &mut bytes), Ok(3));
            assert_eq!(&bytes[..3], b"abc");
        });
        rest(sys);
        assert_eq!(news(sys, reader), None);
        assert_eq!(sys.write(to, b"abc"), Ok(3));
        assert_eq!(end(sys, reader), WaitStatus::Exited(0));
    });
}

#[test]
fn pipe_writer_waits_for_space() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let writer = fork(sys, move |sys| {
            assert_eq!(sys.write(to, &[7; SIZE + 1000]), Ok(SIZE + 1000));
        });
        rest(sys);
        assert_eq!(news(sys, writer), None);
        let mut left = SIZE + 1000;
        let mut bytes = [0; 5000];
        while left > 0 {
            left -= sys.read(from, &mut bytes).unwrap();
        }
        assert_eq!(end(sys, writer), WaitStatus::Exited(0));
    });
}

#[test]
fn pipe_ends_when_its_last_writer_closes() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let go = Gate::new(sys);
        let writer = fork(sys, move |sys| go.pass(sys));
        sys.dup2(to, Fd(40)).unwrap();
        let reader = fork(sys, move |sys| {
            sys.close(to).unwrap();
            sys.close(Fd(40)).unwrap();
            assert_eq!(sys.read(from, &mut [0; 8]), Ok(0));
        });
        sys.close(to).unwrap();
        rest(sys);
        assert_eq!(news(sys, reader), None, "a copy and a child hold the write end");
        // `dup2` closes the previous descriptor of that number.
        sys.dup2(from, Fd(40)).unwrap();
        rest(sys);
        assert_eq!(news(sys, reader), None, "a child holds the write end");
        go.open(sys);
        assert_eq!(end(sys, writer), WaitStatus::Exited(0));
        assert_eq!(end(sys, reader), WaitStatus::Exited(0));
        assert_eq!(sys.read(from, &mut [0; 8]), Ok(0));
    });
}

#[test]
fn pipe_ends_when_its_writer_is_killed() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let writer = sleeper(sys);
        sys.close(to).unwrap();
        kill(sys, writer);
        assert_eq!(sys.read(from, &mut [0; 8]), Ok(0));
    });
}

#[test]
fn write_without_reader_returns_epipe_and_sends_sigpipe() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            let (from, to) = sys.pipe().unwrap();
            sys.close(from).unwrap();
            ignore(sys, Signal::PIPE);
            assert_eq!(sys.write(to, b"x"), Err(Errno::EPIPE));
            assert_eq!(sys.write(to, b""), Ok(0));
            sys.sigaction(Signal::PIPE, Some(SigAction::DEFAULT)).unwrap();
            let _ = sys.write(to, b"x");
        });
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::PIPE, false));
    });
}

#[test]
fn sigpipe_goes_to_the_writing_thread() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            let (from, to) = sys.pipe().unwrap();
            sys.close(from).unwrap();
            let go = Gate::new(sys);
            let other = sys.thread(move |sys| go.pass(sys)).unwrap();
            let pipe = SigSet::of(&[Signal::PIPE]);
            sys.sigprocmask(Some((SigmaskHow::Block, pipe))).unwrap();
            assert_eq!(sys.write(to, b"x"), Err(Errno::EPIPE));
            let taken = sys.sigtimedwait(pipe, Some(Duration::ZERO)).unwrap();
            let me = sys.getpid().number();
            assert_eq!((taken.code, taken.pid, taken.uid), (SigCode::User, me, sys.getuid()));
            go.open(sys);
            sys.join(other).unwrap();
        });
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

#[test]
fn write_after_last_reader_closes_returns_count_and_sigpipe() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let writer = fork(sys, move |sys| {
            sys.close(from).unwrap();
            let caught = Arc::new(AtomicI32::new(0));
            let count = Arc::clone(&caught);
            let handler = SigAction::handler(move |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            sys.sigaction(Signal::PIPE, Some(handler)).unwrap();
            let wrote = sys.write(to, &[7; 3 * SIZE]);
            // Linux does not reuse the space of one byte.
            assert!(wrote == Ok(SIZE) || wrote == Ok(SIZE + 1), "{wrote:?}");
            assert_eq!(caught.load(Ordering::Relaxed), 1);
        });
        // The writer fills the pipe before a byte can be read.
        assert_eq!(sys.read(from, &mut [0]), Ok(1));
        sys.close(from).unwrap();
        assert_eq!(end(sys, writer), WaitStatus::Exited(0));
    });
}

#[test]
fn exit_of_the_last_reader_wakes_a_writer() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let writer = fork(sys, move |sys| {
            sys.close(from).unwrap();
            ignore(sys, Signal::PIPE);
            let wrote = sys.write(to, &[7; 3 * SIZE]);
            // The result is the count written before the close. On a slow machine the count may be
            // zero, and then the call returns EPIPE.
            assert!(matches!(wrote, Ok(SIZE) | Err(Errno::EPIPE)), "{wrote:?}");
            assert_eq!(sys.write(to, b"x"), Err(Errno::EPIPE));
        });
        rest(sys);
        sys.close(from).unwrap();
        assert_eq!(end(sys, writer), WaitStatus::Exited(0));
    });
}

#[test]
fn atomic_writes_are_not_interleaved() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let writers = [b'a', b'b', b'c'].map(|byte| {
            fork(sys, move |sys| {
                for _ in 0..12 {
                    assert_eq!(sys.write(to, &[byte; ATOMIC]), Ok(ATOMIC));
                }
            })
        });
        for _ in 0..36 {
            let mut piece = [0; ATOMIC];
            let mut got = 0;
            while got < ATOMIC {
                got += sys.read(from, &mut piece[got..]).unwrap();
            }
            assert!(piece.iter().all(|byte| *byte == piece[0]), "two writers in one piece");
        }
        for writer in writers {
            assert_eq!(end(sys, writer), WaitStatus::Exited(0));
        }
    });
}

#[test]
fn signal_interrupts_or_restarts_a_pipe_read() {
    everywhere_and_on_linux(|sys| {
        for flags in [ActionFlags::empty(), ActionFlags::RESTART] {
            let (from, to) = sys.pipe().unwrap();
            let ready = Gate::new(sys);
            let reader = fork(sys, move |sys| {
                let action = SigAction::handler(|_, _| {}).with_flags(flags);
                sys.sigaction(Signal::USR1, Some(action)).unwrap();
                ready.open(sys);
                let expected = if flags.is_empty() { Err(Errno::EINTR) } else { Ok(1) };
                assert_eq!(sys.read(from, &mut [0; 8]), expected);
            });
            ready.pass(sys);
            if flags.is_empty() {
                assert_eq!(pester(sys, reader, Signal::USR1), WaitStatus::Exited(0));
                continue;
            }
            rest(sys);
            sys.kill(reader.into(), Some(Signal::USR1)).unwrap();
            rest(sys);
            sys.write(to, b"x").unwrap();
            assert_eq!(end(sys, reader), WaitStatus::Exited(0));
        }
    });
}

#[test]
fn signal_ends_a_pipe_write_with_the_partial_count() {
    everywhere_and_on_linux(|sys| {
        let (_from, to) = sys.pipe().unwrap();
        let ready = Gate::new(sys);
        let writer = fork(sys, move |sys| {
            sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).unwrap();
            ready.open(sys);
            assert_eq!(sys.write(to, &[7; 2 * SIZE]), Ok(SIZE));
            assert_eq!(sys.write(to, b"x"), Err(Errno::EINTR));
        });
        ready.pass(sys);
        assert_eq!(pester(sys, writer, Signal::USR1), WaitStatus::Exited(0));
    });
}

#[test]
fn empty_pipe_reads_and_writes_return_zero() {
    everywhere_and_on_linux(|sys| {
        let (from, to) = sys.pipe().unwrap();
        assert_eq!(sys.read(from, &mut []), Ok(0));
        assert_eq!(sys.write(to, &[]), Ok(0));
        assert_eq!(sys.read(to, &mut [0; 1]), Err(Errno::EBADF), "the write end");
        assert_eq!(sys.write(from, b"x"), Err(Errno::EBADF), "the read end");
    });
}
