//! Failures of honest processes: paths that are taken, too long or forbidden, and peers that stop,
//! close or die at the wrong moment. Forks and execs are in `forks.rs`.

#![allow(unsafe_code, reason = "setuid")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::*;
use crate::requested_back::until_requested_back;
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender, WaitStrategy};

#[test]
fn invalid_socket_path_is_refused_and_left_unchanged() {
    alone!();
    let place = place();
    std::fs::write(&place.path, "precious").expect("written");
    let error = Mailbox::bind(&place.path).expect_err("a file");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert_eq!(std::fs::read(&place.path).expect("still there"), b"precious");
    let error = Sender::connect(&place.path).expect_err("a file");
    assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
    let folder = place.path.parent().expect("a folder");
    let long = |length: usize| {
        let rest = length - folder.as_os_str().len() - 1;
        folder.join("x".repeat(rest))
    };
    for length in [108, 109, 200] {
        for error in [
            Mailbox::bind(long(length)).expect_err("too long"),
            Sender::connect(long(length)).expect_err("too long"),
        ] {
            assert!(
                matches!(&error, Error::InvalidAddress { address, .. }
                if *address == long(length).display().to_string()),
                "{error}"
            );
        }
    }
    let error = Mailbox::bind(folder.join("none/mailbox")).expect_err("no such folder");
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
}

/// Regression: the error *open of the lock file failed: Permission denied* did not name the file.
#[test]
fn system_errors_name_affected_file() {
    alone!();
    let place = place();
    let folder = place.path.parent().expect("a folder");
    let names = |error: &Error, call: &str, path: &std::path::Path| {
        let start = format!("{call} failed at {}: ", path.display());
        assert!(error.to_string().starts_with(&start), "{error}");
    };
    let path = folder.join("none/mailbox");
    let error = Mailbox::bind(&path).expect_err("no such folder");
    names(&error, "open of the lock file", &path.with_file_name("mailbox.lock"));
    // Under that name, `bind` removes a dead owner's socket, but not a folder.
    std::fs::create_dir(folder.join("mailbox.tmp")).expect("a folder");
    let error = Mailbox::bind(&place.path).expect_err("the first name is in use");
    assert!(error.to_string().contains("mailbox.tmp"), "{error}");
    std::fs::remove_dir(folder.join("mailbox.tmp")).expect("removed");
    // The path contains a file instead of a folder.
    std::fs::write(folder.join("file"), "").expect("written");
    let path = folder.join("file/mailbox");
    let error = Sender::connect(&path).expect_err("no folder");
    names(&error, "connect", &path);
    if rustix::process::geteuid().is_root() {
        let path = place.path.clone();
        std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("chmod");
        // Any user may write the lock file, but not the folder.
        std::fs::write(folder.join("mailbox.lock"), "").expect("written");
        let any_user = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(folder.join("mailbox.lock"), any_user).expect("chmod");
        let child = fork(move || {
            // SAFETY: the child is single-threaded, and only drops its privilege.
            assert_eq!(unsafe { libc::setuid(65534) }, 0);
            let error = Mailbox::bind(&path).expect_err("no file can be created");
            names(&error, "bind", &path.with_file_name("mailbox.tmp"));
        });
        assert_eq!(reap(child), 0);
    }
    Mailbox::bind(&place.path).expect("binds");
}

/// Regression: a path of 107 bytes fits into a socket's address, but was refused because the name
/// under which the socket is first created is longer.
#[test]
fn mailbox_with_longest_possible_path_works() {
    alone!();
    let place = place();
    let folder = place.path.parent().expect("a folder");
    let path = folder.join("x".repeat(107 - folder.as_os_str().len() - 1));
    let mut mailbox = Mailbox::bind(&path).expect("binds");
    Sender::connect(&path).expect("connects").send(b"far").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"far");
}

#[test]
fn folder_without_permission_is_refused() {
    alone!();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change the user");
        return;
    }
    let place = place();
    let path = place.path.clone();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(path.parent().expect("a folder"), closed).expect("chmod");
    let child = fork(move || {
        // SAFETY: the child is single-threaded, and only drops its privilege.
        assert_eq!(unsafe { libc::setuid(65534) }, 0);
        assert_eq!(Mailbox::bind(&path).expect_err("a foreign owner").errno(), libc::EACCES);
        let error = Sender::connect(&path).expect_err("a foreign owner");
        assert_eq!(error.errno(), libc::EACCES, "{error}");
    });
    assert_eq!(reap(child), 0);
}

#[test]
fn second_successor_gets_error_naming_first() {
    alone!();
    let place = place();
    let rounds = 300;
    let rival = || {
        let go = Signal::new();
        let done = Signal::new();
        let pid = fork(|| {
            for _ in 0..rounds {
                go.take();
                match Mailbox::bind(&place.path) {
                    Ok(mailbox) => {
                        done.give(0);
                        go.take();
                        drop(mailbox);
                    }
                    Err(Error::AddrInUse { holder: Some(holder), .. }) => {
                        done.give(holder.cast_signed());
                        go.take();
                    }
                    Err(_) => done.give(-1),
                }
                done.give(-2);
            }
        });
        (pid, go, done)
    };
    let rivals = [rival(), rival()];
    for round in 0..rounds {
        rivals.iter().for_each(|(_, go, _)| go.give(1));
        let answers = rivals.each_ref().map(|(_, _, done)| done.take());
        let winner = answers.iter().position(|&answer| answer == 0).expect("one process wins");
        assert_eq!(answers[1 - winner], rivals[winner].0, "round {round}: the loser names it");
        rivals.iter().for_each(|(_, go, _)| go.give(1));
        rivals.iter().for_each(|(_, _, done)| assert_eq!(done.take(), -2));
    }
    rivals.iter().for_each(|(pid, ..)| assert_eq!(reap(*pid), 0));
}

#[test]
fn closed_mailbox_ends_blocked_send() {
    alone!();
    let place = place();
    for waiting in [WaitStrategy::Sleep, WaitStrategy::Spin] {
        let mut mailbox = Options::new().lane_cap(1 << 13).bind(&place.path).expect("binds");
        let mut sender =
            Options::new().wait_strategy(waiting).connect(&place.path).expect("connects");
        mailbox.try_recv().expect_err("no message yet");
        let sent = AtomicUsize::new(0);
        let (error, unread) = thread::scope(|threads| {
            let sending = threads.spawn(|| {
                loop {
                    if let Err(error) = sender.send(&[1; 500]) {
                        return (error, sender.take_unread().expect("closed").len());
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _ = mailbox.recv_timeout(AMPLE).expect("a message");
            // A sender that spins does not sleep, so the test waits until it sends nothing more.
            let mut before = 0;
            until("the lane is full", || {
                thread::sleep(Duration::from_millis(10));
                let now = sent.load(Ordering::Relaxed);
                std::mem::replace(&mut before, now) == now && now > 5
            });
            mailbox.close();
            sending.join().expect("the thread ends")
        });
        assert_eq!(error.errno(), libc::EPIPE, "{error}");
        assert!(unread > 3, "{unread}");
    }
}

/// Regression: a large chunk was returned, and the receiver died before it continued in the small
/// chunk. Its last position was before the small chunk, and no successor accepts such a position.
#[test]
fn receiver_death_after_shrink_leaves_usable_lane() {
    alone!();
    let place = place();
    for on_death in [OnDeath::WaitForSuccessor, OnDeath::Fail] {
        let (sent, requested, stopped) = (Signal::new(), Signal::new(), Signal::new());
        let reader = fork(|| {
            let options = Options::new().shrink_after(Duration::from_millis(10));
            let mut mailbox = options.bind(&place.path).expect("binds");
            let _ = mailbox.recv().expect("a message");
            mailbox.ack();
            // No message is read, and no memory requested, before all messages are sent.
            sent.take();
            for _ in 0..100 {
                let _ = mailbox.recv().expect("a message");
            }
            mailbox.ack();
            while !requested.is_given() {
                let nothing = mailbox.recv_timeout(Duration::from_millis(5));
                assert_eq!(nothing.expect_err("no message yet"), Error::TimedOut);
            }
            requested.take();
            stopped.give(0);
            sleep_indefinitely();
        });
        let mut sender = connect(&Options::new().on_death(on_death), &place.path);
        sender.send(b"small").expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read");
        for _ in 0..100 {
            sender.send(&[1; 1000]).expect("sent");
        }
        sent.give(0);
        sender.wait_acked(Some(AMPLE)).expect("read");
        until_requested_back();
        requested.give(0);
        stopped.take();
        sender.send(b"first").expect("sent, in the small chunk");
        assert_eq!(sender.take_unread().expect_err("the receiver lives"), Error::WouldBlock);
        sender.send(b"second").expect("sent");
        kill(reader);
        if on_death == OnDeath::Fail {
            sender.send(b"third").expect_err("the peer has died");
            assert_eq!(sender.take_unread().expect("dead"), [&b"first"[..], b"second"]);
            continue;
        }
        let mut mailbox = Mailbox::bind(&place.path).expect("a free address");
        until("the successor is found", || {
            sender.service().expect("no error yet");
            mailbox.try_recv().is_ok_and(|message| *message == *b"first")
        });
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"second");
        drop(mailbox);
    }
}

/// Regression: a mailbox whose maximum number of senders was 0 was bound and refused all senders,
/// and some of the excess bits of a mode were interpreted as permissions.
#[test]
fn invalid_options_are_refused() {
    alone!();
    let place = place();
    for (options, named) in
        [(Options::new().max_lanes(0), "max_lanes"), (Options::new().mode(0o1777), "mode")]
    {
        for refused in [options.bind(&place.path), options.unbound()] {
            let error = refused.expect_err("no effect");
            assert!(
                matches!(&error, Error::InvalidOption { option, .. } if *option == named),
                "{error}"
            );
        }
        assert!(!place.path.exists(), "no file was created");
    }
}

fn limit_files(bytes: u64) {
    let limit = Some(bytes);
    let limit = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).expect("lowered");
}

/// Regression: a process under `ulimit -f` bound a mailbox, connected to one, sent a message for
/// which its lane had to grow, or created a shared heap. Each time SIGXFSZ killed the process,
/// because the limit also applies to memory files.
#[test]
fn file_size_limit_is_error_without_signal() {
    alone!();
    use tontine::heap;
    let place = place();
    let child = bare_fork(|| {
        limit_files(0);
        let error = Mailbox::bind(&place.path).expect_err("no page for its life");
        assert_eq!(error, Error::FileTooLarge { requested: 69_632, limit: 0 });
        let error = heap::shared::Heap::create(1 << 20);
        assert!(matches!(error, Err(heap::HeapError::FileTooLarge { limit: 0, .. })));
    });
    assert_eq!(reap(child), 0);
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let sent = Signal::new();
    let child = fork(|| {
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.send(b"one").expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read");
        limit_files(4096);
        // The message is too long for the current chunk.
        let error = sender.send(&[1; 10_000]).expect_err("no larger chunk");
        assert!(matches!(error, Error::FileTooLarge { limit: 4096, .. }), "{error}");
        // The message fits into the current chunk: the call waits, as it does at the cap.
        let error = loop {
            if let Err(error) = sender.try_send(&[2; 1000]) {
                break error;
            }
        };
        assert_eq!(error, Error::WouldBlock);
        sent.give(0);
        sender.send(&[3; 1000]).expect("the reader frees space");
        limit_files(0);
        let error = Sender::connect(&place.path).expect_err("no chunk");
        assert_eq!(error, Error::FileTooLarge { requested: 4096, limit: 0 });
    });
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"one");
    mailbox.ack();
    sent.take();
    while mailbox.recv_timeout(AMPLE).expect("a message")[0] != 3 {}
    assert_eq!(reap(child), 0);
}

/// Regression: a process changed its user after it had built its options, and refused peers of its
/// new user. The error stated that uid 65534 was expected, in a process of uid 65534.
#[test]
fn refusal_after_setuid_names_allowed_users() {
    alone!();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = place();
    let folder = place.path.parent().expect("a folder");
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("chmod");
    let bound = Signal::new();
    let receiver = fork(|| {
        let mut mailbox = Options::new().mode(0o666).allow_uid(7).bind(&place.path).expect("binds");
        // SAFETY: the child is single-threaded, and only drops its privilege.
        assert_eq!(unsafe { libc::setuid(65534) }, 0);
        bound.give(0);
        until("the sender is refused", || {
            let _ = mailbox.recv_timeout(SHORT);
            mailbox.take_errors().first().is_some_and(|error| {
                let text = error.to_string();
                assert!(text.contains("(uid 65534) was refused: expected uid 0 or 7"), "{text}");
                true
            })
        });
    });
    bound.take();
    let sender = fork(|| {
        let options = Options::new().allow_uid(65534);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setuid(65534) }, 0);
        // The sender may be refused before its first message.
        let mut error = None;
        match options.connect(&place.path) {
            Ok(mut sender) => until("the sender is refused", || {
                error = sender.service().err();
                error.is_some()
            }),
            Err(refused) => error = Some(refused),
        }
        let text = error.expect("refused").to_string();
        assert!(text.contains("(uid 65534) was refused by the other end"), "{text}");
        // The sender allows only uid 0, which owns the listener, so only a new connection fails.
        let error = Options::new().connect(&place.path).err();
        assert!(error.is_none_or(|error| error.to_string().contains("expected uid 65534")));
    });
    assert_eq!((reap(sender), reap(receiver)), (0, 0));
}

/// Regression: `adopt` and `from_socket` accepted any socket. A stream merges messages and a
/// datagram socket has no hang-up, so the lane broke later, with an error that named the peer.
#[test]
fn sockets_of_other_kinds_are_refused() {
    alone!();
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};
    let _place = place();
    let mut mailbox = Mailbox::unbound().expect("made");
    let (unix, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let mut refused = |socket: OwnedFd, errno: i32, word: &str| {
        let copy = socket.try_clone().expect("a copy");
        for error in [mailbox.adopt(socket).err(), Sender::from_socket(copy).err()] {
            let error = error.expect("an error");
            assert_eq!(error.errno(), errno, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    };
    for (kind, word) in [(SocketType::STREAM, "SOCK_STREAM"), (SocketType::DGRAM, "SOCK_DGRAM")] {
        let (one, _other) = socketpair(unix, kind, flags, None).expect("a pair");
        refused(one, libc::EPROTOTYPE, word);
    }
    let lone = socket_with(unix, SocketType::SEQPACKET, flags, None).expect("a socket");
    refused(lone, libc::EPROTOTYPE, "not connected");
    let inet = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
    refused(inet, libc::EPROTOTYPE, "Unix");
    let file = std::fs::File::open("/dev/null").expect("the file exists");
    refused(file.into(), libc::ENOTSOCK, "SO_DOMAIN");
    let (one, other) = socketpair(unix, SocketType::SEQPACKET, flags, None).expect("a pair");
    drop(other);
    mailbox.adopt(one).expect("a socket whose other end was closed");
}
