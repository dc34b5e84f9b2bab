//! Comparison of `docs/internals/layout.md` with the constants of the code.
//!
//! Most items that the page documents are private. `tests/documents/layout.rs` compares the part of
//! a process page that a peer sees.

use std::collections::BTreeMap;

use crate::lane::page;
use crate::lane::record::{HEADER, NOTHING, RecordHeader, size_of_message};
use crate::mailbox::wire::{
    ControlMessage, FenceMode, Hello, LONGEST, MOST_CHUNKS, Welcome, read, write,
};

const TEXT: &str = include_str!("../../../docs/internals/layout.md");

/// Returns the cells of a section's tables, row by row, without the header rows.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, behind) = TEXT.split_once(&format!("{heading}\n")).expect("the section");
    let section = behind.split("\n#").next().expect("its end");
    // Skips the diagrams, which are not tables.
    let prose = section.split("```").step_by(2).flat_map(str::lines);
    let rows = prose.filter(|line| line.starts_with("| ")).map(|line| {
        let line = line.trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(str::trim).collect::<Vec<_>>()
    });
    rows.filter(|row| row[0].starts_with(|c: char| c.is_ascii_digit() || c == '`')).collect()
}

/// Returns the code in the first backticks of a cell.
fn code(cell: &str) -> &str {
    cell.split('`').nth(1).unwrap_or_else(|| panic!("{cell} has no code"))
}

/// Returns a table of offsets, by the field's name.
fn offsets(heading: &str) -> BTreeMap<&'static str, (usize, &'static str)> {
    let fields = rows(heading).into_iter().map(|row| {
        let (name, kind) = match row[1].contains('`') {
            true => code(row[1]).split_once(": ").expect("a field and its type"),
            false => (row[1], ""),
        };
        (name, (row[0].parse().expect("an offset"), kind))
    });
    fields.collect()
}

#[test]
fn control_page_matches_layout_page() {
    let expected = [
        ("magic", (page::MAGIC_AT, "u64")),
        ("version", (page::VERSION_AT, "u32")),
        ("state", (page::STATE_AT, "u32")),
        ("granted", (page::GRANTED_AT, "u64")),
        ("most", (page::MOST_AT, "u64")),
        ("relay", (page::RELAY_AT, "u32")),
        ("errno", (page::ERRNO_AT, "u32")),
        ("suspected", (page::SUSPECTED_AT, "u32")),
        ("sent", (page::SENT_AT, "u64")),
        ("turn", (page::TURN_AT, "u32")),
        ("position", (page::POSITION_AT, "u64")),
        ("space", (page::SPACE_AT, "u64")),
    ];
    assert_eq!(offsets("### Control page"), expected.into());
    let meaning =
        |at: &str| rows("### Control page").into_iter().find(|row| row[0] == at).expect("a row")[2];
    assert_eq!(code(meaning("0")).as_bytes(), page::CONTROL_MAGIC.to_le_bytes());
    assert_eq!(meaning("8").parse(), Ok(page::VERSION));
    let bits = [
        (page::CLOSED, "CLOSED"),
        (page::GIVE_BACK, "GIVE_BACK"),
        (page::REMOTE_DIED, "REMOTE_DIED"),
        (page::REMOTE_CLOSED, "REMOTE_CLOSED"),
        (page::UNREACHABLE, "UNREACHABLE"),
        (page::REMOTE_REFUSED, "REMOTE_REFUSED"),
        (page::STAMPS, "STAMPS"),
    ];
    for (bit, name) in bits {
        let said = format!("it {} `{name}`", bit.trailing_zeros());
        assert!(meaning("64").contains(&said), "{said}");
    }
}

#[test]
fn chunk_matches_layout_page() {
    let expected = [
        ("magic", (page::MAGIC_AT, "u64")),
        ("version", (page::VERSION_AT, "u32")),
        ("log2_size", (page::LOG2_AT, "u32")),
        ("sequence", (page::SEQUENCE_AT, "u64")),
        ("base", (page::BASE_AT, "u64")),
        ("lane", (page::LANE_AT, "u128")),
        ("on_death", (page::ON_DEATH_AT, "u32")),
        ("waiting", (page::WAITING_AT, "u32")),
        ("handover", (page::HANDOVER_AT, "u32")),
        ("closed", (page::CLOSED_AT, "u32")),
        ("owners", (page::OWNERS_AT, "u32")),
        ("doubt", (page::DOUBT_AT, "u64")),
        ("ring", (page::RING_AT, "")),
    ];
    assert_eq!(offsets("### Chunk"), expected.into());
    let magic = rows("### Chunk")[0][2];
    assert_eq!(code(magic).as_bytes(), page::CHUNK_MAGIC.to_le_bytes());
    assert!(TEXT.contains(&format!("`(position − base) mod (size − {})`", page::RING_AT)));
    assert_eq!(page::ring(4096), 4096 - page::RING_AT);
}

#[test]
fn region_sizes_match_layout_page() {
    let sizes: BTreeMap<_, _> =
        rows_of_names("## The three regions").into_iter().map(|row| (row[0], row[3])).collect();
    assert_eq!(sizes["control page"].replace(',', "").parse(), Ok(page::CONTROL_SIZE));
    assert_eq!((1 << page::MIN_LOG2, 1_u64 << page::MAX_LOG2), (4096, 1 << 30));
    assert_eq!(sizes["chunk"], "a power of two, 4,096 … 1 GiB");
}

/// Like [`rows`], but for a table whose first column contains names.
fn rows_of_names(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, behind) = TEXT.split_once(&format!("{heading}\n")).expect("the section");
    let section = behind.split("\n#").next().expect("its end");
    let table = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    table
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .filter(|row: &Vec<_>| !row[0].starts_with("---"))
        .collect()
}

#[test]
fn records_match_layout_page() {
    let kinds: BTreeMap<_, _> = rows("## Records").into_iter().map(|row| (row[1], row)).collect();
    let words = [
        ("nothing yet", NOTHING),
        ("message", RecordHeader::Message(5).word()),
        ("padding", RecordHeader::Padding(5).word()),
        ("next", RecordHeader::Next(5).word()),
        ("stamp", RecordHeader::Stamp(5).word()),
    ];
    assert_eq!(kinds.len(), words.len());
    for (name, word) in words {
        let kind: u64 = kinds[name][0].parse().expect("a number");
        // As in the diagram, bits 63 to 40 are zero, bits 39 to 32 are the kind, and the rest is
        // the length.
        let length = if word == NOTHING { 0 } else { 5 };
        assert_eq!(word, kind << 32 | length, "{name}");
    }
    assert_eq!(kinds["message"][3], "8 + length, rounded up to 8");
    assert_eq!((size_of_message(0), size_of_message(1), size_of_message(16)), (8, 16, 24));
    assert_eq!(HEADER, 8);
}

/// Returns the fields that a cell names, with their sizes in bytes.
fn fields(cell: &'static str) -> Vec<(&'static str, usize)> {
    let named = cell.split('`').skip(1).step_by(2).map(|code| {
        let (name, kind) = code.split_once(": u").expect("a field and its type");
        (name, kind.parse::<usize>().expect("bits") / 8)
    });
    named.collect()
}

/// Fields and their values.
type Values<'a> = &'a [(&'a str, u64)];

#[test]
fn control_messages_match_layout_page() {
    let mut chunks = [0; MOST_CHUNKS];
    chunks[0] = 0x15;
    let hello = Hello {
        fences: FenceMode::Symmetric,
        handover: 0x0506_0708,
        cap: 0x1112_1314_1516_1718,
        position: 0x2122_2324_2526_2728,
        base: 0x3132_3334_3536_3738,
        returns_to: 0x3941,
        chunks,
    };
    let welcome = Welcome { fences: FenceMode::Symmetric, desk: 0x4142_4344 };
    let expected: [(&str, ControlMessage, Values<'_>); 7] = [
        (
            "HELLO",
            ControlMessage::Hello(hello),
            &[
                ("fences", 1),
                ("returns_to", 0x3941),
                ("handover", 0x0506_0708),
                ("cap", hello.cap),
                ("position", hello.position),
                ("base", hello.base),
                ("log2_size", 0x15),
            ],
        ),
        ("WELCOME", ControlMessage::Welcome(welcome), &[("fences", 1), ("desk", 0x4142_4344)]),
        ("REFUSED", ControlMessage::Refused(0x5152_5354), &[("errno", 0x5152_5354)]),
        (
            "CHUNK",
            ControlMessage::Chunk(0x19, 0x6162_6364_6566_6768),
            &[("log2_size", 0x19), ("unused", 0), ("sequence", 0x6162_6364_6566_6768)],
        ),
        ("WANT", ControlMessage::Want(0x7172_7374_7576_7778), &[("bytes", 0x7172_7374_7576_7778)]),
        ("SPACE", ControlMessage::Space, &[]),
        ("RETURNED", ControlMessage::Returned, &[]),
    ];
    let rows = rows("## Messages on the socket");
    assert_eq!(rows.len(), expected.len());
    for (row, (name, note, values)) in rows.iter().zip(expected) {
        assert_eq!(code(row[0]), name);
        let kind: u64 = row[0].split(' ').next().and_then(|kind| kind.parse().ok()).expect("one");
        let mut documented = vec![("kind", 4, kind), ("version", 4, page::VERSION.into())];
        let named = fields(row[2]);
        let names: Vec<&str> = named.iter().map(|&(name, _)| name).collect();
        assert_eq!(names, values.iter().map(|&(name, _)| name).collect::<Vec<_>>());
        documented.extend(
            named.iter().zip(values).map(|(&(name, size), &(_, value))| (name, size, value)),
        );
        let mut bytes: &[u8] = &write(note);
        assert_eq!(read(bytes), Ok(note));
        for (field, size, value) in documented {
            let (these, rest) = bytes.split_at_checked(size).expect("long enough");
            assert_eq!(these, &value.to_le_bytes()[..size], "{name}: {field}");
            bytes = rest;
        }
        assert!(bytes.is_empty(), "{name} has undocumented bytes");
    }
    let most = Hello { chunks: [30; MOST_CHUNKS], ..hello };
    assert_eq!(write(ControlMessage::Hello(most)).len(), LONGEST);
    assert!(rows[0][2].ends_with(&format!("1 to {MOST_CHUNKS} of them")));
    assert!(TEXT.contains(&format!("it is at most {LONGEST} bytes long")));
}
