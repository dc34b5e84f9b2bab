//! Exec (the state that a process keeps, and errors), groups and subreapers.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::keeper::keep;
use crate::rules::harness::*;

/// A program that both backends have and that exits immediately.
const TRUE: &str = "/bin/true";
const ITSELF: Pid = Pid::number_only(0);

#[test]
fn exec_removes_the_alternate_stack() {
    everywhere_with(
        |builder| {
            builder.program("looks", |sys, _| (sys.sigstack(None).unwrap().size / 4096) as i32)
        },
        |sys| {
            let end = end_as(sys, |sys| {
                sys.sigstack(Some(SigStack { size: 65_536, on_stack: false })).unwrap();
                let Err(errno) = sys.exec("looks", &["looks"]);
                errno.raw()
            });
            assert_eq!(end, WaitStatus::Exited(0));
        },
    );
}

#[test]
fn exec_keeps_priority_and_group() {
    everywhere_with(
        |builder| {
            builder.program("looks", |sys, _| {
                assert_eq!(sys.getpriority(PriorityScope::Process(ITSELF)), Ok(7));
                assert_eq!(sys.getpgrp(), sys.getpid());
                11
            })
        },
        |sys| {
            let end = end_as(sys, |sys| {
                sys.setpgid(ITSELF, ITSELF).unwrap();
                sys.setpriority(PriorityScope::Process(ITSELF), 7).unwrap();
                let Err(errno) = sys.exec("looks", &["looks"]);
                errno.raw()
            });
            assert_eq!(end, WaitStatus::Exited(11));
        },
    );
}

/// Returns the error if a child of `user` cannot exec `path`, or `None` if it can.
fn refusal(path: &str, user: u32) -> Option<Errno> {
    let linux = Linux::new().expect("a kernel with pidfds");
    let sys: &dyn Sys = &linux;
    let path = path.to_owned();
    let end = end_as(sys, move |sys| {
        if user != 0 {
            sys.setuid(user).unwrap();
        }
        let Err(errno) = sys.exec(&path, &["program"]);
        errno.raw()
    });
    end.exited().filter(|status| *status != 0).map(Errno::from_raw)
}

/// Runs in a process of its own: a process that another test forks would hold the written files
/// open, and their exec would return ETXTBSY.
#[test]
fn exec_of_unusable_file_returns_specific_errno() {
    let status = keep(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))
            .expect("the caller's own file");
        let file = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            File::create(&path).expect("a file");
            fs::set_permissions(&path, Permissions::from_mode(mode))
                .expect("the caller's own file");
            path.to_str().expect("text").to_owned()
        };
        let empty = file("empty", 0o755);
        let written = file("written", 0o755);
        fs::copy(TRUE, &written).expect("a program");
        let private = file("private", 0o700);
        fs::copy(TRUE, &private).expect("a program");
        fs::set_permissions(&private, Permissions::from_mode(0o700))
            .expect("the caller's own file");
        let writer = OpenOptions::new().write(true).open(&written).expect("the caller's own file");
        let cases = [
            ("/".to_owned() + &"x".repeat(300), 0, Errno::ENAMETOOLONG),
            (folder.path().join("nothing").to_str().unwrap().to_owned(), 0, Errno::ENOENT),
            (String::new(), 0, Errno::ENOENT),
            (empty.clone() + "/x", 0, Errno::ENOTDIR),
            (file("text", 0o644), 0, Errno::EACCES),
            (empty, 0, Errno::ENOEXEC),
            (written.clone(), 0, Errno::ETXTBSY),
            (private, 54_321, Errno::EACCES),
        ];
        for (path, user, errno) in cases {
            assert_eq!(refusal(&path, user), Some(errno), "{path}");
        }
        drop(writer);
        assert_eq!(refusal(&written, 0), None, "the writer has closed the file");
        0
    });
    assert_eq!(status, Some(0));
}

#[test]
fn many_children_call_exec_concurrently() {
    everywhere_with(
        |builder| builder.program(TRUE, |_, _| 0),
        |sys| {
            let bell = Bell::new(sys);
            let children = [0; 8].map(|_| {
                sys.fork(move |sys| {
                    bell.heard(sys);
                    let Err(errno) = sys.exec(TRUE, &["true"]);
                    errno.raw()
                })
                .unwrap()
            });
            for _ in children {
                bell.ring(sys);
            }
            for child in children {
                assert_eq!(end_of(sys, child), WaitStatus::Exited(0));
            }
        },
    )
    .and_on_linux();
}

#[test]
fn program_without_arguments_gets_an_empty_name() {
    everywhere_with(
        |builder| builder.program("counts", |_, arguments| i32::from(arguments == [""])),
        |sys| {
            let end = end_as(sys, |sys| {
                let Err(errno) = sys.exec("counts", &[]);
                errno.raw()
            });
            assert_eq!(end, WaitStatus::Exited(1));
            let child = sys.spawn(&SpawnRequest::new("counts", &[])).unwrap();
            assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
        },
    );
}

#[test]
fn subreaper_may_be_set_by_any_thread() {
    everywhere(|sys| {
        let thread = sys.thread(|sys| sys.set_subreaper(true).unwrap()).unwrap();
        sys.join(thread).unwrap();
        block(sys, &[Signal::CHLD]);
        let bell = Bell::new(sys);
        let end = end_as(sys, move |sys| {
            sys.fork(move |sys| {
                bell.heard(sys);
                9
            })
            .unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        let chld = SigSet::of(&[Signal::CHLD]);
        assert_eq!(sys.sigtimedwait(chld, None).unwrap().status, 0, "its own child");
        bell.ring(sys);
        let info = sys.sigtimedwait(chld, None).unwrap();
        assert_eq!((info.code, info.status), (SigCode::Exited, 9), "the orphan");
        let waited = sys.wait().unwrap();
        assert_eq!((waited.pid.number(), waited.status), (info.pid, WaitStatus::Exited(9)));
        sys.set_subreaper(false).unwrap();
    })
    .and_on_linux();
}

#[test]
fn setpgid_of_self_keeps_the_group_or_creates_one() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            let (me, before) = (sys.getpid(), sys.getpgrp());
            assert_ne!(before.number(), me.number(), "the caller leads no group");
            assert_eq!(sys.setpgid(me, before), Ok(()));
            assert_eq!(sys.getpgrp(), before);
            assert_eq!(sys.setpgid(ITSELF, ITSELF), Ok(()));
            assert_eq!(sys.getpgrp().number(), me.number());
            assert_eq!(sys.setpgid(ITSELF, ITSELF), Ok(()), "again");
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}
