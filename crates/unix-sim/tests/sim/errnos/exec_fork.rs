//! Errors of calls that create processes and of calls that run programs.

use std::os::unix::fs::{PermissionsExt, symlink};

use tontine_unix::{Errno, Fd, Resource, Result, SpawnGroup, SpawnRequest, Sys};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, refused};
use crate::errnos::scene::{CAT, MINUS_ONE, MISSING, demote, foreigner, limit, reaped, sleeper};

/// Length in bytes of an argument that, with its terminating NUL, exceeds the maximum.
const LONG: usize = 128 << 10;
/// Reason why rows about files run on Linux only.
const NO_FILES: &str = "Virtual executes registered programs and has no files";

pub(crate) const ROWS: &[Row] = &[
    // fork
    refused("fork_boxed()", "the user is at the process limit", Errno::EAGAIN, |sys| {
        demote(sys);
        limit(sys, Resource::Processes, 1);
        sys.fork(|_| 0).map(drop)
    })
    .as_root(),
    // exec
    refused("exec(path)", "no such program", Errno::ENOENT, |sys| exec(sys, "/no/such/program")),
    refused("exec(path)", "empty", Errno::ENOENT, |sys| exec(sys, "")),
    refused("exec(path)", "with a zero in it", Errno::ENOENT, |sys| exec(sys, "/bin/\0cat")),
    refused("exec(path)", "a directory", Errno::EACCES, |sys| exec(sys, "/")).on_linux(NO_FILES),
    refused("exec(path)", "below a file that is not a directory", Errno::ENOTDIR, |sys| {
        exec(sys, "/proc/version/x")
    })
    .on_linux(NO_FILES),
    refused("exec(path)", "not executable", Errno::EACCES, |sys| {
        exec_file(sys, b"#!/bin/cat\n", 0o644)
    })
    .on_linux(NO_FILES),
    refused("exec(path)", "not a program", Errno::ENOEXEC, |sys| exec_file(sys, b"words\n", 0o755))
        .on_linux(NO_FILES),
    refused("exec(path)", "a missing interpreter", Errno::ENOENT, |sys| {
        exec_file(sys, b"#!/no/such/program\n", 0o755)
    })
    .on_linux(NO_FILES),
    refused("exec(path)", "being written", Errno::ETXTBSY, |sys| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        std::fs::copy(CAT, &path).expect("a copy");
        let _writer = std::fs::File::options().append(true).open(&path).expect("it is there");
        exec(sys, path.to_str().expect("a plain name"))
    })
    .on_linux(NO_FILES),
    refused("exec(path)", "a link to itself", Errno::ELOOP, |sys| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("link");
        symlink(&path, &path).expect("a link");
        exec(sys, path.to_str().expect("a plain name"))
    })
    .on_linux(NO_FILES),
    refused("exec(path)", "too long", Errno::ENAMETOOLONG, |sys| exec(sys, &"x".repeat(5000)))
        .on_linux(NO_FILES),
    refused("exec(path)", "a file that another user may not execute", Errno::EACCES, |sys| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        std::fs::copy(CAT, &path).expect("a copy");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("chmod");
        demote(sys);
        exec(sys, path.to_str().expect("a plain name"))
    })
    .on_linux(NO_FILES),
    refused("exec(arguments)", "one is too long", Errno::E2BIG, |sys| {
        sys.exec(CAT, &["cat", &"x".repeat(LONG)]).map(drop)
    }),
    refused("exec(arguments)", "all are too long", Errno::E2BIG, |sys| {
        sys.exec(CAT, &["x".repeat(LONG / 2).as_str(); 100]).map(drop)
    }),
    refused("exec(arguments)", "a zero in one", Errno::EINVAL, |sys| {
        sys.exec(CAT, &["cat", "a\0b"]).map(drop)
    }),
    refused("exec(arguments)", "one is too long, and no such program", Errno::ENOENT, |sys| {
        sys.exec("/no/such/program", &[&"x".repeat(LONG)]).map(drop)
    }),
    // spawn
    refused("spawn(spawn)", "no such program", Errno::ENOENT, |sys| {
        start(sys, SpawnRequest::new("/no/such/program", &["x"]))
    }),
    refused("spawn(spawn)", "an empty path", Errno::ENOENT, |sys| {
        start(sys, SpawnRequest::default())
    }),
    refused("spawn(spawn)", "a directory", Errno::EACCES, |sys| {
        start(sys, SpawnRequest::new("/", &["x"]))
    })
    .on_linux(NO_FILES),
    refused("spawn(spawn)", "one argument is too long", Errno::E2BIG, |sys| {
        start(sys, SpawnRequest::new(CAT, &["cat", &"x".repeat(LONG)]))
    }),
    refused("spawn(spawn)", "a zero in an argument", Errno::EINVAL, |sys| {
        start(sys, SpawnRequest::new(CAT, &["cat", "a\0b"]))
    }),
    refused("spawn(spawn)", "a missing group", Errno::EPERM, |sys| {
        start(sys, SpawnRequest { group: SpawnGroup::Of(MISSING), ..a_cat() })
    }),
    refused("spawn(spawn)", "a process that leads no group", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        start(sys, SpawnRequest { group: SpawnGroup::Of(child), ..a_cat() })
    }),
    refused("spawn(spawn)", "an invalid group number", Errno::EINVAL, |sys| {
        start(sys, SpawnRequest { group: SpawnGroup::Of(MINUS_ONE), ..a_cat() })
    }),
    refused("spawn(spawn)", "a group of another session", Errno::EPERM, |sys| {
        let stranger = foreigner(sys);
        start(sys, SpawnRequest { group: SpawnGroup::Of(stranger), ..a_cat() })
    }),
    refused("spawn(spawn)", "a group that has ended", Errno::EPERM, |sys| {
        let gone = reaped(sys);
        start(sys, SpawnRequest { group: SpawnGroup::Of(gone), ..a_cat() })
    }),
    refused("spawn(spawn)", "both a session and a group", Errno::EPERM, |sys| {
        start(sys, SpawnRequest { session: true, group: SpawnGroup::Own, ..a_cat() })
    }),
    refused("spawn(spawn)", "a descriptor that is not open", Errno::EBADF, |sys| {
        start(sys, SpawnRequest { descriptors: vec![(Fd(77), Fd::STDIN)], ..a_cat() })
    }),
    refused("spawn(spawn)", "the descriptor −1", Errno::EBADF, |sys| {
        start(sys, SpawnRequest { descriptors: vec![(Fd(-1), Fd::STDIN)], ..a_cat() })
    }),
    refused("spawn(spawn)", "a closed descriptor mapped to itself", Errno::EBADF, |sys| {
        start(sys, SpawnRequest { descriptors: vec![(Fd(77), Fd(77))], ..a_cat() })
    }),
    refused("spawn(spawn)", "a descriptor mapped to −1", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        start(sys, SpawnRequest { descriptors: vec![(from, Fd(-1))], ..a_cat() })
    }),
    refused("spawn(spawn)", "a descriptor mapped to the highest number", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        start(sys, SpawnRequest { descriptors: vec![(from, Fd(i32::MAX))], ..a_cat() })
    }),
    refused("spawn(spawn)", "a bad descriptor precedes a missing program", Errno::EBADF, |sys| {
        let descriptors = vec![(Fd(77), Fd::STDIN)];
        start(sys, SpawnRequest { descriptors, ..SpawnRequest::new("/no/such/program", &["x"]) })
    }),
    refused("spawn(spawn)", "a bad group precedes a bad descriptor", Errno::EPERM, |sys| {
        let descriptors = vec![(Fd(77), Fd::STDIN)];
        start(sys, SpawnRequest { descriptors, group: SpawnGroup::Of(MISSING), ..a_cat() })
    }),
    refused("spawn()", "the user is at the process limit", Errno::EAGAIN, |sys| {
        demote(sys);
        limit(sys, Resource::Processes, 1);
        start(sys, a_cat())
    })
    .as_root(),
    refused("wait()", "a failed spawn leaves no child", Errno::ECHILD, |sys| {
        start(sys, SpawnRequest::default()).expect_err("an empty path");
        sys.wait().map(drop)
    }),
];

fn exec(sys: &dyn Sys, path: &str) -> Result<()> {
    sys.exec(path, &["x"]).map(drop)
}

/// Calls exec with a file whose content is `text`.
fn exec_file(sys: &dyn Sys, text: &[u8], mode: u32) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("program");
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("chmod");
    exec(sys, path.to_str().expect("a plain name"))
}

fn a_cat() -> SpawnRequest {
    SpawnRequest::new(CAT, &["cat"])
}

fn start(sys: &dyn Sys, spawn: SpawnRequest) -> Result<()> {
    sys.spawn(&spawn).map(drop)
}

#[test]
fn exec_and_spawn_errors_match_linux() {
    hold(ROWS);
}
