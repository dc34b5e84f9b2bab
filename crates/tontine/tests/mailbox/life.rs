//! Lives of real processes: each row of the table in [`tontine::life`], each kind of end, and each
//! event that must not be reported as an end.

#![allow(unsafe_code, reason = "fork, kill and bare clones")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crate::asleep::has_main_thread_ended;
use crate::child::{Child, Pipe, eventually};
use crate::common::sleep_indefinitely;
use crate::raw;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::Signal;
use tontine::life::{Life, Watch};
use tontine::mailbox::{Mailbox, Sender};

/// Starts a child that registers and runs `then`; returns the child and a watch on it.
fn registered(then: impl FnOnce(&Pipe)) -> (Child, Watch) {
    let child = Child::fork(|pipe| {
        pipe.send_descriptor(Life::register().expect("life").as_fd());
        then(pipe);
    });
    let watch = Watch::from_fd(child.pipe.receive_descriptor()).expect("watch");
    assert!(watch.is_alive());
    (child, watch)
}

#[test]
fn life_lasts_until_sigkill_even_while_stopped() {
    alone!();
    let (mut child, watch) = registered(|_| sleep_indefinitely());
    thread::sleep(Duration::from_millis(20));
    assert!(watch.is_alive());
    child.signal(Signal::STOP);
    child.wait_until_stopped();
    assert!(watch.is_alive());
    child.kill();
    assert!(!watch.is_alive());
}

#[test]
fn life_ends_with_exit_crash_exec_or_holding_thread() {
    fn crash() {
        // SAFETY: `abort` only ends the process.
        unsafe { libc::abort() }
    }
    alone!();
    let exec = || {
        let arguments = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
        // SAFETY: the strings are terminated, and the list ends in a null pointer.
        unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
    };
    let end_thread = || {
        thread::spawn(|| thread::sleep(Duration::from_secs(1000)));
        exit_main_thread();
    };
    let exit: fn() = || ();
    // The status of a process that ends too.
    let ends = [
        ("exit", exit, Some(0)),
        ("crash", crash, Some(128 + libc::SIGABRT)),
        ("exec", exec, None),
        ("end of the holding thread", end_thread, None),
    ];
    for (name, end, status) in ends {
        let (mut child, watch) = registered(|pipe| {
            pipe.receive_byte();
            end();
        });
        child.pipe.send_byte(1);
        if let Some(status) = status {
            assert_eq!(child.wait(), status, "{name}");
        } else {
            assert!(eventually(|| !watch.is_alive()), "{name}");
            assert!(child.is_running(), "{name}");
            child.kill();
        }
        assert!(!watch.is_alive(), "{name}");
    }
}

#[test]
fn thread_life_ends_with_thread_and_new_life_can_begin() {
    alone!();
    let mut child = Child::fork(|pipe| {
        let thread = thread::spawn(|| Life::register_thread().expect("life"));
        let life = thread.join().expect("the thread");
        pipe.send_descriptor(life.as_fd());
        assert!(eventually(|| Life::current().is_none()));
        let next = Life::register().expect("a new life");
        pipe.send_descriptor(next.as_fd());
        pipe.receive_byte();
    });
    let first = Watch::from_fd(child.pipe.receive_descriptor()).expect("watch");
    assert!(eventually(|| !first.is_alive()));
    let second = Watch::from_fd(child.pipe.receive_descriptor()).expect("watch");
    assert!(second.is_alive() && !first.is_alive());
    child.pipe.send_byte(1);
    assert_eq!(child.wait(), 0);
    assert!(!second.is_alive());
}

#[test]
fn forked_child_does_not_keep_life_of_parent() {
    alone!();
    let (mut child, watch) = registered(|pipe| {
        let grandchild = Child::fork(|_| sleep_indefinitely());
        pipe.send_pid(grandchild.pid());
        sleep_indefinitely();
    });
    let grandchild = child.pipe.receive_pid();
    child.kill();
    assert!(!watch.is_alive());
    rustix::process::test_kill_process(grandchild).expect("the grandchild lives");
    rustix::process::kill_process(grandchild, Signal::KILL).expect("kill");
}

#[test]
fn forked_child_has_no_life_before_registration() {
    alone!();
    let (mut child, parents) = registered(|pipe| {
        let mut grandchild = Child::fork(|_| {
            assert!(Life::current().is_none());
            let second = Life::register().expect("life");
            assert!(std::ptr::eq(second, Life::current().expect("registered")));
            pipe.send_descriptor(second.as_fd());
            pipe.receive_byte();
        });
        assert_eq!(grandchild.wait(), 0);
        assert!(Life::current().is_some());
        sleep_indefinitely();
    });
    let childs = Watch::from_fd(child.pipe.receive_descriptor()).expect("watch");
    assert!(childs.is_alive() && parents.is_alive());
    child.pipe.send_byte(1);
    assert!(eventually(|| !childs.is_alive()));
    assert!(parents.is_alive());
    child.kill();
}

#[test]
fn process_created_without_c_library_is_refused() {
    alone!();
    for registers_first in [false, true] {
        let mut child = Child::fork(|_| {
            if registers_first {
                Life::register().expect("life");
            }
            let mut arguments = [0_u64; 8];
            arguments[4] = libc::SIGCHLD as u64;
            // SAFETY: clone3 without CLONE_VM is a fork that the C library does not observe; the
            // copy exits through `_exit`.
            let stranger = unsafe {
                libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments))
            };
            if stranger == 0 {
                let refused =
                    Life::register().is_err_and(|error| error.errno() == libc::EOPNOTSUPP);
                // SAFETY: `_exit` only ends the process.
                unsafe { libc::_exit(i32::from(!refused)) };
            }
            assert!(stranger > 0, "clone3: {}", std::io::Error::last_os_error());
            let mut status = 1;
            // SAFETY: `status` is writable.
            unsafe { libc::waitpid(stranger as i32, &raw mut status, 0) };
            assert_eq!(status, 0, "the stranger was refused");
        });
        assert_eq!(child.wait(), 0, "registers first: {registers_first}");
    }
}

/// Returns the number of the calling process's anchor threads.
fn anchor_threads() -> usize {
    let is_anchor = |thread: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()?;
        (name.trim() == "tontine-anchor").then_some(())
    };
    std::fs::read_dir("/proc/self/task").expect("threads").filter_map(is_anchor).count()
}

/// Ends only the main thread, like `pthread_exit`, without unwinding.
fn exit_main_thread() {
    // SAFETY: the call ends the calling thread, whose stack no other thread uses.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Regression: when a user's first test created a sender and a mailbox, `bind` off the main thread
/// returned `NotMainThread`, which no program that runs its tests on threads could avoid.
#[test]
fn bind_and_connect_on_test_thread_need_no_setup() {
    alone!();
    let folder = tempfile::tempdir().expect("a folder");
    let mut mailbox = Mailbox::bind(folder.path().join("jobs")).expect("binds");
    let mut sender = Sender::connect(folder.path().join("jobs")).expect("connects");
    sender.send(b"hello").expect("sent");
    assert_eq!(&*mailbox.recv().expect("a message"), b"hello");
}

#[test]
fn register_on_main_thread_starts_no_thread() {
    alone!();
    let mut child = Child::fork(|_| {
        let life = Life::register().expect("life");
        assert_eq!(anchor_threads(), 0);
        // Each later call, on any thread, returns the same life.
        let register = [Life::register, Life::register_thread, Life::register_anchor_thread];
        for again in register {
            let elsewhere = thread::spawn(again).join().expect("the thread").expect("life");
            assert!(std::ptr::eq(elsewhere, life));
        }
        assert_eq!(anchor_threads(), 0);
    });
    assert_eq!(child.wait(), 0);
}

#[test]
fn register_off_main_thread_starts_anchor_thread() {
    alone!();
    let mut child = Child::fork(|pipe| {
        let life = thread::spawn(Life::register).join().expect("the thread").expect("life");
        pipe.send_descriptor(life.as_fd());
        assert_eq!(anchor_threads(), 1);
        assert!(std::ptr::eq(Life::register().expect("life"), life), "a process has one life");
        pipe.receive_byte();
    });
    let watch = Watch::from_fd(child.pipe.receive_descriptor()).expect("watch");
    assert!(watch.is_alive(), "though the thread that registered has ended");
    child.pipe.send_byte(1);
    assert_eq!(child.wait(), 0);
    assert!(!watch.is_alive());
}

#[test]
fn concurrent_first_registrations_create_one_life() {
    alone!();
    let mut child = Child::fork(|_| {
        let threads: Vec<_> = (0..8).map(|_| thread::spawn(Life::register)).collect();
        let first = Life::register().expect("life");
        for thread in threads {
            let life = thread.join().expect("the thread").expect("life");
            assert!(std::ptr::eq(life, first));
        }
        assert!(anchor_threads() <= 1);
    });
    assert_eq!(child.wait(), 0);
}

#[test]
fn life_on_anchor_thread_outlives_main_thread() {
    alone!();
    let off_main = || thread::spawn(Life::register).join().expect("the thread");
    let register: [fn() -> _; 2] = [Life::register_anchor_thread, off_main];
    for register in register {
        let mut child = Child::fork(|pipe| {
            pipe.send_descriptor(register().expect("life").as_fd());
            pipe.receive_byte();
            exit_main_thread();
        });
        let watch = Watch::from_fd(child.pipe.receive_descriptor()).expect("watch");
        child.pipe.send_byte(1);
        let pid = child.pid().as_raw_nonzero().get();
        assert!(eventually(|| has_main_thread_ended(pid)));
        assert!(watch.is_alive() && child.is_running());
        child.kill();
        assert!(!watch.is_alive());
    }
}

/// The main thread, which may have held the life, exits; then another thread registers.
#[test]
fn register_after_main_thread_exit_creates_life() {
    alone!();
    for registers_first in [true, false] {
        let mut child = Child::fork(|pipe| {
            let held = registers_first.then(|| Life::register().expect("life"));
            thread::scope(|threads| {
                threads.spawn(|| {
                    let main_runs = || {
                        let stat = std::fs::read_to_string("/proc/self/stat").expect("stat");
                        !stat.contains(") Z ")
                    };
                    assert!(eventually(|| !main_runs() && Life::current().is_none()));
                    let life = Life::register().expect("life");
                    assert!(held.is_none_or(|held| !std::ptr::eq(held, life)), "another life");
                    assert_eq!(anchor_threads(), 1);
                    pipe.send_descriptor(life.as_fd());
                    sleep_indefinitely();
                });
                exit_main_thread();
            });
        });
        let watch = Watch::from_fd(child.pipe.receive_descriptor()).expect("watch");
        assert!(watch.is_alive(), "registers first: {registers_first}");
        child.kill();
        assert!(!watch.is_alive());
    }
}

/// The forking thread is the child's main thread: the child needs no anchor thread.
#[test]
fn child_forked_off_main_thread_needs_no_anchor_thread() {
    alone!();
    let mut child = Child::fork(|_| {
        thread::spawn(Life::register).join().expect("the thread").expect("life");
        assert_eq!(anchor_threads(), 1);
        let forked = thread::spawn(|| {
            let mut grandchild = Child::fork(|_| {
                assert!(Life::current().is_none());
                Life::register().expect("life");
                assert_eq!(anchor_threads(), 0);
            });
            grandchild.wait()
        });
        assert_eq!(forked.join().expect("the thread"), 0);
    });
    assert_eq!(child.wait(), 0);
}

#[test]
fn anchor_thread_blocks_all_signals() {
    alone!();
    Life::register_anchor_thread().expect("life");
    let mask_of = |wanted: &str| {
        std::fs::read_dir("/proc/self/task").expect("threads").find_map(|thread| {
            let status = std::fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
            let field = |name: &str| {
                status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
            };
            (field("Name:")? == wanted).then(|| field("SigBlk:"))?
        })
    };
    let blocked = mask_of("tontine-anchor").expect("the anchor thread");
    let blocked = u64::from_str_radix(&blocked, 16).expect("a mask");
    // All signals are expected except the unblockable signals and the C library's own.
    let expected = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1) | 0b111 << 31);
    assert_eq!(blocked & expected, expected, "{blocked:#x}");
    let mut own = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call only queries this thread's mask; the set is writable.
    let term_is_blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), own.as_mut_ptr());
        libc::sigismember(own.as_ptr(), libc::SIGTERM)
    };
    assert_eq!(term_is_blocked, 0, "the caller's mask is as it was");
}

#[test]
fn process_page_is_writable_only_by_owner() {
    alone!();
    let life = Life::register().expect("life");
    let fd = life.as_fd();
    let writable = |fd: std::os::fd::BorrowedFd<'_>| {
        // SAFETY: the mapping is new, of an open descriptor, and never unmapped.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        at != libc::MAP_FAILED
    };
    assert!(!writable(fd));
    assert_eq!(rustix::io::pwrite(fd, &[0], 0), Err(rustix::io::Errno::PERM));
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    if let Ok(again) = std::fs::OpenOptions::new().read(true).write(true).open(path) {
        assert!(!writable(again.as_fd()));
        assert_eq!(rustix::io::pwrite(&again, &[0], 0), Err(rustix::io::Errno::PERM));
    }
    // SAFETY: the mapping is new and read-only; the second call cannot widen its permissions.
    let widened = unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        libc::mprotect(at, 4096, libc::PROT_READ | libc::PROT_WRITE)
    };
    assert_eq!(widened, -1);
}

/// Creates a sealed memfd of the size of a process page that begins with these values.
fn page(magic: &[u8; 8], version: u32, life: u32) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("hostile", flags).expect("memfd");
    let mut bytes = vec![0_u8; raw::PROCESS_PAGE];
    bytes[..8].copy_from_slice(magic);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&life.to_le_bytes());
    assert_eq!(rustix::io::write(&fd, &bytes), Ok(raw::PROCESS_PAGE));
    let seals = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals).expect("seal");
    fd
}

#[test]
fn invalid_process_page_is_refused() {
    alone!();
    let errno = |fd: &OwnedFd| Watch::from_fd(fd).map_err(|error| error.errno());
    let well_formed = page(b"TONTPROC", raw::VERSION, 64);
    assert!(!Watch::from_fd(&well_formed).expect("well-formed").is_alive());
    assert_eq!(errno(&page(b"TONTLANE", raw::VERSION, 64)).err(), Some(libc::EPROTO));
    assert_eq!(errno(&page(b"TONTPROC", 1, 64)).err(), Some(libc::EPROTONOSUPPORT));
    for life in [0, 60, 65, 126, 128, 4092, 4096, u32::MAX, u32::MAX - 3] {
        assert_eq!(
            errno(&page(b"TONTPROC", raw::VERSION, life)).err(),
            Some(libc::EPROTO),
            "{life}"
        );
    }
    for life in [64, 68, 124] {
        assert!(errno(&page(b"TONTPROC", raw::VERSION, life)).is_ok(), "{life}");
    }
    let (pipe, _writer) = rustix::pipe::pipe().expect("pipe");
    let error = Watch::from_fd(&pipe).expect_err("a pipe");
    assert!(error.to_string().contains("descriptor of another kind"), "{error}");
}

#[test]
fn watch_outlives_descriptor_and_works_in_child() {
    alone!();
    let (mut child, watch) = registered(|_| sleep_indefinitely());
    let watch = &watch;
    let mut observer = Child::fork(|pipe| {
        assert!(watch.is_alive());
        pipe.send_byte(1);
        assert!(eventually(|| !watch.is_alive()));
    });
    observer.pipe.receive_byte();
    child.kill();
    assert_eq!(observer.wait(), 0);
}
