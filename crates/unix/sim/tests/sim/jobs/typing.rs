//! Input and output of a terminal: arbitrary bytes, overlong lines, empty writes.

use tontine_unix::{Fd, Modes, Sys, WaitStatus};

use crate::jobs::scene::{end, everywhere_and_on_linux, fork, with_terminal};

/// Maximum length in bytes of a line that a reader receives, the newline included.
const LONGEST: usize = 4096;

/// Clears `modes`.
fn without(sys: &dyn Sys, terminal: Fd, modes: Modes) {
    let mut termios = sys.tcgetattr(terminal).unwrap();
    termios.modes -= modes;
    sys.tcsetattr(terminal, &termios).unwrap();
}

/// Reads exactly `bytes` bytes.
fn read(sys: &dyn Sys, descriptor: Fd, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    let mut read = 0;
    while read < bytes {
        read += sys.read(descriptor, &mut found[read..]).unwrap();
    }
    found
}

#[test]
fn terminal_input_accepts_any_byte() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            without(sys, terminal, Modes::ICANON | Modes::ISIG | Modes::ICRNL);
            let bytes: Vec<u8> = (0..=u8::MAX).collect();
            // ^Q and ^S control the flow of output on Linux, so the input omits them.
            let bytes: Vec<u8> =
                bytes.into_iter().filter(|byte| !matches!(byte, 17 | 19)).collect();
            assert_eq!(sys.write(controlling, &bytes), Ok(bytes.len()));
            assert_eq!(read(sys, terminal, bytes.len()), bytes);
        });
    });
}

#[test]
fn overlong_lines_are_truncated_but_keep_their_newline() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            without(sys, terminal, Modes::ECHO);
            let typist = fork(sys, move |sys| {
                let line = [&[b'M'; LONGEST + 4][..], b"\n"].concat();
                for _ in 0..3 {
                    let mut rest = line.as_slice();
                    while !rest.is_empty() {
                        rest = &rest[sys.write(controlling, rest).unwrap()..];
                    }
                }
            });
            for _ in 0..3 {
                let mut line = vec![0; 2 * LONGEST];
                assert_eq!(sys.read(terminal, &mut line), Ok(LONGEST));
                assert_eq!(line[LONGEST - 2..LONGEST], *b"M\n");
            }
            assert_eq!(end(sys, typist), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn input_beyond_the_queue_waits_for_a_reader() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            without(sys, terminal, Modes::ECHO | Modes::ICANON);
            let typist = fork(sys, move |sys| {
                let bytes = vec![b'M'; 2 * LONGEST];
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    rest = &rest[sys.write(controlling, rest).unwrap()..];
                }
            });
            assert_eq!(read(sys, terminal, 2 * LONGEST), vec![b'M'; 2 * LONGEST]);
            assert_eq!(end(sys, typist), WaitStatus::Exited(0));
        });
    });
}
