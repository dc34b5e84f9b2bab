//! Path locks among real processes: which process acquires a lock, and what releases it.

#![allow(unsafe_code, reason = "exec and bare closes in forked children")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::child::{Child, Pipe, eventually};
use crate::common::{record_lock, sleep_indefinitely};
use tontine::Error;
use tontine::life::PathLock;

/// A test's own path, whose lock file is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tontine-{name}-{}", std::process::id()));
        let scratch = Self(path);
        let _ = std::fs::remove_file(scratch.lock());
        scratch
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn lock(&self) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(".lock");
        name.into()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.lock());
    }
}

/// Starts a child that holds a path lock and then runs `then`.
fn owner(scratch: &Scratch, then: impl FnOnce(&Pipe)) -> Child {
    let child = Child::fork(|pipe| {
        let _lock = PathLock::acquire(scratch.path()).expect("lock");
        pipe.send_byte(1);
        then(pipe);
    });
    assert_eq!(child.pipe.receive_byte(), 1);
    child
}

fn holder(scratch: &Scratch) -> Option<u32> {
    match PathLock::acquire(scratch.path()) {
        Err(Error::AddrInUse { address, holder }) => {
            assert_eq!(address, scratch.path().display().to_string());
            Some(holder.expect("a pid that can be seen from here"))
        }
        other => panic!("expected it to be in use, found {other:?}"),
    }
}

#[test]
fn path_lock_is_exclusive_and_names_holder() {
    alone!();
    let scratch = Scratch::new("lock-two");
    let mut child = owner(&scratch, |_| sleep_indefinitely());
    let pid = child.pid().as_raw_nonzero().get().cast_unsigned();
    assert_eq!(holder(&scratch), Some(pid));
    child.kill();
    let _lock = PathLock::acquire(scratch.path()).expect("free after SIGKILL");
}

#[test]
fn path_lock_cannot_be_acquired_twice_by_process() {
    alone!();
    let scratch = Scratch::new("lock-twice");
    let lock = PathLock::acquire(scratch.path()).expect("lock");
    assert_eq!(holder(&scratch), Some(std::process::id()));
    // The failed attempt must not have dropped the lock, which another process still sees.
    let mut child = Child::fork(|_| assert_eq!(holder(&scratch), Some(parent())));
    assert_eq!(child.wait(), 0);
    drop(lock);
    let mut child =
        Child::fork(|_| drop(PathLock::acquire(scratch.path()).expect("free when dropped")));
    assert_eq!(child.wait(), 0);
    assert!(!scratch.lock().exists(), "the last owner removes the lock file");
}

#[test]
fn path_lock_is_free_after_death_though_child_lives() {
    alone!();
    let scratch = Scratch::new("lock-forked");
    let mut child = owner(&scratch, |pipe| {
        let grandchild = Child::fork(|_| sleep_indefinitely());
        pipe.send_pid(grandchild.pid());
        sleep_indefinitely();
    });
    let grandchild = child.pipe.receive_pid();
    child.kill();
    rustix::process::test_kill_process(grandchild).expect("the grandchild lives");
    let lock = PathLock::acquire(scratch.path());
    rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).expect("kill");
    lock.expect("a free lock");
}

#[test]
fn path_lock_is_free_after_exec() {
    alone!();
    let scratch = Scratch::new("lock-exec");
    let child = owner(&scratch, |_| {
        let arguments = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
        // SAFETY: the strings are terminated, and the list ends in a null pointer.
        unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
    });
    assert!(eventually(|| PathLock::acquire(scratch.path()).is_ok()));
    assert!(child.is_running());
}

#[test]
fn path_lock_copy_dropped_in_child_does_not_release_lock() {
    alone!();
    let scratch = Scratch::new("lock-copy");
    let lock = PathLock::acquire(scratch.path()).expect("lock");
    let (inherited, path) = (&lock, &scratch);
    let mut early = Child::fork(|_| {
        // SAFETY: the copy is the child's own, and is dropped once in the child.
        drop(unsafe { std::ptr::read(inherited) });
        assert_eq!(holder(path), Some(parent()));
    });
    assert_eq!(early.wait(), 0);
    // The parent releases the lock and the child acquires it. Dropping the inherited copy then must
    // not release the child's lock.
    let mut late = Child::fork(|pipe| {
        pipe.receive_byte();
        let own = PathLock::acquire(path.path()).expect("a free lock");
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(inherited) });
        pipe.send_byte(1);
        pipe.receive_byte();
        drop(own);
    });
    drop(lock);
    late.pipe.send_byte(1);
    assert_eq!(late.pipe.receive_byte(), 1);
    let pid = late.pid().as_raw_nonzero().get().cast_unsigned();
    assert_eq!(holder(&scratch), Some(pid), "the child's lock outlives the inherited copy");
    late.pipe.send_byte(1);
    assert_eq!(late.wait(), 0);
    drop(PathLock::acquire(scratch.path()).expect("a free lock"));
}

/// Regression: another user made the lock file beforehand, and could remove it while it was locked,
/// so that there could be two live owners.
#[test]
fn lock_file_of_another_user_is_refused() {
    alone!();
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can make another user's file");
    }
    let scratch = Scratch::new("lock-owner");
    std::fs::write(scratch.lock(), b"").expect("made");
    std::os::unix::fs::chown(scratch.lock(), Some(3002), None).expect("given away");
    let refused = PathLock::acquire(scratch.path()).expect_err("another user's");
    assert!(refused.to_string().contains("of this user or of root"), "{refused}");
    assert!(scratch.lock().exists(), "the file is not this process's to remove");
}

/// Regression: under umask 0277 a lock file was not readable for its own user, whose next process
/// could not lock it.
#[test]
fn umask_does_not_take_lock_file_from_its_user() {
    alone!();
    let scratch = Scratch::new("lock-umask");
    let mut child = Child::fork(|_| {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o277));
        let lock = PathLock::acquire(scratch.path()).expect("lock");
        let mode = std::fs::metadata(scratch.lock()).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(lock);
    });
    assert_eq!(child.wait(), 0);
}

/// A process opens the lock file, and the owner removes it before the process locks it. The process
/// then locks the file that the name leads to, so that there is one owner in each round.
#[test]
fn removed_lock_file_has_no_owner() {
    alone!();
    let scratch = Scratch::new("lock-removed");
    let log = tempfile::tempdir().expect("a folder");
    let rounds = |_: &Pipe| {
        for _ in 0..300 {
            let lock = loop {
                match PathLock::acquire(scratch.path()) {
                    Ok(lock) => break lock,
                    Err(error) => assert!(matches!(error, Error::AddrInUse { .. }), "{error}"),
                }
            };
            // Only the owner makes and removes this file.
            let owned = log.path().join("owned");
            std::fs::File::create_new(&owned).expect("a second owner lives");
            std::fs::remove_file(&owned).expect("removed");
            drop(lock);
        }
    };
    let mut children: Vec<_> = (0..3).map(|_| Child::fork(rounds)).collect();
    children.iter_mut().for_each(|child| assert_eq!(child.wait(), 0));
    assert!(!scratch.lock().exists());
}

#[test]
fn path_lock_refuses_link_and_missing_folder() {
    alone!();
    let scratch = Scratch::new("lock-link");
    std::os::unix::fs::symlink("/dev/null", scratch.lock()).expect("symlink");
    assert_eq!(PathLock::acquire(scratch.path()).expect_err("a link").errno(), libc::ELOOP);
    let nowhere = Path::new("/nonexistent/mailbox");
    assert_eq!(PathLock::acquire(nowhere).expect_err("no folder").errno(), libc::ENOENT);
}

/// Regression: a user with write permission for the folder of an address linked the program's
/// database there as the lock file. The path lock opened that file, and when it closed the
/// descriptor, the kernel dropped the record lock with which the program protected its database.
#[test]
fn hard_link_to_locked_database_keeps_record_lock() {
    alone!();
    for is_moved in [false, true] {
        let scratch = Scratch::new("lock-database");
        let database = scratch.path().with_extension("database");
        std::fs::write(&database, b"rows").expect("written");
        let file = std::fs::File::options().read(true).write(true).open(&database).expect("open");
        assert!(record_lock(&file, 1), "locked");
        if is_moved {
            std::fs::rename(&database, scratch.lock()).expect("renamed");
        } else {
            std::fs::hard_link(&database, scratch.lock()).expect("linked");
        }
        let refused = PathLock::acquire(scratch.path());
        let is_refused = matches!(refused, Err(Error::InvalidAddress { .. }));
        drop(refused);
        let mut child = Child::fork(|_| assert!(!record_lock(&file, 1), "unlocked"));
        assert_eq!(child.wait(), 0, "the lock is held still");
        assert!(is_refused);
        let _ = std::fs::remove_file(database);
    }
}

/// Regression: a FIFO in place of the lock file was locked like a lock file, which no later owner
/// of the path could notice.
#[test]
fn fifo_or_folder_as_lock_file_is_refused() {
    alone!();
    let scratch = Scratch::new("lock-fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, scratch.lock(), mode).expect("made");
    let refused = PathLock::acquire(scratch.path()).expect_err("a FIFO");
    assert!(matches!(refused, Error::InvalidAddress { .. }), "{refused}");
    std::fs::remove_file(scratch.lock()).expect("removed");
    std::fs::create_dir(scratch.lock()).expect("made");
    let refused = PathLock::acquire(scratch.path());
    std::fs::remove_dir(scratch.lock()).expect("removed");
    let refused = refused.expect_err("a folder");
    assert!(matches!(refused, Error::InvalidAddress { .. }), "{refused}");
}

fn parent() -> u32 {
    // SAFETY: the call only returns a number.
    unsafe { libc::getppid() }.cast_unsigned()
}
