//! Tests of the rules of a line discipline.

use proptest::prelude::*;

use super::*;

/// Types bytes, all of which must be accepted.
fn typed(line: &mut LineDiscipline, bytes: &[u8]) -> Effects {
    let effects = line.input(bytes);
    assert_eq!(effects.taken, bytes.len(), "all bytes are accepted");
    effects
}

fn read(line: &mut LineDiscipline, size: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; size];
    match line.read(&mut buffer) {
        Read::Bytes(n) => Some(buffer[..n].to_vec()),
        Read::End => Some(Vec::new()),
        Read::Nothing => None,
    }
}

fn seen(line: &mut LineDiscipline) -> Vec<u8> {
    let mut buffer = vec![0; 100_000];
    let n = line.take_output(&mut buffer);
    buffer.truncate(n);
    buffer
}

/// Returns everything that can be read, one element per read.
fn all(line: &mut LineDiscipline, size: usize) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| read(line, size)).collect()
}

fn without(modes: Modes) -> Termios {
    let whole = Termios::default();
    Termios { modes: whole.modes.difference(modes), ..whole }
}

fn with_modes(modes: Modes) -> LineDiscipline {
    let mut line = LineDiscipline::default();
    line.set_termios(Termios { modes, ..Termios::default() });
    line
}

#[test]
fn line_is_readable_once_newline_is_typed() {
    let mut line = LineDiscipline::default();
    typed(&mut line, b"ab");
    assert!(!line.can_read());
    assert_eq!(read(&mut line, 10), None);
    typed(&mut line, b"c\nnext\n");
    assert!(line.can_read());
    assert_eq!(all(&mut line, 10), [b"abc\n".to_vec(), b"next\n".to_vec()]);
    assert_eq!(seen(&mut line), b"abc\r\nnext\r\n");
}

/// Bytes that are typed, each read of at most `size` bytes, and the output.
struct TypedRow {
    what: &'static str,
    termios: Termios,
    typed: &'static [u8],
    size: usize,
    reads: &'static [&'static [u8]],
    shown: &'static [u8],
}

#[test]
fn typed_bytes_are_edited_read_and_shown() {
    let usual = Termios::default;
    let noflsh = Termios { modes: usual().modes.union(Modes::NOFLSH), ..usual() };
    let unset = Termios { interrupt: 0, end: 0, ..usual() };
    let row = |what, termios, typed, size, reads, shown| TypedRow {
        what,
        termios,
        typed,
        size,
        reads,
        shown,
    };
    let rows = [
        row("long line in parts", usual(), b"abcd\nx", 3, &[b"abc", b"d\n"], b"abcd\r\nx"),
        row("carriage return", usual(), b"a\r", 10, &[b"a\n"], b"a\r\n"),
        row("without ICRNL", without(Modes::ICRNL), b"a\r\n", 10, &[b"a\r\n"], b"a^M\r\n"),
        row(
            "end of input after text ends the line, alone it is end-of-file",
            usual(),
            b"abc\x04\x04def\n",
            10,
            &[b"abc", b"", b"def\n"],
            b"abcdef\r\n",
        ),
        row("end of input after full buffer", usual(), b"abc\x04", 3, &[b"abc"], b"abc"),
        row(
            "erase",
            usual(),
            b"a\tb\x01\x7f\x7f\x7f\x7f\x7fx\n",
            10,
            &[b"x\n"],
            b"a\tb^A\x08 \x08\x08 \x08\x08 \x08\x08\x08\x08\x08\x08\x08\x08\x08 \x08x\r\n",
        ),
        row(
            "erase stops at the line",
            usual(),
            b"ab\n\x7f\x7fc\n",
            10,
            &[b"ab\n", b"c\n"],
            b"ab\r\nc\r\n",
        ),
        row(
            "character of two bytes",
            usual(),
            b"a\xc3\xa9\x7fz\n",
            10,
            &[b"az\n"],
            b"a\xc3\xa9\x08 \x08z\r\n",
        ),
        // Regression: continuation bytes without a first byte were erased. Linux keeps them, for
        // erase and for kill, unless echo is off.
        row("stray continuation", usual(), b"\x80\x7f\x15\n", 10, &[b"\x80\n"], b"\x80\r\n"),
        row("without echo", without(Modes::ECHO), b"\x80\x7f\x15\n", 10, &[b"\n"], b""),
        row(
            "kill",
            usual(),
            b"hi\x01\x15z\n",
            10,
            &[b"z\n"],
            b"hi^A\x08 \x08\x08 \x08\x08 \x08\x08 \x08z\r\n",
        ),
        row("signal with NOFLSH", noflsh, b"ab\x03c\n", 10, &[b"abc\n"], b"ab^Cc\r\n"),
        row(
            "without ISIG",
            without(Modes::ISIG),
            b"\x03\x1a\x1c\n",
            10,
            &[b"\x03\x1a\x1c\n"],
            b"^C^Z^\\\r\n",
        ),
        row(
            "special character 0",
            unset,
            b"\x03\x04a\x00b\n",
            10,
            &[b"\x03\x04a\x00b\n"],
            b"^C^Da^@b\r\n",
        ),
        row("hidden", without(Modes::ECHO), b"secret\x7f\x15x\n\x03", 10, &[], b""),
    ];
    for TypedRow { what, termios, typed: bytes, size, reads, shown } in rows {
        let mut line = LineDiscipline::default();
        line.set_termios(termios);
        let interrupted = typed(&mut line, bytes).signals.contains(Signal::INT);
        assert_eq!(interrupted, ["signal with NOFLSH", "hidden"].contains(&what), "{what}");
        assert_eq!(all(&mut line, size), reads, "{what}");
        assert_eq!(line.is_visible(), !shown.is_empty(), "{what}");
        assert_eq!(seen(&mut line), shown, "{what}");
    }
}

#[test]
fn erased_tab_after_prompt_restores_column() {
    let mut line = LineDiscipline::default();
    line.output(b"\nsh: ").unwrap();
    typed(&mut line, b"\t\x7f");
    assert_eq!(seen(&mut line), b"\r\nsh: \t\x08\x08\x08\x08");
}

#[test]
fn signal_characters_discard_typed_input() {
    let cases = [(b"\x03", Signal::INT), (b"\x1c", Signal::QUIT), (b"\x1a", Signal::TSTP)];
    for (byte, signal) in cases {
        let mut line = LineDiscipline::default();
        typed(&mut line, b"line\nhalf");
        let effects = typed(&mut line, byte);
        assert_eq!((effects.signals, line.can_read()), (SigSet::of(&[signal]), false));
        typed(&mut line, b"new\n");
        assert_eq!(all(&mut line, 10), [b"new\n".to_vec()]);
    }
    let mut line = LineDiscipline::default();
    let effects = typed(&mut line, b"hel\x03lo\x1a\x1cxx\n");
    assert_eq!(effects.signals, SigSet::of(&[Signal::INT, Signal::QUIT, Signal::TSTP]));
    assert_eq!(read(&mut line, 10).unwrap(), b"xx\n");
    assert_eq!(seen(&mut line), b"hel^Clo^Z^\\xx\r\n");
}

#[test]
fn signal_characters_take_effect_with_full_queue() {
    let full = b"line\n".repeat(2000);
    for before in [&b""[..], b"behind what has no space\n"] {
        let mut line = LineDiscipline::default();
        assert!(typed_until_full(&mut line, &full) < full.len());
        assert_eq!(line.input(b"more\n"), Effects::default());
        assert!(line.can_read() && line.is_visible());
        let typed = [before, b"\x03new\n"].concat();
        let effects = line.input(&typed);
        assert_eq!((effects.signals, effects.taken), (SigSet::of(&[Signal::INT]), typed.len()));
        assert_eq!(all(&mut line, 10), [b"new\n".to_vec()], "earlier input is discarded");
    }
    let mut line = with_modes(Termios::default().modes.union(Modes::NOFLSH));
    typed_until_full(&mut line, &full);
    let effects = line.input(b"\x03no space\x03");
    assert_eq!((effects.signals, effects.taken), (SigSet::of(&[Signal::INT]), 1));
}

/// Types as many bytes as there is space for.
fn typed_until_full(line: &mut LineDiscipline, bytes: &[u8]) -> usize {
    line.input(bytes).taken
}

#[test]
fn signal_discards_undelivered_output() {
    let mut line = LineDiscipline::default();
    while line.output(&[b'x'; 1000]).unwrap() > 0 {}
    assert_eq!(line.output_space(), 0);
    typed(&mut line, b"\x03");
    let seen = seen(&mut line);
    assert_eq!((seen.len(), &seen[4094..]), (4097, b"x^C".as_slice()));
}

#[test]
fn bytes_are_readable_immediately_without_icanon() {
    let mut line = LineDiscipline::default();
    line.set_termios(without(Modes::ICANON));
    typed(&mut line, b"x\x04\n\x15\x7f");
    assert!(line.can_read());
    assert_eq!(read(&mut line, 10).unwrap(), b"x\x04\n\x15\x7f");
    assert_eq!(seen(&mut line), b"x^D^J^U^?");
    assert!(typed(&mut line, b"a\x03").signals.contains(Signal::INT));
    assert_eq!(read(&mut line, 10), None);
}

#[test]
fn icanon_change_keeps_typed_input() {
    let mut line = LineDiscipline::default();
    typed(&mut line, b"li\nab\x04cd");
    line.set_termios(without(Modes::ICANON));
    assert_eq!(all(&mut line, 100), [b"li\nab\x00cd".to_vec()]);
    typed(&mut line, b"xy\nz");
    line.set_termios(Termios::default());
    typed(&mut line, b"w\n");
    assert_eq!(all(&mut line, 100), [b"xy\nz".to_vec(), b"w\n".to_vec()]);
}

#[test]
fn refused_input_is_accepted_after_icanon_makes_line() {
    let mut line = LineDiscipline::default();
    line.set_termios(without(Modes::ICANON));
    let many = [b'M'; 4100];
    let taken = line.input(&many).taken;
    assert_eq!(taken, 4095);
    line.set_termios(Termios::default());
    assert_eq!(read(&mut line, 10_000).unwrap().len(), 4095);
    typed(&mut line, &many[taken..]);
    typed(&mut line, b"\n");
    assert_eq!(all(&mut line, 100), [b"MMMMM\n".to_vec()]);
}

#[test]
fn icanon_off_and_on_joins_earlier_lines() {
    let mut line = LineDiscipline::default();
    typed(&mut line, b"one\ntwo\n!");
    line.set_termios(without(Modes::ICANON));
    line.set_termios(Termios::default());
    assert_eq!(all(&mut line, 100), [b"one\ntwo\n!".to_vec()]);
}

#[test]
fn full_line_accepts_newline() {
    let mut line = LineDiscipline::default();
    typed(&mut line, &[b'a'; 5000]);
    typed(&mut line, b"bcd\n");
    let whole = read(&mut line, 10_000).unwrap();
    assert_eq!((whole.len(), &whole[4094..]), (4096, b"a\n".as_slice()));
    typed(&mut line, &[b'a'; 5000]);
    typed(&mut line, b"\x7f\x7fb\n");
    assert_eq!(read(&mut line, 10_000).unwrap().len(), 4095);
}

#[test]
fn queue_full_of_lines_accepts_input_after_read() {
    let mut line = LineDiscipline::default();
    let lines = [b'\n'; 5000];
    assert_eq!(line.input(&lines).taken, 4095);
    assert_eq!(line.input(b"x"), Effects::default());
    assert!(line.can_read() && line.is_visible());
    assert_eq!(read(&mut line, 10).unwrap(), b"\n");
    assert_eq!(line.input(&lines).taken, 1);
    line.set_termios(without(Modes::ICANON));
    assert_eq!(read(&mut line, 10_000).unwrap().len(), 4095);
    assert_eq!(line.input(&lines).taken, 4095);
}

#[test]
fn output_has_carriage_returns_only_with_onlcr() {
    let mut line = LineDiscipline::default();
    line.output(b"a\nb").unwrap();
    line.set_termios(without(Modes::ONLCR));
    line.output(b"c\nd").unwrap();
    assert_eq!(seen(&mut line), b"a\r\nbc\nd");
}

#[test]
fn full_output_blocks_writer_and_newline_needs_two_bytes() {
    let mut line = LineDiscipline::default();
    while line.output_space() > 1 {
        line.output(b"x").unwrap();
    }
    assert_eq!(line.output(b"\n").unwrap(), 0);
    assert_eq!(line.output(b"xy").unwrap(), 1);
    seen(&mut line);
    assert_eq!(line.output(b"\n").unwrap(), 1);
}

/// Generates mostly bytes that have a special meaning.
fn byte() -> impl Strategy<Value = u8> {
    let special = b"\n\r\t\x03\x04\x15\x1a\x1c\x7f\x00";
    prop_oneof![
        4 => prop::sample::select(&b"abc"[..]),
        4 => prop::sample::select(&special[..]),
        1 => any::<u8>(),
    ]
}

fn modes() -> impl Strategy<Value = Modes> {
    any::<u32>().prop_map(Modes::from_bits_truncate)
}

proptest! {
    #[test]
    fn plain_lines_are_read_unchanged(
        lines in prop::collection::vec("[a-z ]{0,20}\n", 0..20), size in 1..30_usize,
    ) {
        let mut line = LineDiscipline::default();
        typed(&mut line, lines.concat().as_bytes());
        let parts = lines.iter().flat_map(|text| text.as_bytes().chunks(size));
        prop_assert_eq!(all(&mut line, size), parts.map(<[u8]>::to_vec).collect::<Vec<_>>());
    }

    #[test]
    fn input_in_pieces_equals_input_in_one_call(
        modes in modes(), bytes in prop::collection::vec(byte(), 0..200), piece in 1..20_usize,
    ) {
        let (mut whole, mut cut) = (with_modes(modes), with_modes(modes));
        let effects = typed(&mut whole, &bytes);
        let pieces = bytes.chunks(piece).map(|piece| typed(&mut cut, piece).signals);
        prop_assert_eq!(pieces.fold(SigSet::EMPTY, SigSet::union), effects.signals);
        prop_assert_eq!(all(&mut whole, 50), all(&mut cut, 50));
        prop_assert_eq!(seen(&mut whole), seen(&mut cut));
    }

    #[test]
    fn line_queues_are_bounded_and_report_content(
        steps in prop::collection::vec(
            (modes(), prop::collection::vec(byte(), 0..30), 1..100_usize, 0..5000_usize), 0..10,
        ),
    ) {
        let mut line = LineDiscipline::default();
        for (modes, bytes, times, size) in steps {
            let bytes = bytes.repeat(times);
            line.set_termios(Termios { modes, ..Termios::default() });
            line.input(&bytes);
            let (readable, visible) = (line.can_read(), line.is_visible());
            prop_assert!(line.output(&bytes).unwrap() <= bytes.len());
            let got = read(&mut line, size + 1);
            prop_assert_eq!(got.is_some(), readable);
            prop_assert!(got.is_none_or(|got| got.len() <= input::SIZE));
            prop_assert!(line.output_space() <= 20_480);
            prop_assert_eq!(!seen(&mut line).is_empty(), visible || !bytes.is_empty());
        }
    }

    #[test]
    fn endless_input_is_bounded_by_queues(byte in byte(), modes in modes()) {
        let mut line = with_modes(modes);
        line.input(&[byte; 30_000]);
        prop_assert!(all(&mut line, 10_000).concat().len() <= input::SIZE);
        prop_assert!(seen(&mut line).len() <= 30_000);
    }
}
