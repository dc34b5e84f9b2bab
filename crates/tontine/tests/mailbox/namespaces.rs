//! Mailboxes between containers: processes with their own PID, mount and network namespaces, which
//! share one folder, or one passed descriptor.

#![allow(unsafe_code, reason = "unshare, mount and kill")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::asleep::until_asleep;
use crate::common::*;
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender};

const NAMESPACES: i32 = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWNET;

/// Moves this process into new namespaces.
fn unshare() -> std::io::Result<()> {
    // SAFETY: the call changes only the resources that this process sees, and none of its memory.
    if unsafe { libc::unshare(NAMESPACES) } == 0 {
        return Ok(());
    }
    // SAFETY: as above; with a user namespace it needs no privilege, if the system permits that.
    match unsafe { libc::unshare(NAMESPACES | libc::CLONE_NEWUSER) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns `true` if namespaces can be created here; otherwise prints the reason.
fn possible() -> bool {
    let report = Signal::new();
    let child = fork(|| {
        let errno = unshare().err().and_then(|error| error.raw_os_error());
        report.give(errno.unwrap_or(0));
    });
    let errno = report.take();
    reap(child);
    match errno {
        0 => true,
        errno => {
            let why = std::io::Error::from_raw_os_error(errno);
            println!("skipped: no namespaces can be made here: {why}");
            false
        }
    }
}

/// A process with its own namespaces, the first in its PID namespace.
struct Container {
    /// The process that created the container and waits for it.
    outer: i32,
    inner: i32,
}

impl Container {
    fn run(body: impl FnOnce()) -> Self {
        let report = Signal::new();
        let outer = fork(|| {
            unshare().expect("the call succeeded before");
            let inner = fork(|| {
                assert_eq!(std::process::id(), 1, "a PID namespace of its own");
                body();
            });
            report.give(inner);
            reap(inner);
        });
        Self { outer, inner: report.take() }
    }

    fn kill(self) {
        // SAFETY: the process that created `inner` has not ended, and reaps it only after its end.
        assert_eq!(unsafe { libc::kill(self.inner, libc::SIGKILL) }, 0);
        self.wait();
    }

    fn wait(self) {
        reap(self.outer);
    }
}

/// Sets the users of a process's user namespace: 0 to 69,999 are 100,000 and higher here.
fn map_users(process: i32) {
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{process}/{file}"), "0 100000 70000").expect("mapped");
    }
}

/// Becomes another user.
fn become_user(uid: u32) {
    // SAFETY: the calls change only the credentials of this process.
    let errors =
        unsafe { libc::setgroups(0, std::ptr::null()) | libc::setgid(uid) | libc::setuid(uid) };
    assert_eq!(errors, 0, "{}", std::io::Error::last_os_error());
}

/// Regression: a receiver that ran as uid 65534 in a user namespace admitted every user that the
/// namespace does not map, since the kernel reports them all as 65534.
#[test]
fn unmapped_user_does_not_count_as_own_user() {
    if !rustix::process::geteuid().is_root() || !possible() {
        return println!("skipped: only root can map the users of a namespace");
    }
    let name = format!("@tontine-overflow-{}", std::process::id());
    for (allow, admitted) in [(false, false), (true, true)] {
        let make = Signal::new();
        let map = Signal::new();
        let bind = Signal::new();
        let receiver = fork(|| {
            // SAFETY: the call takes an integer.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, 0);
            make.give(0);
            map.take();
            become_user(65534);
            let options = Options::new();
            let options = if allow { options.allow_uid(65534) } else { options };
            let mut mailbox = options.bind(name.as_str()).expect("binds");
            bind.give(0);
            if admitted {
                assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"hello");
                return;
            }
            until("a stranger is refused", || {
                let received = mailbox.try_recv().map(|message| message.to_vec());
                assert_eq!(received, Err(Error::WouldBlock));
                let refused = mailbox.take_errors();
                refused.iter().for_each(|error| assert!(matches!(error, Error::Denied { .. })));
                !refused.is_empty()
            });
        });
        make.take();
        map_users(receiver);
        map.give(0);
        bind.take();
        let sender = fork(|| {
            become_user(3002);
            // A quick receiver refuses the lane before `connect` returns.
            let sent =
                Options::new().allow_any_uid().connect(name.as_str()).and_then(|mut sender| {
                    sender.send(b"hello")?;
                    sender.wait_acked(Some(AMPLE))
                });
            let is_denied = matches!(sent, Err(Error::Denied { .. }));
            assert_eq!((sent.is_ok(), is_denied), (admitted, !admitted), "{sent:?}");
        });
        assert_eq!(reap(sender), 0);
        assert_eq!(reap(receiver), 0);
    }
}

/// Mounts the folder at another path, only in this mount namespace.
fn show_elsewhere(folder: &Path, elsewhere: &Path) {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no zeros");
    let (from, to, root) = (text(folder), text(elsewhere), text(Path::new("/")));
    let none = std::ptr::null();
    // SAFETY: the strings are terminated, and the kernel keeps none of them.
    unsafe {
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let made = libc::mount(none, root.as_ptr(), none, private, none.cast());
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        let bound = libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_BIND, none.cast());
        assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    }
}

/// With a user namespace, each side sees the other as uid *nobody*.
fn options() -> Options {
    Options::new().allow_any_uid().lane_cap(1 << 16)
}

fn receive(mailbox: &mut Mailbox, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let message = mailbox.recv_timeout(AMPLE).expect("a message");
        assert_eq!(*message, number.to_le_bytes());
        assert_eq!(message.peer().pid, None, "the pid is not visible in this namespace");
    }
    mailbox.ack();
}

fn send(sender: &mut Sender, mut numbers: std::ops::Range<u32>) {
    numbers.try_for_each(|number| sender.send_timeout(&number.to_le_bytes(), AMPLE)).expect("sent");
}

#[test]
fn containers_sharing_folder_communicate_and_notice_deaths() {
    alone!();
    if !possible() {
        return;
    }
    let place = place();
    let folder = place.path.parent().expect("a folder").to_owned();
    let other = tempfile::tempdir().expect("a folder");
    let reader_tells = Signal::new();
    let sender_tells = Signal::new();
    let reader = Container::run(|| {
        show_elsewhere(&folder, other.path());
        let mut mailbox = options().bind(other.path().join("mailbox")).expect("binds");
        reader_tells.give(0);
        receive(&mut mailbox, 0..1000);
        reader_tells.give(0);
        sleep_indefinitely();
    });
    reader_tells.take();
    let sender = Container::run(|| {
        let options = options().on_death(OnDeath::WaitForSuccessor);
        let mut lane = connect(&options, &place.path);
        send(&mut lane, 0..1100);
        sender_tells.give(0);
        // This call blocks until the receiver has died, and its successor has bound and read.
        lane.wait_acked(Some(AMPLE)).expect("read by the successor");
        send(&mut lane, 1100..1200);
        lane.wait_acked(Some(AMPLE)).expect("read");
        sender_tells.give(0);
        sleep_indefinitely();
    });
    reader_tells.take();
    sender_tells.take();
    // A rival in another container is refused. The error has no pid, which would name a different
    // process here.
    let rival = Container::run(|| {
        let error = options().bind(&place.path).expect_err("taken");
        assert!(matches!(error, Error::AddrInUse { holder: None, .. }), "{error}");
        reader_tells.give(0);
    });
    reader_tells.take();
    rival.wait();
    reader.kill();
    let successor = Container::run(|| {
        let mut mailbox = options().bind(&place.path).expect("a free address");
        receive(&mut mailbox, 1000..1200);
        reader_tells.give(0);
        until("the sender's death is noticed", || {
            let _ = mailbox.recv_timeout(Duration::from_millis(20));
            mailbox.sender_count() == 0
        });
        reader_tells.give(0);
    });
    reader_tells.take();
    sender_tells.take();
    sender.kill();
    reader_tells.take();
    successor.wait();
}

#[test]
fn one_passed_descriptor_suffices_between_containers() {
    alone!();
    if !possible() {
        return;
    }
    let _place = place();
    let (ours, theirs) = crate::raw::pair();
    let report = Signal::new();
    let (mut ours, mut theirs) = (Some(ours), Some(theirs));
    let reader = Container::run(|| {
        drop(theirs.take());
        let mut mailbox = options().unbound().expect("opens");
        mailbox.adopt(ours.take().expect("passed in")).expect("takes it");
        receive(&mut mailbox, 0..1000);
        report.give(0);
        sleep_indefinitely();
    });
    let sender = Container::run(|| {
        drop(ours.take());
        let mut lane =
            options().connect_socket(theirs.take().expect("passed in")).expect("the lane begins");
        send(&mut lane, 0..1000);
        lane.wait_acked(Some(AMPLE)).expect("read");
        report.give(0);
        // The other end of the pair is still open elsewhere, so no hang-up reports the receiver's
        // death.
        let error = loop {
            if let Err(error) = lane.send_timeout(&[0; 1000], AMPLE) {
                break error;
            }
        };
        assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
        assert!(lane.take_unread().expect("the process has ended").len() > 10);
        report.give(0);
    });
    report.take();
    report.take();
    until_asleep(sender.inner);
    reader.kill();
    report.take();
    sender.wait();
    drop((ours, theirs));
}
