//! Compares `docs/internals/layout.md` with the bytes that a peer sees.

use std::os::fd::{AsFd, BorrowedFd};

use tontine::life::Life;

/// Returns the names and offsets of the fields in a section's table.
fn documented(section: &str) -> Vec<(String, usize)> {
    let text = include_str!("../../../../docs/internals/layout.md");
    let (_, behind) = text.split_once(&format!("### {section}\n")).expect("the section");
    let section = behind.split("\n##").next().expect("the end of the section");
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let offset = cells.next()?.parse().ok()?;
        let name = cells.next()?.trim_matches('`').split(':').next()?;
        Some((name.to_owned(), offset))
    });
    rows.collect()
}

fn word(fd: BorrowedFd<'_>, at: usize) -> u32 {
    let mut bytes = [0; 4];
    assert_eq!(rustix::io::pread(fd, &mut bytes, at as u64), Ok(4));
    u32::from_le_bytes(bytes)
}

#[test]
fn process_page_layout_matches_document() {
    let table = documented("Process page");
    let at = |field: &str| {
        table.iter().find(|(name, _)| name == field).unwrap_or_else(|| panic!("{field}")).1
    };
    let names: Vec<&str> = table.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["magic", "version", "life", "pid", "mutex", "desks"]);

    let fd = Life::register().expect("life").as_fd();
    let mut magic = [0; 8];
    assert_eq!(rustix::io::pread(fd, &mut magic, at("magic") as u64), Ok(8));
    assert_eq!(&magic, b"TONTPROC");
    assert_eq!(word(fd, at("version")), 4);
    assert_eq!(word(fd, at("pid")), std::process::id());
    let life = word(fd, at("life")) as usize;
    assert!((at("mutex")..at("mutex") + 64).contains(&life) && life.is_multiple_of(4), "{life}");
    let holder = word(fd, life) & 0x3fff_ffff;
    let holder = format!("/proc/self/task/{holder}/comm");
    assert_eq!(
        std::fs::read_to_string(holder).expect("the anchor thread").trim(),
        "tontine-anchor"
    );
    let size = rustix::fs::fstat(fd).expect("fstat").st_size as usize;
    assert_eq!(size, (at("desks") + 1024 * 64).next_multiple_of(4096));
}
