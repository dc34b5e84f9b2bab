//! Tests of `--framing`: the formats in which `tontine send` reads and `tontine recv` prints.

use std::thread;

use rustix::process::Signal;

use crate::common::{text, tontine};
use crate::mail::{Run, TestAddress, receiver, send, test_address};

#[test]
fn framing_nul_is_null_option() {
    let TestAddress(_folder, path) = test_address();
    let receiver = receiver(&path, &["--framing", "nul", "--count", "2"]);
    send(&path, "a\nb\0c", &["--framing=nul", "--wait"]).succeed();
    assert_eq!(receiver.succeed(), "a\nb\0c\0");
    let both = Run::new(&["send", "-0", "--framing", "nul", &path]).end();
    assert_eq!(both.status.code(), Some(2), "{}", text(&both.stderr));
}

/// Returns messages with their lengths, as `--framing length` reads them.
fn with_lengths(messages: &[&[u8]]) -> Vec<u8> {
    let length = |message: &[u8]| u32::try_from(message.len()).expect("short").to_be_bytes();
    messages.iter().flat_map(|message| [&length(message), *message].concat()).collect()
}

/// Sends messages of any bytes through two mailboxes: the output of the first receiver is the input
/// of the second sender.
#[test]
fn messages_with_lengths_pass_through_two_mailboxes() {
    let TestAddress(_first, first) = test_address();
    let TestAddress(_second, second) = test_address();
    let large: Vec<u8> = (0..300_000_u32).map(|number| (number >> 3) as u8).collect();
    let stream = with_lengths(&[b"\n\0\xff", b"", &large, b"\0\0\0\x09", b"last"]);
    let options = ["--framing", "length", "--count", "5"];
    let mut middle = receiver(&first, &options);
    let end = receiver(&second, &options);
    let mut command = tontine();
    command.args(["send", "--framing", "length", &second]);
    let output = middle.child().stdout.take().expect("piped");
    let mut forwarding = command.stdin(output).spawn().expect("tontine runs");
    // A pipe does not hold the whole output.
    let printed = thread::spawn(|| end.end().stdout);
    let sent = send(&first, &stream, &options[..2]).end();
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    middle.succeed();
    assert!(forwarding.wait().expect("it ends").success());
    assert!(printed.join().expect("no panic") == stream, "expected the same bytes");
}

#[test]
fn send_refuses_truncated_and_oversize_messages_with_lengths() {
    let TestAddress(_folder, path) = test_address();
    let mut receiver = receiver(&path, &[]);
    let cases: [(&[u8], &str); 3] = [
        (b"\0\0\0\x01a\0\0\0\x05bc", "message 2 of standard input: expected 5 bytes, found 2"),
        (b"\0\0\0\x01a\0\0", "expected its length in 4 bytes, found 2 and then the end"),
        (b"\0\0\0\x01a\xff\xff\xff\xff", "found 4294967295; it and the rest were not sent"),
    ];
    for (input, expected) in cases {
        let words = send(&path, input, &["--framing", "length"]).fail();
        assert!(words.contains(expected), "{words}");
        assert_eq!(receiver.read(2), "a\n", "the message before is sent");
    }
    receiver.signal(Signal::TERM);
    assert_eq!(text(&receiver.end().stdout), "", "no message is sent in part");
}

#[test]
fn send_unread_prints_messages_with_lengths() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    first.stop();
    let stream = with_lengths(&[b"a\nb", b"", b"\0"]);
    let mut sender = Run::new(&["send", "--unread", "--framing", "length", &path]);
    sender.write(&stream);
    sender.until_sent();
    first.signal(Signal::KILL);
    let output = sender.end();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(output.stdout, stream);
}
