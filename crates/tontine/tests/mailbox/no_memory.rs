//! Lack of memory or of other resources at each step of a bind, a connect, a handshake and a
//! growth. A filter makes one system call of one thread fail. The error names the call, no
//! incomplete object is left, other senders are served, and the same operation succeeds in another
//! thread. Refused calls that the library can do without.

use std::time::Duration;

use crate::common::*;
use crate::raw::fuse::mount_privately;
use seccompiler::SeccompCmpOp;
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender, WaitStrategy};

const A_WHILE: Duration = Duration::from_millis(40);

/// A failing call and its name in the error. The failure can be restricted to calls in which one
/// argument has given bits.
#[derive(Clone, Copy)]
struct Lack {
    call: i64,
    when: Option<(u8, u64)>,
    errno: i32,
    name: &'static str,
}

const fn lack(call: i64, errno: i32, name: &'static str) -> Lack {
    Lack { call, when: None, errno, name }
}

impl Lack {
    /// Restricts the failure to calls whose argument `argument` has these bits.
    const fn when(self, argument: u8, bits: i32) -> Self {
        Self { when: Some((argument, bits as u64)), ..self }
    }

    /// Runs `body` in a separate thread, in which the call fails.
    fn during<T: Send>(self, body: impl FnOnce() -> T + Send) -> T {
        let when = self.when.map(|(argument, bits)| (argument, SeccompCmpOp::MaskedEq(bits), bits));
        without_call(self.call, self.errno, when, body)
    }

    fn is_named_by(self, error: &Error) {
        assert_eq!(error.errno(), self.errno, "{}: {error}", self.name);
        assert!(error.to_string().contains(self.name), "{}: {error}", self.name);
    }
}

/// The calls that create and pass memory.
const MEMORY: [Lack; 5] = [
    lack(libc::SYS_memfd_create, libc::ENOMEM, "memfd_create"),
    lack(libc::SYS_fallocate, libc::ENOSPC, "fallocate"),
    lack(libc::SYS_mmap, libc::ENOMEM, "mmap").when(3, libc::MAP_SHARED),
    lack(libc::SYS_madvise, libc::ENOMEM, "madvise").when(2, libc::MADV_DONTFORK),
    lack(libc::SYS_sendmsg, libc::ENOMEM, "sendmsg"),
];

#[test]
fn failed_call_during_bind_is_named_and_leaves_nothing() {
    alone!();
    let place = place();
    let folder = place.path.parent().expect("a folder");
    let lacks = [
        lack(libc::SYS_epoll_create1, libc::ENOMEM, "epoll_create1"),
        lack(libc::SYS_timerfd_create, libc::ENOMEM, "timerfd_create"),
        lack(libc::SYS_epoll_ctl, libc::ENOSPC, "epoll_ctl"),
        lack(libc::SYS_openat, libc::ENOSPC, "open of the lock file").when(2, libc::O_CREAT),
        lack(libc::SYS_socket, libc::ENOMEM, "socket"),
        lack(libc::SYS_bind, libc::ENOSPC, "bind"),
        lack(libc::SYS_listen, libc::ENOMEM, "listen"),
        lack(libc::SYS_fchmod, libc::ENOSPC, "fchmod"),
        // The C library of AArch64 makes other calls.
        #[cfg(target_arch = "x86_64")]
        lack(libc::SYS_rename, libc::ENOSPC, "rename"),
    ];
    // A process creates some resources only once; this creates them.
    drop(Mailbox::bind(&place.path).expect("binds"));
    for lack in lacks {
        let before = open_descriptors();
        let error = lack.during(|| Mailbox::bind(&place.path).expect_err(lack.name));
        lack.is_named_by(&error);
        let of_a_file = ["bind", "listen", "fchmod", "rename", "open of the lock file"];
        if of_a_file.contains(&lack.name) {
            assert!(error.to_string().contains(&*folder.to_string_lossy()), "{error}");
        }
        assert_eq!(open_descriptors(), before, "{}: a descriptor was lost", lack.name);
        let names = std::fs::read_dir(folder).expect("read").map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("ASCII")
        });
        let names: Vec<_> = names.filter(|name| name != "mailbox.lock").collect();
        assert_eq!(names, Vec::<String>::new(), "{}", lack.name);
        Mailbox::bind(&place.path).expect("the failure was temporary");
    }
}

#[test]
fn failed_call_during_connect_is_named_and_leaves_nothing() {
    alone!();
    let (place, mut mailbox) = bound();
    let mut first = connect(&Options::new(), &place.path);
    first.send(b"first").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"first");
    first.service().expect("the welcome is processed");
    assert!(first.peer().is_some());
    let connection = [
        lack(libc::SYS_socket, libc::ENOMEM, "socket"),
        lack(libc::SYS_connect, libc::ENOMEM, "connect"),
    ];
    for lack in connection.into_iter().chain(MEMORY) {
        let before = open_descriptors();
        let error = lack.during(|| Sender::connect(&place.path).expect_err(lack.name));
        lack.is_named_by(&error);
        assert_eq!(open_descriptors(), before, "{}: a descriptor was lost", lack.name);
        first.send(b"others").expect("sent");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"others");
        assert_eq!(mailbox.recv_timeout(A_WHILE).expect_err("no further message"), Error::TimedOut);
        assert_eq!(mailbox.sender_count(), 1, "{}", lack.name);
        assert_eq!(open_descriptors(), before, "{}: the mailbox keeps something", lack.name);
    }
    assert_eq!(mailbox.take_errors(), []);
    let mut second = Sender::connect(&place.path).expect("the failure was temporary");
    second.send(b"second").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"second");
}

/// Regression: each of these failures permanently cost the new sender its lane, or made `recv`
/// fail.
#[test]
fn failed_call_during_handshake_only_delays_sender() {
    alone!();
    let options = Options::new().handshake_timeout(AMPLE).wait_strategy(WaitStrategy::Sleep);
    let (place, mut mailbox) = bound_with(&options);
    let mut first = connect(&Options::new(), &place.path);
    first.send(b"first").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"first");
    first.service().expect("the welcome is processed");
    assert!(first.peer().is_some());
    let connection = [
        lack(libc::SYS_accept4, libc::ENOMEM, "accept4"),
        lack(libc::SYS_recvmsg, libc::ENOMEM, "recvmsg"),
        lack(libc::SYS_socketpair, libc::ENOMEM, "socketpair"),
        // EPOLL_CTL_ADD is 1 and EPOLL_CTL_MOD is 3, which does not match: modifying an entry needs
        // no memory.
        lack(libc::SYS_epoll_ctl, libc::ENOSPC, "epoll_ctl").when(1, libc::EPOLL_CTL_ADD),
    ];
    let open = open_descriptors();
    for lack in connection.into_iter().chain(MEMORY) {
        let mut new_sender = Sender::connect(&place.path).expect("connects");
        new_sender.send(b"new").expect("space in the first chunk");
        let faults = lack.during(|| {
            let nothing = mailbox.recv_timeout(A_WHILE).expect_err(lack.name);
            assert_eq!(nothing, Error::TimedOut, "{}", lack.name);
            first.send(b"others").expect("sent");
            assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"others");
            mailbox.take_errors()
        });
        new_sender.service().expect("no refusal yet");
        assert_eq!(faults.len(), 1, "{}: {faults:?}", lack.name);
        lack.is_named_by(&faults[0]);
        assert_eq!(
            &*mailbox.recv_timeout(AMPLE).expect("the message waited"),
            b"new",
            "{}",
            lack.name
        );
        mailbox.ack();
        new_sender.wait_acked(Some(AMPLE)).expect("welcomed at last");
        drop(new_sender);
        until("the lane is removed", || {
            assert!(mailbox.recv_timeout(Duration::from_millis(1)).is_err());
            mailbox.sender_count() == 1 && open_descriptors() == open
        });
        assert_eq!(mailbox.take_errors(), []);
    }
}

#[test]
fn failed_call_during_growth_only_delays_message() {
    alone!();
    let (place, mut mailbox) = bound();
    let mut length = 4000;
    let mut sender = connect(&Options::new(), &place.path);
    sender.send(b"first").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"first");
    mailbox.ack();
    for lack in MEMORY.into_iter().filter(|lack| lack.name != "sendmsg") {
        let large = vec![7; length];
        lack.during(|| {
            assert_eq!(sender.try_send(&large), Err(Error::WouldBlock), "{}", lack.name);
            let late = sender.send_timeout(&large, A_WHILE);
            assert_eq!(late, Err(Error::TimedOut), "{}", lack.name);
            sender.send(b"small").expect("the messages that fit are sent");
        });
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"small");
        sender.try_send(&large).expect("the failure was temporary");
        assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), *large);
        mailbox.ack();
        sender.wait_acked(Some(AMPLE)).expect("read");
        length *= 4;
    }
    assert_eq!(mailbox.take_errors(), []);
}

/// Regression: if a filter refused the call that receives rings, they filled the doorbell's queue.
/// Then a sender could not ring any more, and the receiver slept for good.
#[test]
fn doorbell_without_recvmmsg_notifies_each_wait() {
    alone!();
    let (place, mut mailbox) = bound();
    let mut sender = connect(&Options::new(), &place.path);
    for errno in [libc::EPERM, libc::ENOSYS] {
        lack(libc::SYS_recvmmsg, errno, "recvmmsg").during(|| {
            for wait in 0..2000 {
                while !mailbox.arm().expect("armed") {
                    mailbox.recv_timeout(Duration::ZERO).expect_err("all messages were received");
                }
                sender.send(b"ring").expect("sent");
                assert!(is_readable(&mailbox, AMPLE), "no notification in {wait}");
                assert_eq!(&*mailbox.try_recv().expect("a message"), b"ring");
            }
        });
    }
}

/// Mounts an empty tmpfs with these limits, visible only to this process. Returns `false` if
/// mounting is not permitted.
fn mount_small(folder: &std::path::Path, holds: &str) -> bool {
    mount_privately(c"tmpfs", folder, 0, holds).is_ok()
}

#[test]
fn mailbox_on_full_file_system_works_or_fails_cleanly() {
    alone!();
    let place = place();
    let folder = place.path.parent().expect("a folder");
    let works = || {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.send(b"space").expect("sent");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"space");
    };
    // No byte of space is left. Names need no space, and messages are stored elsewhere.
    let bytes = fork(|| {
        if !mount_small(folder, "size=64k") {
            return;
        }
        let error = std::fs::write(folder.join("filler"), vec![1; 1 << 20]).expect_err("full");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        works();
    });
    assert_eq!(reap(bytes), 0);
    // The number of files is limited: at first none can be created, then only the lock file.
    let files = fork(|| {
        if !mount_small(folder, "nr_inodes=8") {
            return;
        }
        let filler = |number: u32| folder.join(format!("filler-{number}"));
        let most = (0..).find(|&number| std::fs::File::create(filler(number)).is_err());
        let most = most.expect("full");
        assert!((2..8).contains(&most), "{most} files");
        for (call, name) in [("open of the lock file", "mailbox.lock"), ("bind", "mailbox.tmp")] {
            let error = Mailbox::bind(&place.path).expect_err("full");
            let start = format!("{call} failed at {}: ", folder.join(name).display());
            assert!(error.to_string().starts_with(&start), "{error}");
            assert_eq!(error.errno(), libc::ENOSPC, "{error}");
            let left = ["mailbox", "mailbox.tmp"].map(|name| folder.join(name).exists());
            assert_eq!(left, [false, false]);
            std::fs::remove_file(filler(u32::from(name == "mailbox.tmp"))).expect("removed");
        }
        works();
    });
    assert_eq!(reap(files), 0);
}
