//! Pipes: blocking reads and writes, atomic writes, end of file and broken pipes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{Errno, SigAction, Signal, WaitStatus};

use crate::jobs::scene::{Gate, end, everywhere_and_on_linux, fork, pester};

/// Capacity of a pipe in bytes.
const SIZE: usize = 65_536;
/// Maximum bytes of an atomic write.
const ATOMIC: usize = 4096;

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
